"""Beginning and finishing the attempts at staging a partition, inside a transaction that someone else began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger import backfill_rows, trail
from airflow_backfill_provider.ledger.moves import apply_move, partitions_of
from airflow_backfill_provider.ledger.partition_rows import NOT_STAGED, read_partitions
from airflow_backfill_provider.ledger.states import MAY_STAGE, PartitionState


@dataclass(frozen=True)
class Stage:
    """What one attempt staged."""

    location: str
    rows: int
    digest: str
    method: str
    seconds: float


def start(connection: Connection, backfill_id: str, key: str, *, owner: str, intent: str | None, at: datetime) -> int:
    """Begin the next attempt and return its number; it fences every earlier one off."""
    backfill = backfill_rows.lock(connection, backfill_id)
    if backfill.state not in MAY_STAGE:
        raise LedgerError(
            f"Partition {key!r} cannot be staged: backfill {backfill_id!r} is {backfill.state.value!r}. "
            "Staging needs a backfill that has published nothing and is not publishing."
        )
    planned = backfill_rows.read_hashes(connection, backfill)["intent_hash"]
    if intent is not None and intent != planned:
        raise LedgerError(
            f"Partition {key!r} of backfill {backfill_id!r} cannot be staged under intent {intent!r}: plan "
            f"revision {backfill.revision} has intent {planned!r}. Clear the task to load that plan."
        )
    before = read_partitions(connection, backfill_id, [key])[key]
    attempt = before.attempt + 1
    values = {
        **NOT_STAGED,
        "attempt": attempt,
        "owner": owner,
        "staged_intent": planned,
        "reason": "",
        "updated_at": at,
    }
    apply_move(connection, partitions_of(backfill_id), {key: before.state}, PartitionState.STAGING, values)
    trail.supersede_evidence(connection, backfill_id, [key], at=at)
    detail = {
        "key": key,
        "attempt": attempt,
        "from": before.state.value,
        "revision": backfill.revision,
        "replaces": before.location,
    }
    trail.add_event(connection, backfill_id, "partition.staging", at=at, by=owner, detail=detail)
    return attempt


def finish(
    connection: Connection, backfill_id: str, key: str, stage: Stage, *, attempt: int, at: datetime, by: str
) -> None:
    """Record the stage of an attempt, if that attempt still owns the partition."""
    backfill_rows.lock(connection, backfill_id)
    now = read_partitions(connection, backfill_id, [key])[key]
    if now.attempt != attempt:
        raise LedgerError(
            f"Attempt {attempt} of partition {key!r} of backfill {backfill_id!r} was overtaken: attempt {now.attempt} "
            f"by {now.owner!r} owns it now. The rows this attempt staged are not used; let the newer one go on."
        )
    if now.state is not PartitionState.STAGING:
        raise LedgerError(
            f"Attempt {attempt} of partition {key!r} of backfill {backfill_id!r} is not being staged any more: the "
            f"partition is {now.state.value!r}. The rows this attempt staged are not used; clear the task if the "
            "partition is still wanted."
        )
    values = asdict(stage)
    apply_move(
        connection,
        partitions_of(backfill_id),
        {key: now.state},
        PartitionState.STAGED,
        {**values, "reason": "", "updated_at": at},
    )
    detail: Mapping[str, object] = {"key": key, "attempt": attempt, **values}
    trail.add_event(connection, backfill_id, "partition.staged", at=at, by=by, detail=detail)
