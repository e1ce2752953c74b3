"""A DAG that recomputes one day of a table, for whoever triggers it; a backfill does, once per partition.

The backfill, ``backfill__busiest_hours``, is made from ``backfills/busiest_hours.yaml``. It tells each run its day and the file to
write; anything may happen in between.
"""

from __future__ import annotations

from datetime import timedelta

import duckdb
from airflow.providers.duckdb.hooks.duckdb import DuckDBHook
from airflow.sdk import DAG, get_current_context, task

BUSIEST = """
SELECT flight_date, origin, hour AS busiest_hour, flights FROM (
    SELECT flight_date, origin, hour, count(*) AS flights FROM raw.flights
    WHERE flight_date >= CAST($start AS DATE) AND flight_date < CAST($end AS DATE) GROUP BY ALL
) QUALIFY row_number() OVER (PARTITION BY flight_date, origin ORDER BY flights DESC, hour) = 1
"""

with DAG(
    "busiest_hours_of_a_day",
    schedule=None,
    is_paused_upon_creation=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
    tags=["safe-backfill"],
):

    @task
    def compute() -> None:
        """Write the rows of the partition where the conf says."""
        conf = get_current_context()["dag_run"].conf or {}
        bounds = {"start": conf["partition_start"][:10], "end": conf["partition_end"][:10]}
        with duckdb.connect(DuckDBHook("warehouse_backfill").get_database(), read_only=True) as warehouse:
            warehouse.sql(BUSIEST, params=bounds).write_parquet(conf["staging_file"])

    compute()
