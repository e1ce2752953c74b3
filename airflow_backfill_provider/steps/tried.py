"""What the trial of a plan found, as the audit trail keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.rehearsal import Rehearsal

TRIAL_EVENT = "trial_passed"


@dataclass(frozen=True)
class Trial:
    """What the trial of one plan found."""

    plan_hash: str
    partition: str
    rows: int
    """Staged rows of the partition."""
    rehearsal: Rehearsal

    def __str__(self) -> str:
        return f"{self.partition} computed twice alike; {self.rehearsal}"


def trial_of(ledger: Ledger, plan: Plan) -> Trial | None:
    """The trial that passed under this very plan; None when none did."""
    return passed_in(ledger.events(plan.backfill_id, TRIAL_EVENT), plan)


def passed_in(events: Sequence[EventRecord], plan: Plan) -> Trial | None:
    """The same from events that were read already, oldest first."""
    for event in reversed(events):
        if event.action == TRIAL_EVENT and event.detail.get("plan_hash") == plan.plan_hash:
            detail: dict[str, Any] = dict(event.detail)
            rehearsal: dict[str, Any] = dict(detail.pop("rehearsal"))
            beside = tuple(rehearsal.pop("neighbours"))
            return Trial(**detail, rehearsal=Rehearsal(beside, **rehearsal))
    return None
