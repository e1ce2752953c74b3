"""The scheduled pipeline of a monthly report in New York's time, guarded so that no backfill interleaves with it.

Its backfill, ``backfill__carriers_monthly``, is made from ``backfills/carriers_monthly.yaml``; both run the same SQL file.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_backfill_provider.operators.guard import guard

HERE = Path(__file__).parent
DELETE_MONTH = (
    "DELETE FROM analytics.carriers_monthly "
    "WHERE month = DATE '{{ data_interval_start.in_timezone('America/New_York') | ds }}'"
)

with DAG(
    "example_carriers_monthly",
    schedule=CronDataIntervalTimetable("0 0 1 * *", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    end_date=pendulum.datetime(2013, 12, 31, tz="America/New_York"),
    catchup=False,
    is_paused_upon_creation=True,
    template_searchpath=[str(HERE)],
    default_args={"retries": 5, "retry_delay": timedelta(minutes=5)},
    tags=["safe-backfill"],
):
    create = SQLExecuteQueryOperator(
        task_id="create_table",
        conn_id="warehouse_backfill",
        sql="""
            CREATE TABLE IF NOT EXISTS analytics.carriers_monthly (
                month DATE, carrier VARCHAR, flights INTEGER, cancelled INTEGER, arrived INTEGER,
                mean_arrival_delay_minutes DOUBLE
            )
        """,
    )
    publish = SQLExecuteQueryOperator(
        task_id="publish_month",
        conn_id="warehouse_backfill",
        sql=[
            "BEGIN TRANSACTION",
            DELETE_MONTH,
            "INSERT INTO analytics.carriers_monthly BY NAME {% include 'sql/carriers_monthly.sql' %}",
            "COMMIT",
        ],
    )
    create >> publish
    guard(HERE / "backfills" / "carriers_monthly.yaml", publish)
