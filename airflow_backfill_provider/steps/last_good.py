"""The last good backfills of a table: those that were completed and not rolled back, and what the ledger kept of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.moves import end_of_way_back, last_moved_at

LOOKED_AT = 50
"""How many backfills of the table are looked at, the newest ones; what none of them kept is told as the first."""


@dataclass(frozen=True)
class GoodBackfill:
    """One backfill whose rows are published as far as the ledger knows."""

    backfill_id: str
    completed_at: datetime

    def __str__(self) -> str:
        return f"backfill {self.backfill_id} of {self.completed_at:%Y-%m-%d}"


Kept = tuple[GoodBackfill, Sequence[Mapping[str, Any]]]
"""A backfill, and what it found of one partition."""


def good_backfills(ledger: Ledger, plan: Plan, *, before: datetime | None = None) -> list[GoodBackfill]:
    """Those of the plan's table in its warehouse, the last one completed first; without the plan's own.

    :param before: leaves out those that were completed from this aware instant on.
    """
    found = []
    for record in ledger.backfills(target=plan.target.table, limit=LOOKED_AT):
        if record.backfill_id == plan.backfill_id or record.conn_id != plan.spec.compute.conn_id:
            continue
        at = _completed_at(ledger, record)
        if at is not None and (before is None or at < before):
            found.append(GoodBackfill(record.backfill_id, at))
    return sorted(found, key=lambda one: one.completed_at, reverse=True)


def kept_last(ledger: Ledger, plan: Plan, keys: Collection[str]) -> dict[str, Kept]:
    """By partition, the last good backfill that held it, with what it found; without a key that none held."""
    found: dict[str, Kept] = {}
    for good in good_backfills(ledger, plan):
        missing = [key for key in keys if key not in found]
        if not missing:
            break
        evidence = ledger.evidence(good.backfill_id)
        found |= {key: (good, evidence[key]) for key in missing if key in evidence}
    return found


def _completed_at(ledger: Ledger, record: BackfillRecord) -> datetime | None:
    """When it was completed; None when it was not, or is not any more."""
    if record.state not in (BackfillState.COMPLETED, BackfillState.EXPIRED):
        return None
    moves = ledger.events(record.backfill_id, MOVED_EVENT)
    if record.state is BackfillState.EXPIRED and end_of_way_back(moves) is None:
        return None
    return last_moved_at(moves, BackfillState.COMPLETED)
