"""A DAG that reads what others publish: it waits while a backfill restates the day it is about to sum up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_backfill_provider.operators.settled import PartitionSettledSensor

with DAG(
    "example_flights_digest",
    schedule=CronDataIntervalTimetable("0 6 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    end_date=pendulum.datetime(2013, 12, 31, tz="UTC"),
    catchup=False,
    is_paused_upon_creation=True,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["safe-backfill"],
):
    settled = PartitionSettledSensor(
        task_id="settled",
        spec=Path(__file__).parent / "backfills" / "fct_flights.yaml",
        partitions=["{{ data_interval_start | ds }}"],
        poke_interval=60,
        timeout=timedelta(hours=12),
    )
    digest = SQLExecuteQueryOperator(
        task_id="digest",
        conn_id="warehouse_backfill",
        sql="SELECT carrier, avg(arrival_delay_minutes) FROM analytics.fct_flights "
        "WHERE flight_date = DATE '{{ data_interval_start | ds }}' GROUP BY carrier",
    )
    settled >> digest
