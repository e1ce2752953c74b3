"""The whole life of a backfill on DuckDB, as a ratio to the bare statements in the same run.

The table has 365 days of 27,000 rows (9.9 million). *Bare* is one ``CREATE TABLE AS`` of the corrected range and one
transaction of ``DELETE`` and ``INSERT``. *Ours* is scope, stage (a statement per partition, in as many processes as
there are cores), checks, keyed comparison, backup, publish and verify, by the same step functions that the operators
call. Both start from the same file, both end with it closed. Not counted: starting Airflow's task processes, and making
the ledger, which ``airflow safe-backfill init`` does once for all backfills.

Run it with ``make bench``, or ``python benchmarks/whole_life.py --days 180 --rounds 3``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import psutil

HOME = Path(os.environ.get("BENCH_HOME", ".bench")).absolute()
FIRST, DAYS, ROWS_PER_DAY = date(2023, 1, 1), 365, 27_000
WORKERS = os.cpu_count() or 2
COLUMNS = "order_id, order_date, customer_id, amount_minor, discount, status, ordered_at"
SELECT = (
    "SELECT order_id, order_date, customer_id, CASE WHEN refunded THEN 0 ELSE amount_minor END AS amount_minor, "
    "discount, status, ordered_at FROM raw.orders "
)


def build(base: Path) -> None:
    """The warehouse that every round starts from."""
    base.parent.mkdir(parents=True, exist_ok=True)
    making = base.with_suffix(".making")
    making.unlink(missing_ok=True)
    with duckdb.connect(str(making)) as connection:
        connection.execute("CREATE SCHEMA raw")
        connection.execute("CREATE SCHEMA analytics")
        connection.execute(
            f"""
            CREATE TABLE raw.orders AS
            SELECT i AS order_id, DATE '{FIRST}' + CAST(i // {ROWS_PER_DAY} AS INTEGER) AS order_date,
                   (i * 7919) % 100000 AS customer_id, CAST((i * 104729) % 1000000 AS BIGINT) AS amount_minor,
                   CASE WHEN i % 13 = 0 THEN NULL ELSE CAST(i % 50 AS DOUBLE) END AS discount,
                   'status ' || (i % 5) AS status, TIMESTAMP '{FIRST}' + INTERVAL (i * 3) SECOND AS ordered_at,
                   i % 7 = 0 AS refunded
            FROM range({DAYS * ROWS_PER_DAY}) AS t (i)
            """
        )
        connection.execute(f"CREATE TABLE analytics.orders AS SELECT {COLUMNS} FROM raw.orders")
    making.rename(base)


def bare(path: Path, days: int) -> dict[str, Any]:
    """The statements that a person would type."""
    where = f"WHERE order_date >= DATE '{FIRST}' AND order_date < DATE '{FIRST + timedelta(days=days)}'"
    started, cpu = time.perf_counter(), _cpu_seconds()
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE TABLE analytics.orders_fixed AS {SELECT} {where}")
        connection.execute("BEGIN")
        connection.execute(f"DELETE FROM analytics.orders {where}")
        connection.execute("INSERT INTO analytics.orders BY NAME SELECT * FROM analytics.orders_fixed")
        connection.execute("COMMIT")
    return {"seconds": time.perf_counter() - started, "cpu": _cpu_seconds() - cpu}


def spec() -> Any:
    from airflow_backfill_provider.spec.model import BackfillSpec

    bounds = (
        "WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'"
    )
    return BackfillSpec.model_validate(
        {
            "name": "orders",
            "target": {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"]},
            "transform": {"sql": SELECT + bounds, "scope": os.environ["BENCH_SCOPE"]},
            "compute": {"conn_id": "bench", "max_concurrency": WORKERS},
            "source": {"table": "raw.orders", "partition_by": "order_date"},
            "checks": [
                {"not_null": {"column": "order_id"}},
                {"accepted_range": {"column": "amount_minor", "min_value": 0}},
            ],
            "compare": [
                {"row_count": {"against": "source", "max_abs_change": 0}},
                {"sum": {"column": "amount_minor", "change_between": ["-30%", "0%"]}},
                {"row_diff": {"max_added": 0, "max_removed": 0}},
            ],
        }
    )


@contextmanager
def work(path: Path, sharers: int = 1) -> Iterator[Any]:
    from airflow_backfill_provider.ledger.store import Ledger
    from airflow_backfill_provider.steps.work import Work
    from airflow_backfill_provider.warehouses import open_warehouse

    warehouse = open_warehouse("duckdb", path=str(path), sharers=sharers)
    try:
        with Ledger(ledger_url(path)) as ledger:
            ledger.upgrade()
            yield Work(spec=spec(), backfill_id="0123456789ab", warehouse=warehouse, ledger=ledger, by="bench")
    finally:
        warehouse.close()


def ledger_url(path: Path) -> str:
    return f"sqlite:///{path.with_suffix('.ledger')}"


def ours(path: Path, days: int) -> dict[str, Any]:
    """The steps that the operators call, in the DAG's order."""
    from airflow_backfill_provider.ledger.store import Ledger
    from airflow_backfill_provider.spec.request import Request
    from airflow_backfill_provider.steps.publish import publish
    from airflow_backfill_provider.steps.report import conclude
    from airflow_backfill_provider.steps.scope import Run, scope
    from airflow_backfill_provider.steps.validate import validate_range

    phases: dict[str, float] = {}
    with Ledger(ledger_url(path)) as ledger:
        ledger.upgrade()

    def timed(name: str, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = call()
        phases[name] = time.perf_counter() - started
        return result

    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        list(pool.map(warm, range(WORKERS * 4)))
        warm(0)
        started, cpu = time.perf_counter(), _cpu_seconds()
        with work(path) as here:
            request = Request(start_date=str(FIRST), end_date=str(FIRST + timedelta(days=days - 1)))
            scoped = timed("scope", lambda: scope(here, request, Run("bench", "bench", "bench")))
            batches = [(str(path), list(batch.keys)) for batch in scoped.batches]
        timed("stage", lambda: list(pool.map(stage, batches)))
        timed("validate", lambda: list(pool.map(validate, batches)))
        with work(path) as here:
            timed("range", lambda: validate_range(here))
            result = timed("publish", lambda: publish(here))
            timed("report", lambda: conclude(here))
        seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    assert result.published, result
    assert result.inserted == days * ROWS_PER_DAY, result
    return {"seconds": seconds, "cpu": cpu, "phases": phases}


def warm(_: int) -> None:
    """Import what a task imports, so that the clock counts work and not Python starting."""
    import airflow_backfill_provider.steps.validate
    import airflow_backfill_provider.warehouses.duckdb  # noqa: F401
    from airflow_backfill_provider.transform import prepare
    from airflow_backfill_provider.windows import Grain, partition_at

    prepare(spec(), partition_at(FIRST, Grain.DAY), "duckdb")
    time.sleep(0.05)


def stage(batch: tuple[str, list[str]]) -> None:
    from airflow_backfill_provider.steps.stage import stage_batch

    with work(Path(batch[0]), WORKERS) as here:
        stage_batch(here, batch[1])


def validate(batch: tuple[str, list[str]]) -> None:
    from airflow_backfill_provider.steps.validate import validate_batch

    with work(Path(batch[0]), WORKERS) as here:
        validate_batch(here, batch[1])


def measure(what: str, base: Path, days: int, scope: str, *, memory: bool = False) -> dict[str, Any]:
    """One run in a process tree of its own, from a fresh copy of the warehouse.

    Memory is watched in runs of its own: counting the pages of three processes every 20 ms costs them a core.
    """
    folder = HOME / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "warehouse.duckdb"
    shutil.copyfile(base, path)
    os.sync()
    command = [sys.executable, __file__, "--child", what, "--path", str(path), "--days", str(days)]
    environment = os.environ | {"BENCH_SCOPE": scope}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        peak = [0, 0]
        watcher = threading.Thread(target=_watch, args=(child.pid, peak), daemon=True)
        if memory:
            watcher.start()
        output, _ = child.communicate()
        if memory:
            watcher.join()
    if child.returncode:
        raise SystemExit(f"{what} at {days} days failed with status {child.returncode}")
    result = json.loads(output.splitlines()[-1])
    result["peak"], result["tree"] = peak
    shutil.rmtree(folder, ignore_errors=True)
    return result


def _watch(pid: int, peak: list[int]) -> None:
    """The most memory, in bytes, that one process of the tree holds, and that all of them hold at one time.

    Proportional set size: pages that processes share are counted once.
    """
    while True:
        try:
            root = psutil.Process(pid)
            sizes = [_pss(process) for process in (root, *root.children(recursive=True))]
        except psutil.Error:
            return
        if not sum(sizes):
            return
        peak[:] = max(peak[0], *sizes), max(peak[1], sum(sizes))
        time.sleep(0.02)


def _cpu_seconds() -> float:
    """Processor time of this process and its living children; hardly moved by what else runs on the machine."""
    root = psutil.Process()
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, OSError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, nargs="+", default=[30, 180, 365])
    parser.add_argument("--scopes", nargs="+", default=["partition", "range"], choices=["partition", "range"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=["bare", "ours"])
    parser.add_argument("--path", type=Path)
    arguments = parser.parse_args()
    if arguments.child:
        run = {"bare": bare, "ours": ours}[arguments.child]
        print(json.dumps(run(arguments.path, arguments.days[0])))
        return
    base = HOME / "base.duckdb"
    if not base.exists():
        build(base)
    print(
        f"DuckDB {duckdb.__version__}, {WORKERS} cores, {DAYS * ROWS_PER_DAY:,} rows, {arguments.rounds} rounds, medians"
    )
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; peak memory of the largest process, and of all together")
    print(
        f"{'days':>5} {'rows':>10} {'bare s':>7} {'ours s':>7} {'ratio':>6} {'min-max':>10} "
        f"{'bare MB':>8} {'ours MB':>8} {'ratio':>6} {'all MB':>7}"
    )
    for scope in arguments.scopes:
        print(f"transform.scope: {scope}")
        for days in arguments.days:
            report(base, days, scope, arguments.rounds)


def report(base: Path, days: int, scope: str, rounds: int) -> None:
    """Measure one length of range and print its lines."""
    pairs = [(measure("bare", base, days, scope), measure("ours", base, days, scope)) for _ in range(rounds)]
    ratios = [b["seconds"] / a["seconds"] for a, b in pairs]
    middle = statistics.median
    old, new = middle(a["seconds"] for a, _ in pairs), middle(b["seconds"] for _, b in pairs)
    watched = {what: measure(what, base, days, scope, memory=True) for what in ("bare", "ours")}
    mem_old, mem_new, tree = watched["bare"]["peak"], watched["ours"]["peak"], watched["ours"]["tree"]
    print(
        f"{days:>5} {days * ROWS_PER_DAY:>10,} {old:>7.2f} {new:>7.2f} {middle(ratios):>6.2f} "
        f"{min(ratios):>4.2f}-{max(ratios):<5.2f} {mem_old / 1e6:>8.0f} {mem_new / 1e6:>8.0f} {mem_new / mem_old:>6.2f} "
        f"{tree / 1e6:>7.0f}"
    )
    phases = pairs[0][1]["phases"]
    mean = {name: middle(b["phases"][name] for _, b in pairs) for name in phases}
    cpu = [middle(run["cpu"] for run in runs) for runs in zip(*pairs, strict=True)]
    print("      " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in mean.items()))
    print(f"      processor seconds {cpu[0]:.2f} and {cpu[1]:.2f}, ratio {cpu[1] / cpu[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
