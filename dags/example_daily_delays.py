"""The scheduled run of a dbt microbatch model; its backfill stages the SELECT of the same model.

The backfill, ``backfill__daily_delays``, is made from ``backfills/daily_delays.yaml``. dbt is yours to install: the command
``dbt`` is looked for on ``PATH``, and ``FLIGHTS_DUCKDB`` is the path of the warehouse that its profile opens.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_backfill_provider.operators.guard import guard

HERE = Path(__file__).parent

with DAG(
    "example_daily_delays",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    end_date=pendulum.datetime(2013, 12, 31, tz="UTC"),
    catchup=False,
    is_paused_upon_creation=True,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["safe-backfill"],
):
    build = BashOperator(
        task_id="build_day",
        bash_command="scratch=$(mktemp -d) && dbt --log-path $scratch run --select daily_delays --target-path $scratch "
        "--project-dir $PROJECT --profiles-dir $PROJECT "
        "--event-time-start '{{ data_interval_start | ds }}' --event-time-end '{{ data_interval_end | ds }}'",
        env={"PROJECT": str(HERE / "dbt_flights")},
        append_env=True,
    )
    guard(HERE / "backfills" / "daily_delays.yaml", build)
