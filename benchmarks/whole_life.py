"""The whole life of a backfill, as a ratio to the bare statements on the same engine in the same run.

The table has 365 days of 27,000 rows (9.9 million). *Bare* is one ``CREATE TABLE AS`` of the corrected range and one
transaction of ``DELETE`` and ``INSERT``. *Ours* is scope, trial, stage (a statement per partition, in as many processes as
there are cores), checks, keyed comparison, backup, publish and verify, by the same step functions that the operators
call. Both start from the same tables; a file is closed at the end. Not counted: starting Airflow's task processes, and
making the ledger, which ``airflow safe-backfill init`` does once for all backfills.

With ``--evidence`` it is another question: what the evidence costs, as a ratio to the same backfill without it. *Without* has
no trial, control period, range evidence, checks, comparisons, report queries, samples and report; what is left is what no
backfill goes without: staging, the comparison by key, backup, publish and read back.

Run it with ``make bench``, ``make bench-evidence``, or ``python benchmarks/whole_life.py --engines postgres --days 180 --rounds 3``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import psutil
from engines import DAYS, ENGINES, FIRST, HOME, ROWS_PER_DAY, SELECT, WORKERS, Engine

ENGINE = os.environ.get("BENCH_ENGINE", "duckdb")
LEDGER = f"sqlite:///{HOME / 'ledger.db'}"
EVIDENCE = os.environ.get("BENCH_EVIDENCE", "some")
"""``none``, ``all``, or ``some``: what the bare statements are compared with."""
AT_MOST = 1.5
"""Of the time that the same backfill takes without evidence."""
CONTROL = 2
"""With ``all`` or ``none``, so many days before the range were right already; they are the control period."""
STEPS = [f"airflow_backfill_provider.steps.{name}" for name in ("stage", "validate")]
DIALECTS = {"delta": "duckdb", "duckdb": "duckdb", "postgres": "postgres"}


def bare(engine: Engine, place: str, days: int) -> dict[str, Any]:
    """The statements that a person would type."""
    started, cpu = time.perf_counter(), _cpu_seconds()
    engine.bare(place, days)
    return {"seconds": time.perf_counter() - started, "cpu": _cpu_seconds() - cpu}


def spec() -> Any:
    """The spec, with as much evidence as :data:`EVIDENCE` says."""
    from airflow_backfill_provider.spec.model import BackfillSpec

    bounds = (
        "WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'"
    )
    document: dict[str, Any] = {
        "name": "orders",
        "target": {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"]},
        "transform": {"sql": SELECT + bounds, "scope": os.environ["BENCH_SCOPE"]},
        "compute": {"conn_id": "bench", "max_concurrency": WORKERS},
    }
    some = {
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
    metric = {"column": "amount_minor", "aggregate": "avg"}
    whole = some | {
        "control_period": {"partitions": [str(FIRST + timedelta(days=day)) for day in range(CONTROL)]},
        "range": {"evidence": {"introduced_by": "a", "introduced_at": str(_first_day()), "metric": metric}},
        "report_queries": [
            {"name": "sum", "sql": "SELECT sum(amount_minor) FROM analytics.orders", "change_between": ["-30%", "0%"]}
        ],
        "samples": 20,
    }
    asked = {"none": {"trial": {"enabled": False}}, "some": some, "all": whole}
    return BackfillSpec.model_validate(document | asked[EVIDENCE])


def _first_day() -> date:
    return FIRST if EVIDENCE == "some" else FIRST + timedelta(days=CONTROL)


@contextmanager
def work(place: str, sharers: int = 1) -> Iterator[Any]:
    from airflow_backfill_provider.ledger.store import Ledger
    from airflow_backfill_provider.steps.work import Work

    warehouse = ENGINES[ENGINE]().open(place, sharers)
    try:
        with Ledger(LEDGER) as ledger:
            ledger.upgrade()
            yield Work(spec=spec(), backfill_id="0123456789ab", warehouse=warehouse, ledger=ledger, by="bench")
    finally:
        warehouse.close()


def ours(engine: Engine, place: str, days: int) -> dict[str, Any]:
    """The steps that the operators call, in the DAG's order."""
    from airflow_backfill_provider.ledger.store import Ledger
    from airflow_backfill_provider.reporting.documents import documents
    from airflow_backfill_provider.spec.request import Request
    from airflow_backfill_provider.steps.control_period import hold_control
    from airflow_backfill_provider.steps.publish import publish
    from airflow_backfill_provider.steps.report import conclude
    from airflow_backfill_provider.steps.scope import Run, scope
    from airflow_backfill_provider.steps.trial import try_partition
    from airflow_backfill_provider.steps.validate import validate_range

    phases: dict[str, float] = {}
    if EVIDENCE != "some":
        engine.bare(place, CONTROL)
    (HOME / "ledger.db").unlink(missing_ok=True)
    with Ledger(LEDGER) as ledger:
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
        with work(place) as here:
            request = Request(start_date=str(_first_day()), end_date=str(_first_day() + timedelta(days=days - 1)))
            scoped = timed("scope", lambda: scope(here, request, Run("bench", "bench", "bench")))
            timed("trial", lambda: try_partition(here))
            timed("control", lambda: hold_control(here))
            batches = [(place, list(batch.keys)) for batch in scoped.batches]
        timed("stage", lambda: list(pool.map(stage, batches)))
        timed("validate", lambda: list(pool.map(validate, batches)))
        with work(place) as here:
            timed("range", lambda: validate_range(here))
            with appending(engine, place) as waits:
                result = timed("publish", lambda: publish(here))
            timed("report", lambda: conclude(here))
            if EVIDENCE == "all":
                timed("page", lambda: documents(here.ledger, here.backfill_id))
        seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    assert result.published, result
    assert result.inserted == days * ROWS_PER_DAY, result
    return {"seconds": seconds, "cpu": cpu, "phases": phases, "waits": waits, "block": result.write_block_seconds}


