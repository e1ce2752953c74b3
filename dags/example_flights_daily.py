"""The scheduled pipeline that publishes one day of flights; backfills run the same SQL file.

The demo does not run it: it starts paused, and the demo's source ends with 2013.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_backfill_provider.operators.guard import guard

with DAG(
    "example_flights_daily",
    # The data interval is the day before the run; under a plain "@daily" Airflow 3 makes it empty.
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    end_date=pendulum.datetime(2013, 12, 31, tz="UTC"),
    catchup=False,
    is_paused_upon_creation=True,
    template_searchpath=[str(Path(__file__).parent)],
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["safe-backfill"],
):
    publish = SQLExecuteQueryOperator(
        task_id="publish_day",
        conn_id="warehouse_backfill",
        sql=[
            "BEGIN TRANSACTION",
            "DELETE FROM analytics.fct_flights WHERE flight_date = DATE '{{ data_interval_start | ds }}'",
            "INSERT INTO analytics.fct_flights BY NAME {% include 'sql/fct_flights.sql' %}",
            "COMMIT",
        ],
    )
    guard(Path(__file__).parent / "backfills" / "fct_flights.yaml", publish)
