"""What the audit trail says of a backfill's moves: when it came to a state, who began its way back, and whether that has ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, WAY_BACK_EVENT


def last_move(events: Iterable[EventRecord], *to: BackfillState) -> EventRecord | None:
    """The last line that says that the backfill came to one of these states; None when it never did."""
    moves = (event for event in events if event.action == MOVED_EVENT and event.detail["to"] in to)
    return max(moves, key=lambda event: event.sequence, default=None)


def last_moved_at(events: Iterable[EventRecord], *to: BackfillState) -> datetime | None:
    """When the backfill last came to one of these states, in aware UTC; None when it never did."""
    move = last_move(events, *to)
    return None if move is None else move.at


def end_of_way_back(events: Iterable[EventRecord]) -> EventRecord | None:
    """The line that says that a completed backfill expired, its backup being dropped; None when that never happened.

    One that expired from another state was given up. What it published all the same can be rolled back.
    """
    move = last_move(events, BackfillState.EXPIRED)
    return move if move is not None and move.detail["from"] == BackfillState.COMPLETED else None


def way_back_begun(events: Iterable[EventRecord]) -> str:
    """Who began the last way back, and who went on with it, each with the time: any of them may still work on one that is not over."""
    attempts = [event for event in events if event.action == WAY_BACK_EVENT]
    first = max((number for number, one in enumerate(attempts) if not one.detail.get("again")), default=0)
    return ", ".join(f"by {one.by} on {one.at:%Y-%m-%dT%H:%M:%SZ}" for one in attempts[first:])
