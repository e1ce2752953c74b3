from pathlib import Path

from airflow_backfill_provider.dag_factory import backfill_dags

globals().update(backfill_dags(Path(__file__).parent / "backfills"))
