"""Who asked for it, why, and what was planned."""

from __future__ import annotations

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section


def request(facts: Facts) -> Section:
    """The request and the plan in short; ``plan.json`` beside the page is the whole of it."""
    plan = facts.plan
    content = {
        "backfill": facts.backfill,
        "plan": plan,
        "shown_eras": plan.eras[:5],
        "changed_columns": [str(one) for one in plan.schema_section if one.is_changed],
    }
    return Section("request", "Who asked, and what was planned", content)
