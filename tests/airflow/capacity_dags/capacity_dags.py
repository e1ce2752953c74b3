from pathlib import Path

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from airflow_backfill_provider.dag_factory import backfill_dags

globals().update(backfill_dags(Path(__file__).parent / "backfills"))
with DAG("crowd", schedule=None, max_active_runs=25, is_paused_upon_creation=False):
    PythonOperator(task_id="waits", pool="crowd", python_callable=print)
