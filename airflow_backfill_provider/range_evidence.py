"""The range against a number that the bug moved: where its level changes, and whether that is where the range ends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from airflow_backfill_provider.checks.level import find_step, level_of, metrics_of_level
from airflow_backfill_provider.errors import RequestError, SpecError
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.range_evidence import RangeEvidence
from airflow_backfill_provider.warehouses.base import Published, Target, Warehouse
from airflow_backfill_provider.windows import Partition, parse_start, partition_at

_TICK = timedelta(microseconds=1)


class Boundary(Frozen):
    """One end of the range: where the request says that it is, and where the number says so."""

    side: Literal["start", "end"]
    confirmed: str
    """The first or last partition of the range as it was asked for."""
    candidate: str | None
    """The first or last partition that has the level of the range; None where the number shows no clear change."""
    outside: float | None = None
    inside: float | None = None
    """The averages beyond the candidate, and within."""
    is_shown: bool = True
    """Whether enough numbers are known beyond this end to tell another level from noise."""

    @property
    def agrees(self) -> bool:
        """Whether both say the same, as far as anything can be said."""
        return not self.is_shown or self.candidate == self.confirmed

    def __str__(self) -> str:
        if not self.is_shown:
            return f"{self.side} {self.confirmed}; too few numbers are known beyond it to say anything"
        if self.candidate is None:
            return f"{self.side} {self.confirmed}; the number shows no clear change there"
        seen = "as the number says" if self.agrees else f"the number says {self.candidate}"
        return f"{self.side} {self.confirmed}, {seen}: {self.outside:.6g} beyond, {self.inside:.6g} within"


class Point(Frozen):
    """The number of one partition; None where it has no rows, or no value."""

    key: str
    value: float | None
    in_range: bool


class RangeFound(Frozen):
    """What was found when the plan was made."""

    points: tuple[Point, ...]
    """Of the range and the margin before and after it, in order."""
    boundaries: tuple[Boundary, ...]


def look_at_range(
    spec: BackfillSpec,
    warehouse: Warehouse,
    target: Target,
    partitions: Sequence[Partition],
    now: datetime,
) -> RangeFound | None:
    """Measure the number over the range and its margin, and find where its level changes; None without evidence to look at.

    At each end, the margin outside and as many partitions inside are looked at, so that one end does not hide the other.

    :raises SpecError: the number is none.
    """
    evidence = spec.range.evidence
    if evidence is None or not partitions:
        return None
    first, last = partitions[0], partitions[-1]
    inside = _between(spec, first, last)
    before, after = _beyond(spec, first, last, evidence.margin, now)
    series = [*before, *inside, *after]
    measured = warehouse.measure(target, Published(), series, [*metrics_of_level(evidence.metric), ROWS])
    try:
        values = [level_of(evidence.metric, measured[one.key]) for one in series]
    except ValueError as error:
        raise SpecError(f"range.evidence.metric: {error}. Take a column of numbers, or another aggregate.") from error
    near = min(len(inside), evidence.margin)
    start, end = len(before), len(before) + len(inside)
    least = min(2, len(inside))
    boundaries = (
        _boundary("start", first, series[: start + near], values[: start + near], least, values[:start]),
        _boundary("end", last, series[end - near :], values[end - near :], least, values[end:]),
    )
    points = tuple(
        Point(key=one.key, value=value, in_range=start <= place < end)
        for place, (one, value) in enumerate(zip(series, values, strict=True))
    )
    return RangeFound(points=points, boundaries=boundaries)


def range_cautions(spec: BackfillSpec, found: RangeFound | None, partitions: Sequence[Partition]) -> list[str]:
    """Where the range and its evidence disagree, a sentence each."""
    evidence = spec.range.evidence
    if evidence is None or found is None:
        return []
    cautions = _introduced(spec, evidence, partitions)
    keys = [point.key for point in found.points]
    for boundary in found.boundaries:
        if boundary.agrees:
            continue
        side, confirmed = boundary.side, boundary.confirmed
        if boundary.candidate is None:
            cautions.append(
                f"range.evidence: the {evidence.metric} shows no clear change near {confirmed}, where the range {side}s. Either the bug "
                "goes on beyond it, or this number does not show the bug."
            )
            continue
        apart = keys.index(boundary.candidate) - keys.index(confirmed)
        wider = (apart < 0) == (side == "start")
        cautions.append(
            f"range.evidence: the bug is {'wider' if wider else 'narrower'} than the range. The range {side}s with {confirmed}, and the "
            f"{evidence.metric} says {boundary.candidate}, {abs(apart)} partitions {'before' if apart < 0 else 'after'} it: "
            f"{boundary.outside:.6g} beyond, {boundary.inside:.6g} within."
        )
    return cautions


def _introduced(spec: BackfillSpec, evidence: RangeEvidence, partitions: Sequence[Partition]) -> list[str]:
    target, first = spec.target, partitions[0]
    began = partition_at(
        parse_start(evidence.introduced_at, target.grain, target.timezone), target.grain, target.timezone
    )
    if began == first:
        return []
    where = "after the bug began" if began < first else "before the bug began"
    return [
        f"range.evidence: the range starts with {first.key}, {where}: {evidence.introduced_by} is from {evidence.introduced_at} on."
    ]


def _boundary(
    side: Literal["start", "end"],
    confirmed: Partition,
    series: Sequence[Partition],
    values: Sequence[float | None],
    least: int,
    beyond: Sequence[float | None],
) -> Boundary:
    known = sum(value is not None for value in beyond)
    step = find_step(values, least) if known else None
    if step is None:
        # A single number beyond an end never makes a clear change, however far off it is.
        return Boundary(side=side, confirmed=confirmed.key, candidate=None, is_shown=known >= least)
    if side == "start":
        place, outside, inside = step.place, step.before, step.after
    else:
        place, outside, inside = step.place - 1, step.after, step.before
    return Boundary(side=side, confirmed=confirmed.key, candidate=series[place].key, outside=outside, inside=inside)


def _between(spec: BackfillSpec, first: Partition, last: Partition) -> list[Partition]:
    """Every partition from the first to the last, also those that are left out of the plan."""
    found = [first]
    while found[-1] < last:
        found.append(partition_at(found[-1].window.end, spec.target.grain, spec.target.timezone))
    return found


def _beyond(
    spec: BackfillSpec, first: Partition, last: Partition, margin: int, now: datetime
) -> tuple[list[Partition], list[Partition]]:
    """As many partitions before and after as the calendar has, and as are over."""
    target = spec.target
    before, after = [first], [last]
    with suppress(RequestError, OverflowError):  # the calendar begins here
        for _ in range(margin):
            before.append(partition_at(before[-1].window.start - _TICK, target.grain, target.timezone))
    with suppress(RequestError):  # or ends here
        for _ in range(margin):
            one = partition_at(after[-1].window.end, target.grain, target.timezone)
            if not one.is_over(now):
                break
            after.append(one)
    return before[:0:-1], after[1:]
