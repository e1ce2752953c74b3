"""Thousands of partitions: no statement text, no number of ledger statements and no XCom grows with them beyond what is said."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ledger_file import new_ledger
from sqlalchemy import event

from airflow_backfill_provider.ledger.records import FinishedStage, NewBackfill, StoredPlan
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import build_plan
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.warehouses.base import Column, Target
from airflow_backfill_provider.warehouses.clocks import UTC_DATE, UTC_TIMESTAMP, Clock
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT as DUCKDB
from airflow_backfill_provider.warehouses.memory import MemoryWarehouse
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT as POSTGRES
from airflow_backfill_provider.warehouses.relational.flags import Flags
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece, fingerprints, measures
from airflow_backfill_provider.windows import Grain, Partition, merge, split

NOW = datetime(2024, 6, 1, tzinfo=UTC)
FIRST = datetime(2013, 1, 1, tzinfo=UTC)


def windows(count: int, grain: Grain) -> tuple[Partition, ...]:
    step = timedelta(days=1) if grain is Grain.DAY else timedelta(hours=1)
    return split(FIRST, FIRST + count * step, grain)


def target(clock: Clock, kind: str) -> Target:
    columns = (Column("id", "BIGINT"), Column("at", kind), Column("amount", "BIGINT"))
    return Target("analytics.a", "at", clock, ("id",), columns)


@pytest.mark.parametrize("dialect", [DUCKDB, POSTGRES], ids=["duckdb", "postgres"])
@pytest.mark.parametrize(
    ("clock", "kind", "grain"), [(UTC_DATE, "DATE", Grain.DAY), (UTC_TIMESTAMP, "TIMESTAMP", Grain.HOUR)]
)
def test_a_statement_about_3000_partitions_is_as_long_as_one_about_10(
    dialect: object, clock: Clock, kind: str, grain: Grain
) -> None:
    def texts(count: int) -> list[str]:
        partitions = windows(count, grain)
        pieces = [Piece.of(dialect, target(clock, kind), "analytics.a", partitions)]  # type: ignore[arg-type]
        buckets = Buckets(partitions, pieces)
        metrics = [ROWS, Metric(MetricKind.SUM, ("amount",))]
        return [
            fingerprints(dialect, buckets, pieces, ["id", "at", "amount"]),  # type: ignore[arg-type]
            measures(buckets, pieces, metrics, Flags(dialect, metrics, {}, str)),  # type: ignore[arg-type]
        ]

    for short, long in zip(texts(10), texts(3_000), strict=True):
        assert abs(len(long) - len(short)) < 20
        assert len(long) < 2_000


def spec(grain: str) -> BackfillSpec:
    sql = "SELECT id, at FROM raw.a WHERE at >= '{{ data_interval_start }}' AND at < '{{ data_interval_end }}'"
    return BackfillSpec.model_validate(
        {
            "name": "a",
            "target": {"table": "analytics.a", "partition_by": "at", "key": ["id"], "grain": grain},
            "transform": {"sql": sql},
            "compute": {"conn_id": "c"},
        }
    )


def planned(count: int, grain: Grain) -> Plan:
    warehouse = MemoryWarehouse({name: {"id": "BIGINT", "at": "TIMESTAMP"} for name in ("analytics.a", "raw.a")})
    last = windows(count, grain)[-1]
    request = Request.from_conf({"start_date": "2013-01-01T00:00", "end_date": f"{last.window.end:%Y-%m-%dT%H:%M}"})
    return build_plan(spec(grain), request, warehouse, backfill_id="0" * 12, now=NOW)


@pytest.mark.parametrize(("count", "grain"), [(3_182, Grain.DAY), (8_760, Grain.HOUR)], ids=["days", "hours"])
def test_a_long_plan_is_made_in_seconds_of_the_processor_and_xcom_carries_its_keys_alone(
    count: int, grain: Grain
) -> None:
    began = time.process_time()
    plan = planned(count, grain)
    batches = plan.batches()
    assert time.process_time() - began < 5

    assert len(plan.partitions) == count
    assert len(batches) <= 1_024
    pushed = json.dumps([{"label": batch.label, "keys": list(batch.keys)} for batch in batches])
    assert "SELECT" not in pushed
    assert len(pushed) < 20 * count + 100 * len(batches)


class Counted:
    """How many statements a ledger runs."""

    def __init__(self, ledger: Ledger) -> None:
        self.count = 0
        event.listen(ledger._engine._engine, "before_cursor_execute", self._one)

    def _one(self, *_: object) -> None:
        self.count += 1

    def taken(self) -> int:
        count, self.count = self.count, 0
        return count


def test_the_ledger_takes_a_handful_of_statements_for_3000_partitions(tmp_path: Path) -> None:
    plan = planned(3_000, Grain.DAY)
    with Ledger(new_ledger(tmp_path)) as ledger:
        ledger.backfills()
        counted = Counted(ledger)
        ledger.open_backfill(opened(plan), by="ann")
        assert counted.taken() <= 20
        keys = list(plan.keys)
        attempts = ledger.start_staging(plan.backfill_id, keys, owner="ann")
        assert counted.taken() <= 20
        ledger.finish_staging(plan.backfill_id, finished(keys), by="ann")
        assert counted.taken() <= 20
        ledger.record_verdicts(
            plan.backfill_id,
            dict.fromkeys(keys, PartitionState.VALIDATED),
            {key: [{"kind": "x"}] for key in keys},
            attempts=attempts,
            revision=1,
            by="ann",
        )
        assert counted.taken() <= 30
        ledger.move_partitions(plan.backfill_id, keys, PartitionState.PUBLISHED, by="ann")
        assert counted.taken() <= 20
        assert ledger.counts(plan.backfill_id)[PartitionState.PUBLISHED] == 3_000


def opened(plan: Plan) -> NewBackfill:
    return NewBackfill(
        backfill_id=plan.backfill_id,
        name="a",
        target="analytics.a",
        tenant="",
        dag_id="backfill__a",
        run_id="one",
        conn_id="c",
        mode="publish",
        reason="",
        requested_by="ann",
        partitions=plan.partitions,
        spans=merge(plan.partitions),
        plan=StoredPlan(1, plan.plan_hash, plan.intent_hash, plan.spec_hash, plan.document(), NOW),
    )


def finished(keys: Sequence[str]) -> list[FinishedStage]:
    return [FinishedStage(key, 1, "stage", 1, "d", "m", 0.1) for key in keys]
