"""The audit trail: who did what, when."""

from __future__ import annotations

import json
from collections.abc import Iterator

from airflow_backfill_provider.ledger import trail as audit
from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.tables import Cell, Table

SHOWN = 30
"""Moves of the backfill that the page lists, the last ones."""
FILE = "audit.csv"


def trail(facts: Facts) -> Section:
    """The moves of the backfill as a whole; the file has those of every partition as well."""
    moves = [_shown(event) for event in facts.events if event.action in _SHOWN_ACTIONS]
    content = {"moves": moves[-SHOWN:], "moves_left_out": len(moves[:-SHOWN]), "lines": len(facts.events), "file": FILE}
    header = ("sequence", "at", "action", "by", "detail")
    return Section("trail", "What happened", content, {FILE: Table(header, _rows(facts))})


_ABOUT_ANSWERS = frozenset({"approval.asked", "approval.decided", "approval.not_counted", "approval.not_required"})
_SHOWN_ACTIONS = frozenset(
    {
        "backfill.opened",
        audit.MOVED_EVENT,
        audit.REVISED_EVENT,
        "backup.recorded",
        audit.RECEIPT_EVENT,
        audit.WRITE_BLOCK_EVENT,
        audit.PUBLISH_FAILED_EVENT,
        *_ABOUT_ANSWERS,
    }
)


def _shown(event: EventRecord) -> dict[str, object]:
    detail = event.detail
    match event.action:
        case audit.MOVED_EVENT:
            what = f"{detail['from']} → {detail['to']}"
        case audit.RECEIPT_EVENT:
            done = {"rollback": "rolled back", "restore": "brought back what was overwritten"}
            what = f"{done.get(detail.get('action', ''), 'committed')}: {detail['deleted']:,} rows deleted, {detail['inserted']:,} inserted, by {detail.get('mechanism', 'a mechanism that was not recorded')}"
        case audit.WRITE_BLOCK_EVENT:
            what = f"waited {detail.get('waited_seconds', 0):.3f} s for the lock, and kept others from writing for {detail['seconds']:.3f} s"
        case "backup.recorded":
            what = f"backed up {detail['partitions']:,} partitions"
        case "approval.decided":
            what = f"{detail['gate']}: {detail['decision']} by {detail['decided_by']}"
        case other:
            what = other.replace(".", " ")
    return {"at": event.at, "what": what, "by": event.by, "reason": str(detail.get("reason") or "")}


def _rows(facts: Facts) -> Iterator[list[Cell]]:
    for one in facts.events:
        told = {name: value for name, value in one.detail.items() if name != audit.VALUES}
        yield [one.sequence, one.at, one.action, one.by, json.dumps(told, sort_keys=True, ensure_ascii=False)]
