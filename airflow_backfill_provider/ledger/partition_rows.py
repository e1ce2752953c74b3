"""Rows of partitions, inside a transaction that someone else began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger.moves import apply_move, batches, partitions_of
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.spans import read_span, span_columns
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.tables import PartitionRow
from airflow_backfill_provider.ledger.trail import supersede_evidence
from airflow_backfill_provider.windows import Partition

NOT_STAGED: Mapping[str, None] = dict.fromkeys(
    ("location", "rows", "digest", "method", "staged_intent", "seconds"), None
)
"""Column values that say: nothing is staged."""


def insert_partitions(
    connection: Connection, backfill_id: str, partitions: Iterable[Partition], *, at: datetime
) -> None:
    """Add the partitions, all pending."""
    connection.execute(
        insert(PartitionRow),
        [
            {
                "backfill_id": backfill_id,
                "key": partition.key,
                **span_columns(partition.span),
                "state": PartitionState.PENDING,
                "attempt": 0,
                "reason": "",
                "updated_at": at,
            }
            for partition in partitions
        ],
    )


def read_partitions(
    connection: Connection, backfill_id: str, keys: Collection[str] | None = None
) -> dict[str, PartitionRecord]:
    """The partitions by key, in key order; all of them, or those asked for.

    :raises LedgerError: a key asked for is not one of this backfill's.
    """
    query = select(PartitionRow).where(PartitionRow.backfill_id == backfill_id)
    if keys is None:
        rows = list(connection.execute(query))
    else:
        rows = [row for batch in batches(keys) for row in connection.execute(query.where(PartitionRow.key.in_(batch)))]
    found = {row.key: _record(row) for row in rows}
    missing = sorted(set(keys or ()) - found.keys())
    if missing:
        raise _unknown(backfill_id, missing)
    return dict(sorted(found.items()))


def require_attempts(connection: Connection, backfill_id: str, attempts: Mapping[str, int]) -> None:
    """:raises LedgerError: a partition is not at this attempt any more."""
    now = read_partitions(connection, backfill_id, list(attempts))
    newer = [key for key, attempt in attempts.items() if now[key].attempt != attempt]
    if newer:
        raise LedgerError(
            f"{len(newer)} partitions of backfill {backfill_id!r} were staged again meanwhile ({', '.join(newer[:5])}). "
            "The verdict about their earlier rows was not recorded; clear the task to judge the newer ones."
        )


def read_states(connection: Connection, backfill_id: str, keys: Collection[str]) -> dict[str, PartitionState]:
    """The state of each partition, by key, in key order.

    :raises LedgerError: a key is not one of this backfill's.
    """
    query = select(PartitionRow.key, PartitionRow.state).where(PartitionRow.backfill_id == backfill_id)
    wanted = sorted(set(keys))
    found = {
        key: state
        for batch in batches(wanted)
        for key, state in connection.execute(query.where(PartitionRow.key.in_(batch)))
    }
    missing = [key for key in wanted if key not in found]
    if missing:
        raise _unknown(backfill_id, missing)
    return {key: found[key] for key in wanted}


def count_states(connection: Connection, backfill_id: str) -> Counter[PartitionState]:
    """How many partitions are in each state."""
    query = (
        select(PartitionRow.state, func.count())
        .where(PartitionRow.backfill_id == backfill_id)
        .group_by(PartitionRow.state)
    )
    return Counter({state: number for state, number in connection.execute(query)})


def staged_rows(connection: Connection, backfill_id: str) -> tuple[int, int]:
    """How many partitions have staged rows on record, and how many rows they are."""
    query = select(func.count(PartitionRow.rows), func.coalesce(func.sum(PartitionRow.rows), 0)).where(
        PartitionRow.backfill_id == backfill_id
    )
    partitions, rows = connection.execute(query).one()
    return partitions, int(rows or 0)


def move(
    connection: Connection, backfill_id: str, keys: Collection[str], to: PartitionState, *, at: datetime, reason: str
) -> dict[str, PartitionState]:
    """Move the partitions that are not there yet, all or none; returns what moved, with the state it left.

    Going back to pending or staged retires the evidence; pending forgets the stage as well.

    :raises TransitionRefused: a move is not allowed.
    :raises LedgerError: a key is unknown, or the move needs to say what was staged.
    """
    states = {key: state for key, state in read_states(connection, backfill_id, keys).items() if state is not to}
    if to is PartitionState.STAGING:
        raise LedgerError("A partition goes to 'staging' by start_staging, which numbers the attempt; call that.")
    if to is PartitionState.STAGED and PartitionState.STAGING in states.values():
        raise LedgerError("A partition goes from 'staging' to 'staged' by finish_staging, which records the stage.")
    values: dict[str, Any] = {"reason": reason, "updated_at": at}
    if to is PartitionState.PENDING:
        values |= {"owner": None, **NOT_STAGED}
    if states:
        apply_move(connection, partitions_of(backfill_id), states, to, values)
    if states and to in (PartitionState.PENDING, PartitionState.STAGED):
        supersede_evidence(connection, backfill_id, states, at=at)
    return states


def _unknown(backfill_id: str, missing: Collection[str]) -> LedgerError:
    shown = ", ".join(repr(key) for key in list(missing)[:5])
    return LedgerError(
        f"Backfill {backfill_id!r} has no partition {shown}{' …' if len(missing) > 5 else ''}. "
        f"`airflow safe-backfill status {backfill_id}` shows those it has."
    )


def _record(row: Row[Any]) -> PartitionRecord:
    values = {**row._mapping}
    del values["backfill_id"]
    span = read_span(values.pop("window_start"), values.pop("window_end"), values.pop("value"))
    return PartitionRecord(span=span, **values)
