"""The one function that changes a state, and the two kinds of subject that have one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, select, true, update
from sqlalchemy.orm import InstrumentedAttribute

from airflow_backfill_provider.errors import TransitionRefused
from airflow_backfill_provider.ledger.states import BACKFILL_MOVES, PARTITION_MOVES
from airflow_backfill_provider.ledger.tables import BackfillRow, PartitionRow

_BATCH = 1_000


@dataclass(frozen=True)
class Subjects:
    """Rows of one table that have a state: how to find them, what they may do, what to call them."""

    table: type[BackfillRow] | type[PartitionRow]
    key: InstrumentedAttribute[str]
    state: InstrumentedAttribute[Any]
    within: ColumnElement[bool]
    moves: Mapping[Any, Mapping[Any, str]]
    name: Callable[[str], str]


def backfills() -> Subjects:
    """Every backfill, by its id."""
    return Subjects(
        BackfillRow, BackfillRow.backfill_id, BackfillRow.state, true(), BACKFILL_MOVES, lambda key: f"Backfill {key!r}"
    )


def partitions_of(backfill_id: str) -> Subjects:
    """The partitions of one backfill, by key."""
    return Subjects(
        PartitionRow,
        PartitionRow.key,
        PartitionRow.state,
        PartitionRow.backfill_id == backfill_id,
        PARTITION_MOVES,
        lambda key: f"Partition {key!r} of backfill {backfill_id!r}",
    )


def apply_move(
    connection: Connection, subjects: Subjects, current: Mapping[str, StrEnum], to: StrEnum, values: Mapping[str, Any]
) -> None:
    """Move every subject of ``current`` (key to the state it was read in) to ``to`` and set ``values``; all or none.

    :raises TransitionRefused: a move is not in the table, or someone else moved a subject since it was read. The
        caller's transaction must be rolled back.
    """
    by_state: dict[StrEnum, list[str]] = defaultdict(list)
    for key, state in current.items():
        by_state[state].append(key)
    refused = [key for key, state in current.items() if to not in subjects.moves[state]]
    if refused:
        raise _refusal(subjects, current, refused, to)
    for state, keys in by_state.items():
        for batch in batches(keys):
            moved = connection.execute(
                update(subjects.table)
                .where(subjects.within, subjects.key.in_(batch), subjects.state == state)
                .values(state=to, **values)
            )
            if moved.rowcount != len(batch):
                raise _overtaken(connection, subjects, state, batch, to)


def batches(keys: Collection[str]) -> Iterator[Sequence[str]]:
    """The keys in pieces that every engine takes as parameters of one statement."""
    ordered = list(keys)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]


def _refusal(
    subjects: Subjects, current: Mapping[str, StrEnum], refused: Sequence[str], to: StrEnum
) -> TransitionRefused:
    first = min(refused)
    others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return TransitionRefused(subjects.name(first) + others, current[first].value, to.value)


def _overtaken(
    connection: Connection, subjects: Subjects, state: StrEnum, keys: Sequence[str], to: StrEnum
) -> TransitionRefused:
    found: dict[str, StrEnum] = {
        key: now
        for key, now in connection.execute(
            select(subjects.key, subjects.state).where(subjects.within, subjects.key.in_(keys))
        )
        if now is not state
    }
    found = found or {keys[0]: state}
    return _refusal(subjects, found, list(found), to)
