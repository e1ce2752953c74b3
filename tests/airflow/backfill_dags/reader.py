"""A DAG that reads what backfill__slow_orders restates."""

from pathlib import Path

from airflow.sdk import DAG

from airflow_backfill_provider.operators.settled import PartitionSettledSensor

with DAG("slow_orders_reader", schedule=None, is_paused_upon_creation=False):
    PartitionSettledSensor(
        task_id="settled",
        spec=Path(__file__).parent / "backfills" / "slow_orders.yaml",
        partitions=["2024-03-05"],
        poke_interval=10,
    )
