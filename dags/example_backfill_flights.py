"""The DAGs ``backfill__<name>`` and ``rollback__<name>`` of every spec in ``backfills``: flights and carriers."""

from pathlib import Path

from airflow_backfill_provider.dag_factory import backfill_dags

globals().update(backfill_dags(Path(__file__).parent / "backfills"))
