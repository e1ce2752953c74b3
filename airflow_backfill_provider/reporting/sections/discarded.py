"""Rows that were left out because the table would refuse them, by partition and by constraint."""

from __future__ import annotations

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.steps.discarded import recorded_discarded, together

SHOWN = 25
"""Partitions that are listed."""


def discarded(facts: Facts) -> Section | None:
    """How many of each partition, the most first; None unless the spec leaves rows out."""
    if facts.plan.spec.schema_gate.mode != "discard_rows":
        return None
    counted = [(line.key, found) for line in facts.lines if (found := recorded_discarded(line.evidence)) is not None]
    some = sorted((one for one in counted if one[1].rows), key=lambda one: -one[1].rows)
    content = {
        "counted": len(counted),
        "total": together(found for _, found in counted),
        "limit": facts.plan.spec.schema_gate.max_discarded,
        "some": some[:SHOWN],
        "some_count": len(some),
    }
    return Section("discarded", "Rows left out", content)
