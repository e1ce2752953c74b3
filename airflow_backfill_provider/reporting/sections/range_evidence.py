"""Which range, on what evidence: a number that the bug moved, drawn over the range and what lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from airflow_backfill_provider.reporting import charts
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.tables import Cell, Table

FILE = "range_evidence.csv"


def range_evidence(facts: Facts) -> Section:
    """The series with both ends of the range, and how many rows are affected."""
    plan = facts.plan
    evidence, found = plan.spec.range.evidence, plan.range_found
    content = {
        "evidence": evidence,
        "boundaries": found.boundaries if found is not None else (),
        "chart": charts.level(str(evidence.metric), found) if evidence is not None and found is not None else None,
        "affected_when": plan.spec.range.affected_when,
        "affected": sum(plan.affected.values()),
        "file": FILE,
    }
    return Section(
        "range_evidence", "Why this range", content, {FILE: Table(("partition", "in_range", "value"), _rows(facts))}
    )


def _rows(facts: Facts) -> Iterator[list[Cell]]:
    for point in facts.plan.range_found.points if facts.plan.range_found is not None else ():
        yield [
            point.key,
            "yes" if point.in_range else "no",
            None if point.value is None else Decimal(repr(point.value)),
        ]
