"""The DAG ``backfill_cleanup``: drops every day what backfills left aside and whose time, by their specs, is over."""

from airflow_backfill_provider.dag_factory import cleanup_dag

dag = cleanup_dag()
