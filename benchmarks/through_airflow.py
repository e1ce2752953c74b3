"""A backfill through a real scheduler, against Airflow's own ``airflow backfill create``, in one run.

The table is that of ``whole_life.py``. *Ours* is the factory's DAG with everything on: trial, checks, keyed comparison, backup,
verified publish, report. *Airflow's* is what a person would write: a daily DAG whose task deletes and inserts its day in one
transaction, in a pool; the pool size that was fastest on a few days beforehand. A DuckDB file has one writer, so that such a task
waits for it. *Engine* is our steps without Airflow, *bare* the statements without us. Seconds are Airflow's own, from a run's
being queued to the end of the last one.

Run it with ``make bench-airflow``, or ``python benchmarks/through_airflow.py --engine postgres --days 10 --sample 4``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engines import COLUMNS, DAYS, FIRST, HOME, ROWS_PER_DAY, SELECT, WORKERS, DuckDB, Postgres
from whole_life import measure

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import LocalAirflow, running
from airflow_backfill_provider.demo.local_postgres import LocalPostgres

CONNECTION, PLAIN, OURS = "warehouse", "plain_orders", "backfill__orders"
PATIENCE = 3_600.0
BOUNDS = (
    "WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'"
)

OUR_DAG = """
from pathlib import Path
from airflow_backfill_provider.dag_factory import backfill_dags
globals().update(backfill_dags(Path(__file__).parent / "backfills"))
"""
OUR_SPEC = """
name: orders
target: {table: analytics.orders, partition_by: order_date, key: [order_id]}
transform: {sql: ../orders.sql}
compute: {conn_id: warehouse, max_concurrency: %d}
source: {table: raw.orders, partition_by: order_date}
checks:
  - not_null: {column: order_id}
  - accepted_range: {column: amount_minor, min_value: 0}
compare:
  - row_count: {against: source, max_abs_change: 0}
  - sum: {column: amount_minor, change_between: [-30%%, 0%%]}
  - row_diff: {max_added: 0, max_removed: 0}
"""
PLAIN_DAG = """
import time

import pendulum
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, task

BOUNDS = %r
STATEMENTS = [f"DELETE FROM analytics.orders {BOUNDS}", f"INSERT INTO analytics.orders (%s) %s{BOUNDS}"]
with DAG(
    "plain_orders",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2023, 1, 1, tz="UTC"),
    end_date=pendulum.datetime(2023, 12, 31, tz="UTC"),
    catchup=False,
    is_paused_upon_creation=False,
):
%s"""
PLAIN_TASKS = {
    "postgres": """
    SQLExecuteQueryOperator(
        task_id="replace_day",
        conn_id="warehouse",
        pool="plain",
        autocommit=False,
        split_statements=True,
        sql=STATEMENTS,
    )
""",
    "duckdb": """
    @task(pool="plain")
    def replace_day(statements, path):
        import duckdb

        while True:
            try:
                connection = duckdb.connect(path)
                break
            except duckdb.IOException:  # another day is being written
                time.sleep(0.05)
        with connection:
            for statement in ("BEGIN", *statements, "COMMIT"):
                connection.execute(statement)

    replace_day(STATEMENTS, "{{ conn.warehouse.host }}")
""",
}


def write_dags(folder: Path, engine: str) -> None:
    """Both DAGs, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "backfills").mkdir(parents=True)
    (folder / "ours.py").write_text(OUR_DAG)
    (folder / "plain.py").write_text(PLAIN_DAG % (BOUNDS, COLUMNS, SELECT, PLAIN_TASKS[engine]))
    (folder / "orders.sql").write_text(SELECT + BOUNDS + "\n")
    (folder / "backfills" / "orders.yaml").write_text(OUR_SPEC % WORKERS)


