"""Partitions that the bug did not affect: what the new SQL makes of them, against what is published."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.tables import Cell, Table

SHOWN = 50
"""Control partitions listed, those that moved first."""
FILE = "control_period.csv"


def control_period(facts: Facts) -> Section:
    """Each control partition, those that moved first."""
    period = facts.plan.spec.control_period
    found = sorted(facts.control.items(), key=lambda one: (one[1] is None or one[1].held, one[1] is not None))
    content = {
        "controls": found[:SHOWN],
        "count": len(found),
        "held": sum(control is not None and control.held for _, control in found),
        "moved": sum(control is not None and not control.held for _, control in found),
        "before": facts.before.good if facts.before else None,
        "held_before": sorted(facts.before.held.intersection(facts.control)) if facts.before else [],
        "tolerance": {name: str(limit) for name, limit in period.tolerance.items()} if period else {},
        "file": FILE,
    }
    header = ("partition", "outcome", "rows_old", "rows_new", "identical", "changed", "added", "removed", "columns")
    return Section("control_period", "Control period", content, {FILE: Table(header, _rows(facts))})


def _rows(facts: Facts) -> Iterator[list[Cell]]:
    for key, control in facts.control.items():
        if control is None:
            yield [key, "not computed", facts.plan.control[key].rows, *[None] * 6]
        else:
            counts = (control.identical, control.changed, control.added, control.removed)
            yield [
                key,
                "as published" if control.held else "moved",
                control.rows_old,
                control.rows_new,
                *([None] * 4 if control.unmatched else counts),
                ", ".join(f"{name}: {rows}" for name, rows in control.columns.items()),
            ]
