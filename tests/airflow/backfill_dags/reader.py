"""The live neighbours: a DAG that reads what backfill__slow_orders restates, and the one that writes orders every day."""

from pathlib import Path

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset

from airflow_backfill_provider.operators.settled import PartitionSettledSensor

with DAG("slow_orders_reader", schedule=None, is_paused_upon_creation=False):
    PartitionSettledSensor(
        task_id="settled",
        spec=Path(__file__).parent / "backfills" / "slow_orders.yaml",
        partitions=["2024-03-05"],
        poke_interval=10,
    )

with DAG("orders_daily", schedule=None, is_paused_upon_creation=False):
    EmptyOperator(task_id="write", outlets=[Asset(name="orders", uri="duckdb://shop/analytics/orders")])