def _airflow(server: LocalPostgres, dags: Path) -> LocalAirflow:
    """One that keeps its own data on a server: on SQLite its ``backfill create`` meets a locked database."""
    with server.connect("postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE airflow")
    address = f"postgresql+psycopg2://{server.user}:{server.password}@127.0.0.1:{server.port}/airflow"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    return LocalAirflow(
        HOME / "airflow",
        dags,
        components=("api-server", "scheduler", "dag-processor"),
        env={"PYTHONPATH": path, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": address},
    )


def prepare(airflow: LocalAirflow, engine: DuckDB | Postgres) -> None:
    """Pools, switch, ledger and connection; both DAGs known."""
    airflow.cli("safe-backfill", "init", "--ledger", str(airflow.home / "ledger.db"))
    place = engine.fresh()
    if isinstance(engine, Postgres):
        server = engine.server
        fields = {"host": "127.0.0.1", "port": server.port, "login": server.user, "password": server.password}
        airflow.api.set_connection(CONNECTION, "postgres", schema=place, **fields)
    else:
        airflow.api.set_connection(CONNECTION, "duckdb", host=place)
    airflow.api.set_pool("plain", 1)
    for dag_id in (PLAIN, OURS):
        airflow.api.wait_for_dag(dag_id, timeout=PATIENCE)


def ours(api: AirflowApi, days: int) -> tuple[float, list[str]]:
    """Seconds of a whole backfill, and where they went."""
    conf = {"start_date": str(FIRST), "end_date": str(FIRST + timedelta(days=days - 1)), "reason": "benchmark"}
    run_id = api.trigger(OURS, conf)
    state = api.wait_for_run(OURS, run_id, timeout=PATIENCE)
    if state != "success":
        raise SystemExit(api.failures(OURS, run_id))
    run = api.run(OURS, run_id)
    tasks = [task for task in api.task_instances(OURS, run_id) if task["start_date"]]
    return _between(run["queued_at"], run["end_date"]), list(_profile(run, tasks))


def _profile(run: dict[str, Any], tasks: Sequence[dict[str, Any]]) -> Any:
    """A line for each task: when it began, how long it ran, and how long it waited in the queue."""
    for task in sorted(tasks, key=lambda task: str(task["start_date"])):
        name = task["task_id"] if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]"
        began, ran = _between(run["queued_at"], task["start_date"]), _between(task["start_date"], task["end_date"])
        waited = _between(task["queued_when"], task["start_date"]) if task["queued_when"] else 0.0
        yield f"      {name:<36} began {began:>6.1f}  queued {waited:>5.1f}  ran {ran:>6.1f}"


def airflows(airflow: LocalAirflow, first: int, days: int, slots: int) -> float:
    """Seconds that Airflow's own backfill takes for these days in a pool of that size."""
    airflow.api.set_pool("plain", slots)
    start, end = FIRST + timedelta(days=first), FIRST + timedelta(days=first + days - 1)
    before = {run["dag_run_id"] for run in _runs(airflow.api)}
    # The scheduler calls a backfill completed up to half a minute after its last run; until then it refuses another.
    wait_until(lambda: _none_active(airflow.api), f"no backfill of {PLAIN} to be active", timeout=PATIENCE, every=1)
    airflow.cli(
        "backfill", "create", "--dag-id", PLAIN, "--from-date", str(start), "--to-date", str(end),
        "--max-active-runs", str(slots),
    )  # fmt: skip

    def over() -> list[dict[str, Any]] | None:
        runs = [run for run in _runs(airflow.api) if run["dag_run_id"] not in before]
        return runs if len(runs) >= days and all(run["state"] in ("success", "failed") for run in runs) else None

    runs = wait_until(over, f"{days} runs of {PLAIN}", timeout=PATIENCE, every=1)
    failed = [run["dag_run_id"] for run in runs if run["state"] != "success"]
    if failed or len(runs) != days:
        raise SystemExit(f"{len(runs)} runs for {days} days, failed: {', '.join(failed)}")
    # All are queued before the first begins; each waits from there for its turn.
    return _between(min(run["queued_at"] for run in runs), max(run["end_date"] for run in runs))


