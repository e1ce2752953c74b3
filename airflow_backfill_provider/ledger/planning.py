"""Opening a backfill and revising its plan, inside a transaction that someone else began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger import backfill_rows, partition_rows, range_locks, trail
from airflow_backfill_provider.ledger.records import NewBackfill, StoredPlan
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState


def open_backfill(connection: Connection, new: NewBackfill, *, at: datetime, by: str) -> None:
    """Add a planned backfill with its plan and pending partitions, and claim its range."""
    _check(new)
    range_locks.lock_target(connection, new.target)
    backfill_rows.insert_backfill(connection, new, at=at)
    partition_rows.insert_partitions(connection, new.backfill_id, new.partitions, at=at)
    range_locks.claim(connection, new.backfill_id, new.target, new.tenant, new.spans, at=at)
    range_locks.require_no_backfill(connection, new.backfill_id, new.target, new.tenant, new.claimed_later)
    detail = {
        "name": new.name,
        "target": new.target,
        "tenant": new.tenant,
        "mode": new.mode,
        "reason": new.reason,
        "requested_by": new.requested_by,
        "spans": [str(span) for span in range_locks.union(new.spans)],
        **(
            {"claimed_later": [str(span) for span in range_locks.union(new.claimed_later)]} if new.claimed_later else {}
        ),
        "partitions": len(new.partitions),
        **_hashes(new.plan),
    }
    trail.add_event(connection, new.backfill_id, "backfill.opened", at=at, by=by, detail=detail)


def revise_plan(
    connection: Connection,
    backfill_id: str,
    plan: StoredPlan,
    *,
    restage: Collection[str],
    revalidate: Collection[str],
    at: datetime,
    by: str,
    reason: str,
) -> int:
    """Add a plan revision and send the backfill and its partitions back to where that revision begins."""
    backfill = backfill_rows.lock(connection, backfill_id)
    replaced = backfill_rows.read_hashes(connection, backfill)
    revision = backfill.revision + 1
    backfill_rows.move(connection, backfill, BackfillState.PLANNED, at=at)
    backfill_rows.change(connection, backfill_id, at=at, revision=revision)
    backfill_rows.insert_plan(connection, backfill_id, revision, plan)
    restaged = partition_rows.move(connection, backfill_id, restage, PartitionState.PENDING, at=at, reason=reason)
    judged = [
        key
        for key, state in partition_rows.read_states(connection, backfill_id, revalidate).items()
        if state in (PartitionState.VALIDATED, PartitionState.REJECTED)
    ]
    partition_rows.move(connection, backfill_id, judged, PartitionState.STAGED, at=at, reason=reason)
    trail.supersede_evidence(connection, backfill_id, {*restage, *revalidate}, at=at)
    detail = {
        "reason": reason,
        "from": backfill.state.value,
        "revision": revision,
        **_hashes(plan),
        "replaces": replaced,
        "restage": list(restaged),
        "revalidate": judged,
    }
    trail.add_event(connection, backfill_id, trail.REVISED_EVENT, at=at, by=by, detail=detail)
    return revision


def _check(new: NewBackfill) -> None:
    if not new.partitions:
        raise LedgerError(f"Backfill {new.backfill_id!r} has no partition; a backfill of nothing is not opened.")
    key, times = Counter(partition.key for partition in new.partitions).most_common(1)[0]
    if times > 1:
        raise LedgerError(
            f"Backfill {new.backfill_id!r} names partition {key!r} {times} times; name each partition once."
        )
    unclaimed = range_locks.first_uncovered(
        range_locks.union([*new.spans, *new.claimed_later]), [partition.span for partition in new.partitions]
    )
    if unclaimed is not None:
        raise LedgerError(
            f"Backfill {new.backfill_id!r} has a partition {unclaimed}, which no span to claim covers; "
            "give spans that cover every partition."
        )


def _hashes(plan: StoredPlan) -> dict[str, str]:
    return {"plan_hash": plan.plan_hash, "intent_hash": plan.intent_hash, "spec_hash": plan.spec_hash}
