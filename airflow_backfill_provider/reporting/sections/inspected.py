"""Where people may look before anything is computed or published, and who did."""

from __future__ import annotations

from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.steps.gates import not_needed


def inspected(facts: Facts) -> Section:
    """Each gate under the newest plan: who answered and when, or that nobody looked and why."""
    why = {
        Gate.PLAN: not_needed(facts.plan),
        Gate.REVIEW: "no review was asked for",
        Gate.PUBLISH: "approval.before_publish is false",
    }
    content = {
        "asked_for": facts.backfill.requested_by,
        "gates": [(one, "" if one.needed else why[one.gate]) for one in facts.inspections],
        "earlier": len([one for one in facts.approvals if one.question.revision != facts.backfill.revision]),
    }
    return Section("inspected", "Who looked", content)