def _none_active(api: AirflowApi) -> bool | None:
    found = api.request("GET", "/backfills", params={"dag_id": PLAIN})["backfills"]
    return all(backfill["completed_at"] for backfill in found) or None


def _runs(api: AirflowApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = api.request("GET", f"/dags/{PLAIN}/dagRuns", params={"limit": 100, "offset": len(found)})
        found += page["dag_runs"]
        if not page["dag_runs"] or len(found) >= page["total_entries"]:
            return found


def _between(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def wrong_rows(engine: DuckDB | Postgres, days: int) -> int:
    """Rows of the range that are not what the rule says, and how many there are more or fewer than there were."""
    within = f"WHERE order_date BETWEEN DATE '{FIRST}' AND DATE '{FIRST + timedelta(days=days - 1)}'"
    published = f"SELECT {COLUMNS} FROM analytics.orders"
    differing, rows = (
        engine.count(f"({SELECT} {within}) EXCEPT ALL ({published} {within})"),
        engine.count(published),
    )
    return differing + abs(rows - DAYS * ROWS_PER_DAY)


def main() -> int:
    """Print a line for each length of range, and where our seconds went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--days", type=int, nargs="+", default=[180, 365], help="Airflow's own is run for the first of them"
    )
    parser.add_argument("--engine", choices=sorted(PLAIN_TASKS), default="duckdb")
    parser.add_argument("--pools", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sample", type=int, default=16, help="days to find the best pool with")
    arguments = parser.parse_args()
    days = arguments.days
    if days[0] + len(arguments.pools) * arguments.sample > DAYS:
        parser.error(f"the table has {DAYS} days, and the samples take {arguments.sample} for each pool")
    engine = DuckDB() if arguments.engine == "duckdb" else Postgres()
    server = engine.server if isinstance(engine, Postgres) else LocalPostgres(HOME / "postgres.json")
    dags = HOME / "dags"
    write_dags(dags, arguments.engine)
    shutil.rmtree(HOME / "airflow", ignore_errors=True)
    try:
        if not isinstance(engine, Postgres):
            server.create()
            server.start()
        print(f"{engine.start()}, {WORKERS} cores, {DAYS * ROWS_PER_DAY:,} rows", flush=True)
        airflow = _airflow(server, dags)
        airflow.migrate()
        bare, alone = (
            {count: measure(engine, what, count, "partition")["seconds"] for count in days} for what in ("bare", "ours")
        )
        with running(airflow, timeout=600):
            prepare(airflow, engine)
            rates = {slots: airflows(airflow, DAYS - (number + 1) * arguments.sample, arguments.sample, slots)
                     for number, slots in enumerate(arguments.pools)}  # fmt: skip
            best = min(rates, key=lambda slots: rates[slots])
            tried = ", ".join(f"{slots}: {seconds:.1f} s" for slots, seconds in rates.items())
            print(f"Airflow's own, {arguments.sample} days in a pool of {tried}", flush=True)
            plain = airflows(airflow, 0, days[0], best)
            assert wrong_rows(engine, days[0]) == 0
            print(
                f"{'days':>5} {'rows':>10} {'bare s':>7} {'engine s':>9} {'ours s':>8} {'beside it':>10} {'airflow s':>10} "
                f"{'ratio':>6}"
            )
            seconds = {}
            for count in days:
                engine.fresh()
                seconds[count], profile = ours(airflow.api, count)
                assert wrong_rows(engine, count) == 0
                against = f"{plain:>10.1f} {plain / seconds[count]:>6.1f}" if count == days[0] else ""
                print(f"{count:>5} {count * ROWS_PER_DAY:>10,} {bare[count]:>7.1f} {alone[count]:>9.1f} {seconds[count]:>8.1f} "
                      f"{seconds[count] - alone[count]:>10.1f} {against}")  # fmt: skip
                print(*profile, sep="\n", flush=True)
            for count in days[1:]:
                print(f"{count} days took {seconds[count] / seconds[days[0]]:.2f} times as long as {days[0]}")
    finally:
        engine.stop()
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
