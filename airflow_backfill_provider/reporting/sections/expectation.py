"""What was expected of the partitions: where it changed and should not have, and where it should have and did not."""

from __future__ import annotations

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.steps.expectation import in_what_alone

SHOWN = 25
"""Partitions of each kind that are listed."""


def expected(facts: Facts) -> Section:
    """Both lists."""
    found = facts.expectation
    content = {
        "compared": len(facts.compared),
        "changed": found.changed[:SHOWN],
        "changed_count": len(found.changed),
        "identical": found.identical[:SHOWN],
        "identical_count": len(found.identical),
        "alone": found.alone[:SHOWN],
        "alone_count": len(found.alone),
        "in_what": in_what_alone(facts.plan),
    }
    return Section("expectation", "Expected and found", content)
