"""What a backfill waits for, and since when: a wait that is said aloud is no hang."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, WAY_BACK_EVENT
from airflow_backfill_provider.steps.moves import way_back_begun
from airflow_backfill_provider.steps.way_on import way_on


def since(ledger: Ledger, backfill: BackfillRecord) -> datetime:
    """When the backfill came to the state it is in."""
    moves = ledger.events(backfill.backfill_id, MOVED_EVENT)
    return max((event.at for event in moves if event.detail["to"] == backfill.state), default=backfill.created_at)


def waiting_lines(ledger: Ledger, backfill: BackfillRecord, now: datetime) -> list[str]:
    """The state and since when, whose answer is missing, and how it goes on."""
    began = since(ledger, backfill)
    lines = [f"  since       {backfill.state}, {began:%Y-%m-%d %H:%M} UTC ({lasting(now - began)})"]
    for approval in ledger.approvals(backfill.backfill_id):
        asked = approval.question
        if approval.decision is None and asked.revision == backfill.revision:
            lines.append(
                f"  asked       about the {asked.gate} on {approval.asked_at:%Y-%m-%d %H:%M} UTC ({lasting(now - approval.asked_at)}), "
                f"in run {asked.run_id}; nobody has answered"
            )
    if ledger.is_on_way_back(backfill.backfill_id):
        begun = way_back_begun(ledger.events(backfill.backfill_id, WAY_BACK_EVENT))
        lines.append(
            f"  way back    begun {begun} and not over: its range is kept until the rollback has run to its end"
        )
    return [*lines, f"  next        {way_on(ledger, backfill)}"]


def lasting(time: timedelta) -> str:
    """``3 days``, ``5 hours``, ``12 minutes`` or ``40 seconds``, rounded down."""
    seconds = max(int(time.total_seconds()), 0)
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}{'s' if seconds >= 2 * size else ''}"
    return f"{seconds} second{'s' if seconds != 1 else ''}"
