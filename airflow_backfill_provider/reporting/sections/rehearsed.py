"""What was rehearsed before the other partitions were computed: the trial."""

from __future__ import annotations

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.steps.tried import passed_in


def rehearsed(facts: Facts) -> Section:
    """The trial that passed under this very plan, or that none did."""
    content = {"trial": passed_in(facts.events, facts.plan), "before": facts.before}
    return Section("rehearsed", "What was rehearsed", content)
