"""The audit trail and the evidence: rows that are added and never changed but for being superseded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, or_, select, update

from airflow_backfill_provider.ledger.moves import batches
from airflow_backfill_provider.ledger.records import AirflowTask, EventRecord
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.tables import EventRow, EvidenceRow

MOVED_EVENT = "backfill.moved"
"""The backfill came to another state: ``from``, ``to`` and the ``reason``, as all moves of it are recorded; and the ``task``
that publishes from then on, where it came to that; and the name of the ``error`` that halted it."""
PARTITIONS_MOVED_EVENT = "partitions.moved"
"""Partitions came to another state: their ``keys``, how many came ``from`` which, and ``to`` which."""
REVISED_EVENT = "plan.revised"
"""A newer revision of the plan took the place of the one before."""
WAY_BACK_EVENT = "way_back.begun"
"""What was there before is put back from then on: by whom, of which ``spans``, and whether that is ``again`` of one that is not over."""

VALUES = "values"
"""Under this name a detail may hold values of rows, which no listing of the trail shows."""

RECEIPT_EVENT = "receipt"
"""What one commit to the target did: its ``action``, ``sequence``, ``mechanism``, and rows ``deleted`` and ``inserted``."""
WRITE_BLOCK_EVENT = "write_block"
"""A line of the audit trail: for how many ``seconds`` the commit of that ``sequence`` kept everybody else from writing, and
for how many it had waited for its lock."""
PUBLISH_FAILED_EVENT = "publish.failed"
"""A line of the audit trail: a publish that did not come to its end, by what ``mechanism`` and for which ``reason``."""


def add_event(
    connection: Connection, backfill_id: str, action: str, *, at: datetime, by: str, detail: Mapping[str, Any]
) -> None:
    """Write one line of the audit trail."""
    add_events(connection, backfill_id, action, at=at, by=by, details=[detail])


def add_events(
    connection: Connection,
    backfill_id: str,
    action: str,
    *,
    at: datetime,
    by: str,
    details: Sequence[Mapping[str, Any]],
) -> None:
    """Write one line of the audit trail for each detail."""
    common = {"backfill_id": backfill_id, "at": at, "action": action, "actor": by}
    connection.execute(insert(EventRow), [{**common, "detail": dict(detail)} for detail in details])


def read_events(connection: Connection, backfill_id: str, *actions: str) -> list[EventRecord]:
    """The trail of one backfill, oldest first; of these actions when any is given."""
    wanted = [EventRow.backfill_id == backfill_id, *([EventRow.action.in_(actions)] if actions else [])]
    rows = connection.execute(
        select(EventRow.sequence, EventRow.backfill_id, EventRow.at, EventRow.action, EventRow.actor, EventRow.detail)
        .where(*wanted)
        .order_by(EventRow.sequence)
    )
    return [EventRecord(*row) for row in rows]


def under_newest_plan(events: Sequence[EventRecord], action: str) -> list[EventRecord]:
    """The lines of this action since the plan was last revised; ``events`` are oldest first, and have the revisions.

    A revision may keep every hash: when all is staged again because what is outside the spec was mended.
    """
    revised = max((event.sequence for event in events if event.action == REVISED_EVENT), default=0)
    return [event for event in events if event.action == action and event.sequence > revised]


def read_last_events(connection: Connection, backfill_id: str, limit: int) -> list[EventRecord]:
    """The last lines of the trail of one backfill, oldest first."""
    rows = connection.execute(
        select(EventRow.sequence, EventRow.backfill_id, EventRow.at, EventRow.action, EventRow.actor, EventRow.detail)
        .where(EventRow.backfill_id == backfill_id)
        .order_by(EventRow.sequence.desc())
        .limit(limit)
    )
    return [EventRecord(*row) for row in rows][::-1]


def read_publishers(connection: Connection, backfill_id: str) -> list[AirflowTask | None]:
    """The task of each time it began to publish, oldest first; None where nobody named one."""
    moves = [event.detail for event in read_events(connection, backfill_id, MOVED_EVENT)]
    tasks = [detail.get("task") for detail in moves if detail["to"] == BackfillState.PUBLISHING]
    return [None if task is None else AirflowTask(**task) for task in tasks]


def last_sequence(connection: Connection, backfill_id: str) -> int:
    """The sequence of the newest line about a backfill; 0 when there is none."""
    return connection.scalar(select(func.max(EventRow.sequence)).where(EventRow.backfill_id == backfill_id)) or 0


def add_evidence(
    connection: Connection,
    backfill_id: str,
    evidence: Mapping[str | None, Sequence[Mapping[str, Any]]],
    *,
    revision: int,
    at: datetime,
    by: str,
) -> None:
    """Make these outcomes the current evidence of their keys (None: of the whole range)."""
    keys = [key for key in evidence if key is not None]
    if None in evidence:
        _supersede(connection, backfill_id, EvidenceRow.key.is_(None), at=at)
    for batch in batches(keys):
        _supersede(connection, backfill_id, EvidenceRow.key.in_(batch), at=at)
    rows = [
        {
            "backfill_id": backfill_id,
            "key": key,
            "revision": revision,
            "body": dict(outcome),
            "recorded_by": by,
            "recorded_at": at,
        }
        for key, outcomes in evidence.items()
        for outcome in outcomes
    ]
    if rows:
        connection.execute(insert(EvidenceRow), rows)


def supersede_evidence(connection: Connection, backfill_id: str, keys: Collection[str], *, at: datetime) -> None:
    """Retire the evidence of these partitions and, since it spans them, of the whole range."""
    for batch in [[], *batches(keys)]:
        _supersede(connection, backfill_id, or_(EvidenceRow.key.is_(None), EvidenceRow.key.in_(batch)), at=at)


def _supersede(connection: Connection, backfill_id: str, which: ColumnElement[bool], *, at: datetime) -> None:
    connection.execute(
        update(EvidenceRow)
        .where(EvidenceRow.backfill_id == backfill_id, which, EvidenceRow.superseded_at.is_(None))
        .values(superseded_at=at)
    )


def read_evidence(connection: Connection, backfill_id: str) -> dict[str | None, list[dict[str, Any]]]:
    """The current evidence by partition key, in the order recorded."""
    found: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    rows = connection.execute(
        select(EvidenceRow.key, EvidenceRow.body)
        .where(EvidenceRow.backfill_id == backfill_id, EvidenceRow.superseded_at.is_(None))
        .order_by(EvidenceRow.id)
    )
    for key, body in rows:
        found[key].append(body)
    return dict(found)
