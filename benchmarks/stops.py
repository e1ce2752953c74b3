"""How many seconds each way to stop a backfill takes, and each way to go on, on a real scheduler.

The statements of this backfill take as long as a table says, and PostgreSQL tells which of them run, so everything is seen
from the warehouse's side: a task that Airflow calls failed has stopped when its statement is gone. Airflow's own settings are
as installed.

Run it with ``make bench-stops``, or ``python benchmarks/stops.py approval silent`` for some of the measurements alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from engines import HOME, WORKERS

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import LocalAirflow, running
from airflow_backfill_provider.demo.local_postgres import LocalPostgres
from airflow_backfill_provider.identity import backfill_id

FIRST, DAYS, PER_TASK = date(2024, 1, 1), 40, 4
PACE, ENDLESS, TIMEOUT = 2, 3_600, 30
"""Seconds: of one partition that ends, of one that does not, and the ``execution_timeout``."""
PATIENCE = 600.0
STAGE = "partitions.stage_recompute"
SWITCH, POOL = "safe_backfill_kill_switch", "safe_backfill"

DAGS = f"""
from datetime import timedelta
from pathlib import Path
from airflow_backfill_provider.dag_factory import backfill_dag
from airflow_backfill_provider.spec.load import load_spec
specs = Path(__file__).parent / "backfills"
orders = backfill_dag(load_spec(specs / "orders.yaml"))
asked = backfill_dag(load_spec(specs / "asked.yaml"))
timed = backfill_dag(load_spec(specs / "timed.yaml"), default_args={{"execution_timeout": timedelta(seconds={TIMEOUT})}})
"""
SPEC = """
name: {name}
target: {{table: analytics.orders, partition_by: order_date, key: [order_id]}}
transform: {{sql: ../orders.sql}}
compute: {{conn_id: warehouse, max_concurrency: 2, partitions_per_task: {per_task}}}
trial: {{enabled: false}}
approval: {{required: {required}, four_eyes: false}}
"""
SQL = """
SELECT order_id, order_date, amount + 1 AS amount FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
  AND (SELECT pg_sleep(max(seconds)) IS NOT NULL FROM raw.pace)
"""
STATEMENTS = """
SELECT pid, extract(epoch FROM query_start)::float FROM pg_stat_activity
WHERE datname = 'shop' AND wait_event = 'PgSleep'
"""
Row = tuple[str, str, float]


class Warehouse:
    """The orders, how long a partition of them takes, and which statements run."""

    def __init__(self) -> None:
        HOME.mkdir(parents=True, exist_ok=True)
        self.server = LocalPostgres(HOME / "stops.json")

    def start(self) -> None:
        self.server.create()
        self.server.start()
        for database in ("shop", "airflow"):
            self.rows(f"CREATE DATABASE {database}", "postgres")
        self.rows("CREATE SCHEMA raw")
        self.rows("CREATE SCHEMA analytics")
        self.rows(f"CREATE TABLE raw.pace AS SELECT {PACE}::float AS seconds")
        self.rows(
            f"CREATE TABLE raw.orders AS SELECT i AS order_id, DATE '{FIRST}' + i / 10 AS order_date, i % 90 AS amount "
            f"FROM generate_series(0, {DAYS * 10 - 1}) AS t (i)"
        )
        self.rows("CREATE TABLE analytics.orders AS SELECT * FROM raw.orders")

    def rows(self, sql: str, database: str = "shop") -> list[tuple[Any, ...]]:
        with self.server.connect(database, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def pace(self, seconds: float) -> None:
        self.rows(f"UPDATE raw.pace SET seconds = {seconds}")

    def statements(self) -> list[tuple[int, float]]:
        """Session and begin of each partition's statement that runs."""
        return [(pid, begun) for pid, begun in self.rows(STATEMENTS)]


