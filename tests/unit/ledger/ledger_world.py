"""Small ledgers to test with, and the steps that bring a subject into any state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update

from airflow_backfill_provider.ledger.records import FinishedStage, Gate, LiveRun, NewBackfill, Question, StoredPlan
from airflow_backfill_provider.ledger.states import BACKFILL_MOVES, BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.tables import BackfillRow, PartitionRow
from airflow_backfill_provider.windows import Grain, Partition, Window, merge, split

FIRST = datetime(2013, 2, 1, tzinfo=UTC)
TARGET = "analytics.fct_flights"
STAGE: dict[str, Any] = {"location": "stage-1", "rows": 10, "digest": "d", "method": "m", "seconds": 0.5}

B = BackfillState
P = PartitionState


def days(first: int, last: int) -> tuple[Partition, ...]:
    """Day partitions numbered from 2013-02-01, which is day 1; both ends included."""
    return split(FIRST + timedelta(days=first - 1), FIRST + timedelta(days=last), Grain.DAY)


def window(first: int, last: int) -> Window:
    return Window(FIRST + timedelta(days=first - 1), FIRST + timedelta(days=last))


def stored_plan(text: str = "v1") -> StoredPlan:
    return StoredPlan(
        revision=1,
        plan_hash=f"plan-{text}",
        intent_hash=f"intent-{text}",
        spec_hash=f"spec-{text}",
        document={"text": text, "nested": {"zero": 0, "null": None}},
        created_at=FIRST,
    )


def new_backfill(
    backfill_id: str = "bf1",
    partitions: Sequence[Partition] | None = None,
    spans: Sequence[Window] | None = None,
    **changes: Any,
) -> NewBackfill:
    chosen = days(1, 3) if partitions is None else partitions
    new = NewBackfill(
        backfill_id=backfill_id,
        name="fct_flights",
        target=TARGET,
        tenant="",
        dag_id="backfill__fct_flights",
        run_id=f"manual__{backfill_id}",
        conn_id="warehouse",
        mode="publish",
        reason="cancelled flights looked punctual",
        requested_by="ana",
        partitions=chosen,
        spans=merge(chosen) if spans is None else spans,
        plan=stored_plan(),
    )
    return replace(new, **changes)


def open_backfill(ledger: Ledger, backfill_id: str = "bf1", first: int = 1, last: int = 3, **changes: Any) -> str:
    ledger.open_backfill(new_backfill(backfill_id, days(first, last), **changes), by="ana")
    return backfill_id


def live_run(claim_id: str = "claim1", attempt: int = 1, run_id: str = "scheduled__2013-02-01") -> LiveRun:
    return LiveRun(claim_id, "flights_daily", run_id, "publish_day", attempt)


def question(
    gate: Gate = Gate.PLAN, content: str = "plan-v1", run_id: str = "manual__bf1", revision: int = 1
) -> Question:
    return Question(gate, content, revision, "May it?", "ana", run_id)


def bring_backfill_to(ledger: Ledger, backfill_id: str, wanted: BackfillState) -> None:
    """Walk the shortest path of allowed moves from planned."""
    paths: list[list[BackfillState]] = [[B.PLANNED]]
    for path in paths:
        if path[-1] is wanted:
            for state in path[1:]:
                ledger.move(backfill_id, state, by="test")
            return
        paths.extend([*path, following] for following in BACKFILL_MOVES[path[-1]] if following not in path)


def put_backfill_in(ledger: Ledger, backfill_id: str, state: BackfillState) -> None:
    """Write the state into the row, past every rule."""
    with ledger._engine.write() as connection:
        connection.execute(update(BackfillRow).where(BackfillRow.backfill_id == backfill_id).values(state=state))


def put_partition_in(ledger: Ledger, backfill_id: str, key: str, state: PartitionState) -> None:
    """Write the state into the row, past every rule; attempt 1 is the current one."""
    with ledger._engine.write() as connection:
        connection.execute(
            update(PartitionRow)
            .where(PartitionRow.backfill_id == backfill_id, PartitionRow.key == key)
            .values(state=state, attempt=1)
        )


def stage(ledger: Ledger, backfill_id: str, key: str, **changes: Any) -> int:
    attempt = ledger.start_staging(backfill_id, [key], owner="worker")[key]
    ledger.finish_staging(backfill_id, [FinishedStage(key, attempt, **{**STAGE, **changes})], by="worker")
    return attempt
