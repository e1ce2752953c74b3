"""What thousands of partitions cost beside their rows: planning, the ledger, XCom, and the text of statements.

A table of one row a partition in a DuckDB file, planned for real; then every partition goes through the ledger as a run
takes it, in the plan's own batches. Nothing is recomputed. Run it with ``make bench-size``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import psutil
from sqlalchemy import event

from airflow_backfill_provider.ledger.records import FinishedStage, NewBackfill, StoredPlan
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import build_plan
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.windows import merge

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 6, 1, tzinfo=UTC)
SIZES = [("10 days", "day", 10), ("380 days", "day", 380), ("3,182 days", "day", 3_182), ("8,760 hours", "hour", 8_760)]


@dataclass
class Measured:
    """One line of the table."""

    plan_seconds: float = 0.0
    plan_cpu: float = 0.0
    ledger_cpu: float = 0.0
    document: int = 0
    xcom: int = 0
    tasks: int = 0
    longest_statement: int = 0
    statements: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    memory: int = 0


def spec(grain: str) -> BackfillSpec:
    sql = (
        "SELECT id, moment FROM raw.a WHERE moment >= CAST('{{ data_interval_start | ts }}' AS TIMESTAMPTZ) "
        "AND moment < CAST('{{ data_interval_end | ts }}' AS TIMESTAMPTZ)"
    )
    return BackfillSpec.model_validate(
        {
            "name": "a",
            "target": {"table": "analytics.a", "partition_by": "moment", "key": ["id"], "grain": grain},
            "transform": {"sql": sql},
            "compute": {"conn_id": "c"},
            "source": {"table": "raw.a", "partition_by": "moment"},
        }
    )


def measure(folder: Path, grain: str, count: int) -> Measured:
    """Plan that many partitions and take them through the ledger."""
    found = Measured()
    step = timedelta(days=1) if grain == "day" else timedelta(hours=1)
    with duckdb.connect(str(folder / "w.duckdb")) as connection:
        for schema in ("raw", "analytics"):
            connection.execute(
                f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.a AS SELECT i AS id, TIMESTAMPTZ '2013-01-01 00:00:00+00' "
                f"+ i * INTERVAL '{step.total_seconds():.0f} seconds' AS moment FROM range({count}) AS t(i)"
            )
    warehouse = DuckDBWarehouse(folder / "w.duckdb")
    longest = _longest_statement()
    request = Request.from_conf(
        {"start_date": f"{FIRST:%Y-%m-%dT%H:%M}", "end_date": f"{FIRST + count * step:%Y-%m-%dT%H:%M}"}
    )
    began, cpu = time.perf_counter(), time.process_time()
    plan = build_plan(spec(grain), request, warehouse, backfill_id="0" * 12, now=NOW)
    batches = plan.batches()
    found.plan_seconds, found.plan_cpu = time.perf_counter() - began, time.process_time() - cpu
    found.longest_statement = longest()
    warehouse.close()
    assert len(plan.partitions) == count
    found.document = len(json.dumps(plan.document()))
    found.xcom = len(json.dumps([{"label": one.label, "keys": list(one.keys)} for one in batches]))
    found.tasks = len(batches)
    cpu = time.process_time()
    _ledger(folder, plan, [list(batch.keys) for batch in batches], found)
    found.ledger_cpu = time.process_time() - cpu
    found.memory = psutil.Process().memory_info().rss
    return found


def _longest_statement() -> Callable[[], int]:
    """The length of the longest statement that DuckDB is given from now on."""
    lengths: list[int] = []
    run = Session.run

    def noting(self: Session, sql: str) -> list[tuple[Any, ...]]:
        lengths.append(len(sql))
        return run(self, sql)

    Session.run = noting  # type: ignore[method-assign]

    def longest() -> int:
        Session.run = run  # type: ignore[method-assign]
        return max(lengths)

    return longest


def _ledger(folder: Path, plan: Plan, batches: list[list[str]], found: Measured) -> None:
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        ledger.upgrade()
        ledger.backfills()
        count = 0

        def one(*_: object) -> None:
            nonlocal count
            count += 1

        event.listen(ledger._engine._engine, "before_cursor_execute", one)

        def timed(name: str, call: Callable[[], Any]) -> Any:
            nonlocal count
            count, began = 0, time.perf_counter()
            result = call()
            found.statements[name] = count
            found.seconds[name] = time.perf_counter() - began
            return result

        stored = StoredPlan(1, plan.plan_hash, plan.intent_hash, plan.spec_hash, plan.document(), NOW)
        new = NewBackfill(
            plan.backfill_id, "a", "analytics.a", "", "backfill__a", "one", "c", "publish", "", "ann",
            plan.partitions, merge(plan.partitions), stored,
        )  # fmt: skip
        timed("open", lambda: ledger.open_backfill(new, by="ann"))
        attempts: dict[str, int] = {}
        timed(
            "stage",
            lambda: [attempts.update(ledger.start_staging(plan.backfill_id, keys, owner="ann")) for keys in batches],
        )
        done = {key: FinishedStage(key, 1, "stage", 1, "d", "m", 0.1) for key in plan.keys}
        timed(
            "staged",
            lambda: [
                ledger.finish_staging(plan.backfill_id, [done[key] for key in keys], by="ann") for keys in batches
            ],
        )
        evidence = {"kind": "row_diff_counts", "identical": 1, "changed": 0, "added": 0, "removed": 0}
        timed(
            "judge",
            lambda: [
                ledger.record_verdicts(
                    plan.backfill_id,
                    dict.fromkeys(keys, PartitionState.VALIDATED),
                    {key: [evidence] for key in keys},
                    attempts={key: attempts[key] for key in keys},
                    revision=1,
                    by="ann",
                )
                for keys in batches
            ],
        )
        timed(
            "publish", lambda: ledger.move_partitions(plan.backfill_id, plan.keys, PartitionState.PUBLISHED, by="ann")
        )


def main() -> int:
    """Print the table as docs/scaling.md has it."""
    print(
        "| partitions | plan | tasks | XCom | plan in the ledger | longest statement | ledger statements | ledger | memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, grain, count in SIZES:
        with TemporaryDirectory() as folder:
            found = measure(Path(folder), grain, count)
        print(
            f"| {name} | {found.plan_seconds:.1f} s ({found.plan_cpu:.1f} s of processor) | {found.tasks} | {found.xcom / 1000:,.0f} kB | {found.document / 1000:,.0f} kB | "
            f"{found.longest_statement:,} characters | {sum(found.statements.values())} "
            f"({', '.join(f'{what} {number}' for what, number in found.statements.items())}) | "
            f"{sum(found.seconds.values()):.1f} s ({found.ledger_cpu:.1f} s of processor) | {found.memory / 1e6:,.0f} MB |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