class Watch(threading.Thread):
    """Every statement that is seen at work, and when it was seen last, looked at ten times a second."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(daemon=True)
        self.seen: dict[tuple[int, float], float] = {}
        self._warehouse, self._over = warehouse, threading.Event()

    def run(self) -> None:
        with self._warehouse.server.connect("shop", autocommit=True) as connection:
            while not self._over.wait(0.1):
                found = connection.execute(STATEMENTS).fetchall()
                self.seen |= {(pid, begun): time.time() for pid, begun in found}

    def stop(self) -> None:
        self._over.set()
        self.join()

    def begun_after(self, moment: float) -> float | None:
        """Seconds from the moment to the first statement that began then."""
        return min((begun - moment for _, begun in self.seen.copy() if begun > moment), default=None)

    def last_begun(self, moment: float) -> float:
        """Seconds from the moment to the last statement's begin; 0 when none began after it."""
        return max(0.0, *(begun - moment for _, begun in self.seen))

    def last_over(self, moment: float) -> float:
        """Seconds from the moment to the last one's end."""
        return max(self.seen.values()) - moment


class Bench:
    """What all measurements share."""

    def __init__(self, airflow: LocalAirflow, warehouse: Warehouse, watch: Watch) -> None:
        self.airflow, self.warehouse, self.watch = airflow, warehouse, watch
        self.api: AirflowApi = airflow.api

    def trigger(self, dag_id: str, first: int, last: int) -> str:
        days = {"start_date": str(FIRST + timedelta(days=first)), "end_date": str(FIRST + timedelta(days=last))}
        return self.api.trigger(dag_id, days | {"reason": "benchmark"})

    def busy(self, statements: int) -> None:
        """Wait until so many partitions are computed at once."""
        wait_until(
            lambda: len(self.warehouse.statements()) >= statements or None,
            f"{statements} statements at work", timeout=PATIENCE,
        )  # fmt: skip

    def idle(self, dag_id: str, run_id: str) -> None:
        """Wait until no task of the run is at work or about to be."""
        looks = 0

        def look() -> bool | None:
            nonlocal looks
            states = set(self.api.task_states(dag_id, run_id).values())
            looks = 0 if states & {"queued", "running", "restarting"} or self.warehouse.statements() else looks + 1
            return looks > 3 or None

        wait_until(look, f"{run_id} to be idle", timeout=PATIENCE, every=1)

    def first_after(self, moment: float) -> float:
        return wait_until(
            lambda: self.watch.begun_after(moment), "a partition's statement", timeout=PATIENCE, every=0.1
        )

    def gone_after(self, moment: float) -> float:
        """Seconds from the moment until no statement runs any more."""
        wait_until(lambda: not self.warehouse.statements() or None, "no statement", timeout=PATIENCE, every=0.1)
        return time.time() - moment

    def task(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The task that computes, of a run that has one."""
        return next(task for task in self.api.task_instances(dag_id, run_id) if task["task_id"] == STAGE)

    def end_task(self, dag_id: str, run_id: str) -> None:
        """As a person marks it failed."""
        self.api.request(
            "PATCH", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{STAGE}/0", json={"new_state": "failed"}
        )

    def end_run(self, dag_id: str, run_id: str) -> None:
        self.api.request("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}", json={"state": "failed"})
        self.gone_after(time.time())


def stop_signals(bench: Bench) -> Iterator[Row]:
    """One backfill, stopped in three ways and gone on with after each; published in the end."""
    dag_id, api = "backfill__orders", bench.api
    run_id = bench.trigger(dag_id, 0, 23)

    def stopped(what: str, act: Callable[[], None]) -> Iterator[Row]:
        bench.busy(2)
        moment = time.time()
        act()
        bench.idle(dag_id, run_id)
        yield what, "the last partition begins", bench.watch.last_begun(moment)
        yield what, "the last partition is over", bench.watch.last_over(moment)

    def resumed(what: str, act: Callable[[], None]) -> Iterator[Row]:
        moment = time.time()
        act()
        yield what, "the first partition runs", bench.first_after(moment)

    def clear() -> None:
        api.clear(dag_id, run_id)

    yield from stopped("kill switch set", lambda: api.set_variable(SWITCH, '{"all": true}'))
    assert api.wait_for_run(dag_id, run_id, timeout=PATIENCE) == "failed"
    api.set_variable(SWITCH, '{"all": false}')
    yield from resumed("switch lifted, failed tasks cleared", clear)
    yield from stopped("DAG paused", lambda: api.pause(dag_id))
    yield from resumed("DAG unpaused", lambda: api.pause(dag_id, False))
    yield from stopped("pool given 0 slots", lambda: api.set_pool(POOL, 0))
    yield from resumed("pool given its slots back", lambda: api.set_pool(POOL, 4))
    bench.warehouse.pace(0)
    assert api.wait_for_run(dag_id, run_id, timeout=PATIENCE) == "failed"  # the tasks that the pause stopped
    clear()
    if api.wait_for_run(dag_id, run_id, timeout=PATIENCE) != "success":
        raise SystemExit(api.failures(dag_id, run_id))
    ((corrected,),) = bench.warehouse.rows(
        "SELECT count(*) FROM analytics.orders AS t JOIN raw.orders AS s USING (order_id) WHERE t.amount = s.amount + 1"
    )
    assert corrected == 240, corrected


def approval(bench: Bench) -> Iterator[Row]:
    dag_id, api = "backfill__asked", bench.api
    bench.warehouse.pace(PACE)
    run_id = bench.trigger(dag_id, 30, 31)
    place = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/approve_plan/-1/hitlDetails"
    wait_until(
        lambda: api.task_states(dag_id, run_id).get("approve_plan") == "awaiting_input" or None,
        "the question", timeout=PATIENCE,
    )  # fmt: skip
    time.sleep(30)  # nobody answers at once, and LocalExecutor asks again then
    moment = time.time()
    api.request("PATCH", place, json={"chosen_options": ["Approve"], "params_input": {"note": ""}})
    runs = bench.first_after(moment)
    queued = datetime.fromisoformat(bench.task(dag_id, run_id)["queued_when"]).timestamp()
    yield "approval answered", "the first partition is enqueued", queued - moment
    yield "approval answered", "the first partition runs", runs
    assert api.wait_for_run(dag_id, run_id, timeout=PATIENCE) == "success", api.failures(dag_id, run_id)


def marked_failed(bench: Bench) -> Iterator[Row]:
    dag_id = "backfill__orders"
    bench.warehouse.pace(ENDLESS)
    run_id = bench.trigger(dag_id, 32, 33)
    bench.busy(1)
    moment = time.time()
    bench.end_task(dag_id, run_id)
    yield "task marked failed", "its statement is gone", bench.gone_after(moment)
    bench.end_run(dag_id, run_id)


def timed_out(bench: Bench) -> Iterator[Row]:
    dag_id = "backfill__timed"
    bench.warehouse.pace(ENDLESS)
    run_id = bench.trigger(dag_id, 34, 35)
    bench.busy(1)
    bench.gone_after(time.time())
    gone = max(bench.watch.seen.values())
    bench.end_run(dag_id, run_id)
    log = bench.api.request(
        "GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{STAGE}/logs/1", params={"map_index": 0, "full_content": "true"},
        headers={"accept": "application/json"},
    )  # fmt: skip
    over = next(event["timestamp"] for event in log["content"] if "timed out" in event["event"])
    yield (
        f"execution_timeout of {TIMEOUT} s over",
        "its statement is gone",
        gone - datetime.fromisoformat(over).timestamp(),
    )


def silent(bench: Bench) -> Iterator[Row]:
    """The worker is frozen: it neither works nor beats, and its statement goes on."""
    dag_id, api = "backfill__orders", bench.api
    bench.warehouse.pace(ENDLESS)
    run_id = bench.trigger(dag_id, 36, 37)
    bench.busy(1)
    found = backfill_id(dag_id, run_id)
    child = psutil.Process(int(bench.task(dag_id, run_id)["pid"]))
    worker = child.parent()
    assert worker is not None
    members = {process.pid for process in bench.airflow.processes("scheduler")}
    assert {child.pid, worker.pid} <= members
    moment = time.time()
    for process in (worker, child):
        process.send_signal(signal.SIGSTOP)
    try:
        wait_until(
            lambda: "no heartbeat since" in bench.airflow.cli("safe-backfill", "status", found) or None,
            "the silence", timeout=PATIENCE,
        )  # fmt: skip
        yield "worker frozen", "`status` says no heartbeat", time.time() - moment
        bench.end_task(dag_id, run_id)
        api.wait_for_run(dag_id, run_id, timeout=PATIENCE)
        moment = time.time()
        api.clear(dag_id, run_id)
        yield "its task marked failed and cleared", "another attempt runs its partition", bench.first_after(moment)
        ours = {pid for pid, begun in bench.warehouse.statements() if begun < moment}
        assert ours, "the frozen worker's statement runs beside that of the new attempt"
    finally:
        moment = time.time()
        for process in (child, worker):
            process.send_signal(signal.SIGCONT)
    wait_until(
        lambda: not ours & {pid for pid, _ in bench.warehouse.statements()} or None,
        "the late worker to end", timeout=PATIENCE, every=0.1,
    )  # fmt: skip
    yield "the frozen worker goes on", "its statement is gone", time.time() - moment
    bench.end_run(dag_id, run_id)


MEASURES = (stop_signals, approval, marked_failed, timed_out, silent)


@contextmanager
def _scheduler(warehouse: Warehouse) -> Iterator[LocalAirflow]:
    """Airflow with its own data on the same server, and settings that decide these seconds as they are installed."""
    dags, server = HOME / "stops-dags", warehouse.server
    shutil.rmtree(dags, ignore_errors=True)
    (dags / "backfills").mkdir(parents=True)
    (dags / "orders.sql").write_text(SQL)
    (dags / "stops.py").write_text(DAGS)
    for name, required in {"orders": "never", "asked": "always", "timed": "never"}.items():
        text = SPEC.format(name=name, required=required, per_task=PER_TASK)
        (dags / "backfills" / f"{name}.yaml").write_text(text)
    shutil.rmtree(HOME / "stops-airflow", ignore_errors=True)
    address = f"postgresql+psycopg2://{server.user}:{server.password}@127.0.0.1:{server.port}/airflow"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    airflow = LocalAirflow(
        HOME / "stops-airflow",
        dags,
        env={
            "PYTHONPATH": path,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": address,
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "5",
        },
    )
    airflow.migrate()
    with running(airflow, timeout=PATIENCE):
        airflow.cli("safe-backfill", "init", "--ledger", str(airflow.home / "ledger.db"))
        airflow.api.set_connection(
            "warehouse", "postgres", host="127.0.0.1", port=server.port, login=server.user, password=server.password,
            schema="shop",
        )  # fmt: skip
        for name in ("orders", "asked", "timed"):
            airflow.api.wait_for_dag(f"backfill__{name}", timeout=PATIENCE)
        yield airflow


def main() -> int:
    """Print the table, a line as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = {measure.__name__: measure for measure in MEASURES}
    parser.add_argument(
        "measurements", nargs="*", metavar="measurement", help=f"of {', '.join(known)}; all without one"
    )
    chosen = parser.parse_args().measurements or list(known)
    if unknown := set(chosen) - set(known):
        parser.error(f"unknown: {', '.join(unknown)}")
    warehouse = Warehouse()
    try:
        warehouse.start()
        with _scheduler(warehouse) as airflow:
            watch = Watch(warehouse)
            watch.start()
            bench = Bench(airflow, warehouse, watch)
            print(
                f"{WORKERS} cores; a partition takes {PACE} s, a task has {PER_TASK} of them, two tasks run at once\n"
            )
            print("| after | until | seconds |\n|---|---|---|", flush=True)
            try:
                for name in chosen:
                    for after, until, seconds in known[name](bench):
                        print(f"| {after} | {until} | {seconds:.1f} |", flush=True)
            finally:
                watch.stop()
    finally:
        warehouse.server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
