"""New rows against the rows of the source, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_backfill_provider.reporting.facts import Facts, Line
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.tables import Cell, Table
from airflow_backfill_provider.spec.metric import ROWS

SHOWN = 25
"""Partitions listed, those furthest from the source first."""
FILE = "reconciliation.csv"


@dataclass(frozen=True)
class Reconciled:
    """One partition; rows, None where they were not counted."""

    line: Line
    planned: int | None
    """Rows of the source when the plan was made."""
    judged: int | None
    """Rows of the source when the staged ones were judged; counted when the spec compares with the source."""

    @property
    def difference(self) -> int | None:
        """New rows less rows of the source, as last counted."""
        source = self.planned if self.judged is None else self.judged
        new = self.line.rows_new
        return None if source is None or new is None else new - source


def reconciliation(facts: Facts) -> Section:
    """Where target and source hold different numbers of rows. A transform that filters or joins differs on purpose."""
    source = facts.plan.spec.source
    found = [Reconciled(line, line.source_rows, line.measured("source").get(str(ROWS))) for line in facts.lines]
    apart = sorted((one for one in found if one.difference), key=lambda one: -abs(one.difference or 0))
    content = {
        "source": source.table if source else None,
        "arrived": facts.plan.arrived,
        "equal": sum(one.difference == 0 for one in found),
        "uncounted": sum(one.difference is None for one in found),
        "apart": apart[:SHOWN],
        "apart_count": len(apart),
        "file": FILE,
    }
    header = (
        "partition",
        "source_rows_at_plan",
        "source_rows_at_check",
        "rows_old",
        "rows_new",
        "rows_new_less_source",
    )
    rows = _rows(found) if source else ()
    return Section("reconciliation", "Reconciliation with the source", content, {FILE: Table(header, rows)})


def _rows(found: list[Reconciled]) -> Iterator[list[Cell]]:
    for one in found:
        yield [one.line.key, one.planned, one.judged, one.line.rows_old, one.line.rows_new, one.difference]
