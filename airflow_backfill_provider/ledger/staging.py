"""Beginning and finishing the attempts at staging a partition, inside a transaction that someone else began."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, bindparam, update

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger import backfill_rows, trail
from airflow_backfill_provider.ledger.moves import apply_move, partitions_of
from airflow_backfill_provider.ledger.partition_rows import NOT_STAGED, read_partitions
from airflow_backfill_provider.ledger.records import FinishedStage, PartitionRecord
from airflow_backfill_provider.ledger.states import MAY_STAGE, PartitionState
from airflow_backfill_provider.ledger.tables import PartitionRow


def start(
    connection: Connection,
    backfill_id: str,
    keys: Collection[str],
    *,
    owner: str,
    intent: str | None,
    at: datetime,
) -> dict[str, int]:
    """Begin the next attempt at each partition and return its number by key; it fences every earlier one off."""
    backfill = backfill_rows.lock(connection, backfill_id)
    if backfill.state not in MAY_STAGE:
        raise LedgerError(
            f"{_named(keys)} cannot be staged: backfill {backfill_id!r} is {backfill.state.value!r}. "
            "Staging needs a backfill that has published nothing and is not publishing."
        )
    planned = backfill_rows.read_hashes(connection, backfill)["intent_hash"]
    if intent is not None and intent != planned:
        raise LedgerError(
            f"{_named(keys)} of backfill {backfill_id!r} cannot be staged under intent {intent!r}: plan "
            f"revision {backfill.revision} has intent {planned!r}. Clear the task to load that plan."
        )
    before = read_partitions(connection, backfill_id, keys)
    values = {
        **NOT_STAGED,
        "attempt": PartitionRow.attempt + 1,
        "owner": owner,
        "staged_intent": planned,
        "reason": "",
        "updated_at": at,
    }
    states = {key: record.state for key, record in before.items()}
    apply_move(connection, partitions_of(backfill_id), states, PartitionState.STAGING, values)
    trail.supersede_evidence(connection, backfill_id, keys, at=at)
    details = [
        {
            "key": key,
            "attempt": record.attempt + 1,
            "from": record.state.value,
            "revision": backfill.revision,
            "replaces": record.location,
        }
        for key, record in before.items()
    ]
    trail.add_events(connection, backfill_id, "partition.staging", at=at, by=owner, details=details)
    return {key: record.attempt + 1 for key, record in before.items()}


def finish(connection: Connection, backfill_id: str, stages: Sequence[FinishedStage], *, at: datetime, by: str) -> None:
    """Record the stages of attempts, if each of them still owns its partition."""
    backfill_rows.lock(connection, backfill_id)
    now = read_partitions(connection, backfill_id, [stage.key for stage in stages])
    for stage in stages:
        _require_owner(backfill_id, stage, now[stage.key])
    moved = {stage.key: now[stage.key].state for stage in stages}
    apply_move(connection, partitions_of(backfill_id), moved, PartitionState.STAGED, {"reason": "", "updated_at": at})
    values = ("location", "rows", "digest", "method", "seconds")
    connection.execute(
        update(PartitionRow)
        .where(PartitionRow.backfill_id == backfill_id, PartitionRow.key == bindparam("partition_key"))
        .values({name: bindparam(f"staged_{name}") for name in values}),
        [
            {"partition_key": stage.key} | {f"staged_{name}": getattr(stage, name) for name in values}
            for stage in stages
        ],
    )
    details = [asdict(stage) for stage in stages]
    trail.add_events(connection, backfill_id, "partition.staged", at=at, by=by, details=details)


def _require_owner(backfill_id: str, stage: FinishedStage, now: PartitionRecord) -> None:
    if now.attempt != stage.attempt:
        raise LedgerError(
            f"Attempt {stage.attempt} of partition {stage.key!r} of backfill {backfill_id!r} was overtaken: attempt "
            f"{now.attempt} by {now.owner!r} owns it now. The rows this attempt staged are not used; let the newer one "
            "go on."
        )
    if now.state is not PartitionState.STAGING:
        raise LedgerError(
            f"Attempt {stage.attempt} of partition {stage.key!r} of backfill {backfill_id!r} is not being staged any "
            f"more: the partition is {now.state.value!r}. The rows this attempt staged are not used; clear the task if "
            "the partition is still wanted."
        )


def _named(keys: Collection[str]) -> str:
    first = min(keys)
    return f"Partition {first!r}" + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")