@contextmanager
def appending(engine: Engine, place: str) -> Iterator[list[float]]:
    """A live pipeline that appends a row outside the range all the while, where there can be one; how long each took."""
    waits: list[float] = []
    done = threading.Event()

    def append() -> None:
        while not done.wait(0.05):
            started = time.perf_counter()
            engine.append(place)
            waits.append(time.perf_counter() - started)

    if engine.computes_here:
        yield waits
        return
    live = threading.Thread(target=append, daemon=True)
    live.start()
    try:
        yield waits
    finally:
        done.set()
        live.join()


def warm(_: int) -> None:
    """Import what a task imports, so that the clock counts work and not Python starting."""
    from airflow_backfill_provider.transform import prepare
    from airflow_backfill_provider.warehouses import KINDS
    from airflow_backfill_provider.windows import Grain, partition_at

    drawing = ["matplotlib.figure", "matplotlib.backends.backend_svg"] if EVIDENCE == "all" else []
    for module in (*STEPS, *drawing, KINDS[ENGINE].partition(":")[0]):
        import_module(module)
    prepare(spec(), partition_at(FIRST, Grain.DAY), DIALECTS[ENGINE])
    time.sleep(0.5)  # so that no process takes the others' share


def stage(batch: tuple[str, list[str]]) -> None:
    from airflow_backfill_provider.steps.stage import stage_batch

    with work(batch[0], WORKERS) as here:
        stage_batch(here, batch[1])


def validate(batch: tuple[str, list[str]]) -> None:
    from airflow_backfill_provider.steps.validate import validate_batch

    with work(batch[0], WORKERS) as here:
        validate_batch(here, batch[1])


