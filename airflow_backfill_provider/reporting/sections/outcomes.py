"""What became of each partition, as a strip in the plan's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.reporting.facts import Facts, Line
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.windows import describe

BLOCKS = 60
"""Blocks of the strip at most."""
SHOWN = 20
"""Partitions listed with the reason why they are not done, and partitions left out."""
_P = PartitionState
_WORST_FIRST = (
    _P.REJECTED,
    _P.PENDING,
    _P.STAGING,
    _P.STAGED,
    _P.SKIPPED,
    _P.ROLLED_BACK,
    _P.VALIDATED,
    _P.PUBLISHED,
)


@dataclass(frozen=True)
class Block:
    """Partitions that lie side by side."""

    label: str
    """First and last key."""
    partitions: int
    state: PartitionState
    """Of all of them, or the worst."""
    of_state: int


def outcomes(facts: Facts) -> Section:
    """The strip, the counts behind it, and why a partition is not done."""
    unfinished = [line for line in facts.lines if line.record.reason and line.state in _WORST_FIRST[:5]]
    content = {
        "counts": facts.counts,
        "blocks": list(_blocks(facts.lines)),
        "partitions": len(facts.lines),
        "unfinished": unfinished[:SHOWN],
        "unfinished_left_out": len(unfinished[SHOWN:]),
        "skipped": facts.plan.skipped[:SHOWN],
        "skipped_left_out": len(facts.plan.skipped[SHOWN:]),
    }
    return Section("outcomes", "Outcome of each partition", content)


def _blocks(lines: Sequence[Line]) -> Iterator[Block]:
    """A block for each run of one outcome; when those are too many, stretches of one length by their worst one."""
    runs = [list(run) for _, run in groupby(lines, key=lambda line: line.state)]
    if len(runs) > BLOCKS:
        bounds = [block * len(lines) // BLOCKS for block in range(BLOCKS + 1)]
        runs = [list(lines[first:end]) for first, end in pairwise(bounds)]
    for run in runs:
        found = Counter(line.state for line in run)
        worst = min(found, key=_WORST_FIRST.index)
        yield Block(describe([line.partition for line in run]), len(run), worst, found[worst])
