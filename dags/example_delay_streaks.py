"""The scheduled pipeline of a table that a Python function computes; its backfill calls the same function.

The backfill, ``backfill__delay_streaks``, is made from ``backfills/delay_streaks.yaml``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.providers.duckdb.hooks.duckdb import DuckDBHook
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_backfill_provider.operators.guard import guard


def publish_day(data_interval_start: Any, data_interval_end: Any) -> None:
    """Replace the day in the published table."""
    import delay_streaks

    with DuckDBHook(duckdb_conn_id="warehouse_backfill").get_conn() as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS analytics.delay_streaks (flight_date DATE, origin VARCHAR, longest_streak INTEGER)"
        )
        rows = delay_streaks.streaks(connection, data_interval_start, data_interval_end)
        connection.execute("BEGIN TRANSACTION")
        connection.execute("DELETE FROM analytics.delay_streaks WHERE flight_date = ?", [data_interval_start.date()])
        connection.executemany(
            "INSERT INTO analytics.delay_streaks VALUES ($flight_date, $origin, $longest_streak)", rows
        )
        connection.execute("COMMIT")


with DAG(
    "example_delay_streaks",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    end_date=pendulum.datetime(2013, 12, 31, tz="UTC"),
    catchup=False,
    is_paused_upon_creation=True,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["safe-backfill"],
):
    publish = PythonOperator(task_id="publish_day", python_callable=publish_day)
    guard(Path(__file__).parent / "backfills" / "delay_streaks.yaml", publish)