def measure(
    engine: Engine, what: str, days: int, scope: str, *, memory: bool = False, evidence: str = "some"
) -> dict[str, Any]:
    """One run in a process tree of its own, from a fresh copy of the tables.

    Memory is watched in runs of its own: counting the pages of three processes every 20 ms costs them a core.
    """
    place = engine.fresh()
    before = engine.cpu_seconds()
    command = [sys.executable, __file__, "--child", what, "--place", place, "--days", str(days)]
    environment = os.environ | {
        "BENCH_SCOPE": scope,
        "BENCH_ENGINE": type(engine).__name__.lower(),
        "BENCH_EVIDENCE": evidence,
    }
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
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    result["peak"], result["tree"] = peak
    result["server"] = engine.cpu_seconds() - before
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
    parser.add_argument("--engines", nargs="+", default=["duckdb"], choices=sorted(ENGINES))
    parser.add_argument("--days", type=int, nargs="+", default=[30, 180, 365])
    parser.add_argument("--scopes", nargs="+", default=["partition", "range"], choices=["partition", "range"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evidence", action="store_true", help="what the evidence costs, instead")
    parser.add_argument("--child", choices=["bare", "ours"])
    parser.add_argument("--place")
    arguments = parser.parse_args()
    if arguments.child:
        run = {"bare": bare, "ours": ours}[arguments.child]
        print(json.dumps(run(ENGINES[ENGINE](), arguments.place, arguments.days[0])))
        return
    for name in arguments.engines:
        engine = ENGINES[name]()
        try:
            print(
                f"{engine.start()}, {WORKERS} cores, {DAYS * ROWS_PER_DAY:,} rows, {arguments.rounds} rounds, medians"
            )
            if arguments.evidence:
                ratios = [
                    report_evidence(engine, days, arguments.scopes[0], arguments.rounds) for days in arguments.days
                ]
                if max(ratios) > AT_MOST:
                    sys.exit(f"The evidence takes {max(ratios):.2f} times as long; the most it may be is {AT_MOST}.")
                continue
            print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; peak memory of the largest process, and of all together")
            print(
                f"{'days':>5} {'rows':>10} {'bare s':>7} {'ours s':>7} {'ratio':>6} {'min-max':>10} "
                f"{'bare MB':>8} {'ours MB':>8} {'ratio':>6} {'all MB':>7}"
            )
            for scope in arguments.scopes:
                print(f"transform.scope: {scope}")
                for days in arguments.days:
                    report(engine, days, scope, arguments.rounds)
        finally:
            engine.stop()


def report(engine: Engine, days: int, scope: str, rounds: int) -> None:
    """Measure one length of range and print its lines."""
    pairs = [(measure(engine, "bare", days, scope), measure(engine, "ours", days, scope)) for _ in range(rounds)]
    ratios = [b["seconds"] / a["seconds"] for a, b in pairs]
    middle = statistics.median
    old, new = middle(a["seconds"] for a, _ in pairs), middle(b["seconds"] for _, b in pairs)
    print(
        f"{days:>5} {days * ROWS_PER_DAY:>10,} {old:>7.2f} {new:>7.2f} {middle(ratios):>6.2f} "
        f"{min(ratios):>4.2f}-{max(ratios):<5.2f}",
        end="",
    )
    if engine.computes_here:
        watched = {what: measure(engine, what, days, scope, memory=True) for what in ("bare", "ours")}
        mem_old, mem_new, tree = watched["bare"]["peak"], watched["ours"]["peak"], watched["ours"]["tree"]
        print(f" {mem_old / 1e6:>8.0f} {mem_new / 1e6:>8.0f} {mem_new / mem_old:>6.2f} {tree / 1e6:>7.0f}", end="")
    print()
    phases = pairs[0][1]["phases"]
    mean = {name: middle(b["phases"][name] for _, b in pairs) for name in phases}
    print("      " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in mean.items()))
    if engine.computes_here:
        cpu = [middle(run["cpu"] for run in runs) for runs in zip(*pairs, strict=True)]
        print(f"      processor seconds {cpu[0]:.2f} and {cpu[1]:.2f}, ratio {cpu[1] / cpu[0]:.2f}", flush=True)
    else:
        longest = middle(max(b["waits"], default=0.0) for _, b in pairs)
        locked = middle(b["block"] for _, b in pairs)
        print(
            f"      the lock kept writers out for {locked:.2f} s; a live appender waited {longest:.2f} s at the longest"
        )
        cpu = [middle(run["server"] for run in runs) for runs in zip(*pairs, strict=True)]
        print(
            f"      processor seconds of the server {cpu[0]:.2f} and {cpu[1]:.2f}, ratio {cpu[1] / cpu[0]:.2f}",
            flush=True,
        )


def report_evidence(engine: Engine, days: int, scope: str, rounds: int) -> float:
    """Measure one length of range without evidence and with all of it, print its lines, and give their ratio."""
    pairs = [
        (measure(engine, "ours", days, scope, evidence="none"), measure(engine, "ours", days, scope, evidence="all"))
        for _ in range(rounds)
    ]
    ratios = [b["seconds"] / a["seconds"] for a, b in pairs]
    old, new = (statistics.median(run["seconds"] for run in runs) for runs in zip(*pairs, strict=True))
    print(
        f"{days:>5} days, {days * ROWS_PER_DAY:,} rows, scope {scope}: {old:.2f} s without evidence, {new:.2f} s with it, "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}); the most it may be is {AT_MOST}"
    )
    for name, runs in zip(("without", "with"), zip(*pairs, strict=True), strict=True):
        mean = {phase: statistics.median(run["phases"][phase] for run in runs) for phase in runs[0]["phases"]}
        print(f"      {name}: " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in mean.items()), flush=True)
    return statistics.median(ratios)


if __name__ == "__main__":
    main()
