from datetime import timedelta
from pathlib import Path

from airflow_backfill_provider.dag_factory import backfill_dags

dags = backfill_dags(Path(__file__).parent / "backfills")
# Of what a task works; people take longer.
dags["backfill__asked"].get_task("approve_plan").execution_timeout = timedelta(seconds=30)
globals().update(dags)
