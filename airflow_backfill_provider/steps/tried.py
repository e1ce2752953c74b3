"""What the trial of a plan found, as the audit trail keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import REVISED_EVENT, under_newest_plan
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
    rest_seconds: float | None = None
    """An estimate of how long it takes to compute the others, as many at once as the spec says; None when it is not known."""

    def __str__(self) -> str:
        rest = "" if self.rest_seconds is None else f"; the others take about {_spell(self.rest_seconds)} to compute"
        return f"{self.partition} computed twice alike; {self.rehearsal}{rest}"


def trial_of(ledger: Ledger, plan: Plan) -> Trial | None:
    """The trial that passed under this very plan; None when none did."""
    return passed_in(ledger.events(plan.backfill_id, TRIAL_EVENT, REVISED_EVENT), plan)


def passed_in(events: Sequence[EventRecord], plan: Plan) -> Trial | None:
    """The same from events that were read already, oldest first, revisions among them."""
    for event in reversed(under_newest_plan(events, TRIAL_EVENT)):
        if event.detail.get("plan_hash") == plan.plan_hash:
            detail: dict[str, Any] = dict(event.detail)
            rehearsal: dict[str, Any] = dict(detail.pop("rehearsal"))
            beside = tuple(rehearsal.pop("neighbours"))
            return Trial(**detail, rehearsal=Rehearsal(beside, **rehearsal))
    return None


def _spell(seconds: float) -> str:
    for unit, size in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
