"""Old against new of each partition: charts, the partitions that moved most, and all of them as a table."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from airflow_backfill_provider.reporting import charts, series
from airflow_backfill_provider.reporting.facts import Facts, Line
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.series import Series
from airflow_backfill_provider.reporting.tables import Cell, Table
from airflow_backfill_provider.windows import Window

SHOWN = 50
"""Partitions in the page's table."""
MEASURES_SHOWN = 3
"""Numbers of columns that the page draws and lists; the table has all of them."""
FILE = "old_vs_new.csv"


def old_and_new(facts: Facts) -> Section:
    """The numbers before and after."""
    rows, measures = series.rows(facts), series.measures(facts)
    shown = measures[:MEASURES_SHOWN]
    places = sorted(range(len(facts.lines)), key=lambda place: _least_first(place, facts, rows, measures), reverse=True)
    content = {
        "rows": rows,
        "totals": [rows, *shown],
        "measures": shown,
        "measures_left_out": len(measures) - len(shown),
        "charts": charts.drawn(facts, [*([rows] if rows.moves else []), *shown]),
        "charts_missing": not charts.available(),
        "movers": [
            {"line": facts.lines[place], "rows": rows.points[place], "measures": [one.points[place] for one in shown]}
            for place in places[:SHOWN]
        ],
        "partitions": len(facts.lines),
        "file": FILE,
    }
    return Section(
        "old_and_new", "Old and new", content, {FILE: Table(_header(measures), _rows(facts, rows, measures))}
    )


def _least_first(
    place: int, facts: Facts, rows: Series, measures: tuple[Series, ...]
) -> tuple[bool, int, Decimal, Decimal, int]:
    """Partitions whose rows could not be matched come last, so first in the page: what moved there is not known."""
    compared = facts.lines[place].compared
    differing = None if compared is None else compared.differing
    return (
        compared is not None and differing is None,
        differing or 0,
        rows.points[place].moved,
        max((one.points[place].moved for one in measures), default=Decimal(0)),
        -place,
    )


def _header(measures: tuple[Series, ...]) -> list[str]:
    names = ["partition", "start", "end", "outcome", "rows_old", "rows_new", "rows_delta"]
    names += ["identical", "changed", "added", "removed"]
    return names + [f"{one.name} {side}" for one in measures for side in ("old", "new", "delta")]


def _rows(facts: Facts, rows: Series, measures: tuple[Series, ...]) -> Iterator[list[Cell]]:
    for place, line in enumerate(facts.lines):
        row: list[Cell] = [line.key, *_bounds(line), str(line.state)]
        for pair in (one.points[place] for one in (rows, *measures)):
            row += [pair.old, pair.new, pair.delta]
            if len(row) == 7:
                compared = line.compared
                names = ("identical", "changed", "added", "removed")
                row += [None if compared is None else getattr(compared, name) for name in names]
        yield row


def _bounds(line: Line) -> list[Cell]:
    span = line.partition.span
    return [span.start, span.end] if isinstance(span, Window) else [None, None]
