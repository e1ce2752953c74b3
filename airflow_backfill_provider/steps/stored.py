"""The plan of a backfill as the ledger has it, with what became known of its live partitions since it was made."""

from __future__ import annotations

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import LiveReading, Plan

LIVE_EVENT = "live.read"
"""The line of the audit trail that holds a reading of live partitions, and the plan revision it was made under."""


def stored_plan(ledger: Ledger, backfill_id: str) -> Plan:
    """The newest revision of the plan, with the newest facts of each of its live partitions.

    :raises PlanUnreadable: another version of the provider wrote it.
    """
    stored = ledger.plan(backfill_id)
    plan = Plan.from_document(stored.document)
    if plan.live:
        for event in ledger.events(backfill_id, LIVE_EVENT):
            if event.detail["revision"] == stored.revision:
                plan = plan.with_live(LiveReading.model_validate(event.detail["reading"]))
    return plan
