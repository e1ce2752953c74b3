"""Some of the rows that differ: where they are kept, and their values when the spec asks for them here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.tables import Cell, Table
from airflow_backfill_provider.steps.samples import KeptSample, samples_in

SHOWN = 40
"""Rows listed of each sample."""
FILE = "samples.csv"


def samples(facts: Facts) -> Section | None:
    """Each sample that is kept; None when there is none."""
    kept = samples_in(facts.events, facts.plan)
    if not kept:
        return None
    content = {
        "samples": [
            {
                "sample": sample,
                "rows": [(row, _changed(sample, number)) for number, row in enumerate(sample.values[:SHOWN])],
            }
            for sample in kept
        ],
        "in_report": any(sample.values for sample in kept),
        "withheld": facts.plan.spec.target.sensitive,
        "shown": SHOWN,
        "file": FILE,
    }
    shown = [sample for sample in kept if sample.values]
    files = {FILE: Table(("key", "side", *shown[0].columns), _rows(shown))} if shown else {}
    return Section("samples", "Rows that differ", content, files)


def _changed(sample: KeptSample, number: int) -> list[bool]:
    """Which values of a new row are not those of the old row before it."""
    row, before = sample.values[number], sample.values[number - 1] if number else ()
    if not before or before[0] != row[0]:
        return [False] * len(row)
    return [position > 1 and value != before[position] for position, value in enumerate(row)]


def _rows(kept: Sequence[KeptSample]) -> Iterator[Sequence[Cell]]:
    for sample in kept:
        yield from sample.values
