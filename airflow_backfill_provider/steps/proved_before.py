"""What was proved when a table was last backfilled well: what the next backfill of it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_backfill_provider.errors import PlanUnreadable
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.controlled import compared_in
from airflow_backfill_provider.steps.last_good import GoodBackfill, good_backfills
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.tried import Trial, passed_in


@dataclass(frozen=True)
class Proof:
    """Of the last good backfill of the table."""

    good: GoodBackfill
    trial: Trial | None
    """None when none passed under its plan."""
    held: frozenset[str]
    """The control partitions that came out as they were published."""


def proved_before(ledger: Ledger, plan: Plan, *, before: datetime | None = None) -> Proof | None:
    """What the last good backfill of the plan's table proved; None when there is none, or its plan cannot be read.

    :param before: leaves out those that were completed from this aware instant on.
    """
    for good in good_backfills(ledger, plan, before=before)[:1]:
        try:
            its_plan = stored_plan(ledger, good.backfill_id)
        except PlanUnreadable:
            return None
        events = ledger.events(good.backfill_id)
        held = frozenset(key for key, control in compared_in(events, its_plan).items() if control.held)
        return Proof(good, passed_in(events, its_plan), held)
    return None
