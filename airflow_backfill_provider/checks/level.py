"""The level of a number from partition to partition, and where it changes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from airflow_backfill_provider.checks.change import quotient
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar
from airflow_backfill_provider.spec.range_evidence import Level

_KINDS = {
    "sum": MetricKind.SUM,
    "min": MetricKind.MIN,
    "max": MetricKind.MAX,
    "count_distinct": MetricKind.COUNT_DISTINCT,
}
CLEAR = 0.5
"""A change of level is believed when it explains at least this share of the variation."""


def metrics_of_level(level: Level) -> tuple[Metric, ...]:
    """What is measured of each partition."""
    if level.sql is not None:
        return Metric(MetricKind.ROWS, where=level.sql), ROWS
    column = (str(level.column),)
    match level.aggregate:
        case "avg":
            return Metric(MetricKind.SUM, column), Metric(MetricKind.NULLS, column), ROWS
        case "null_rate":
            return Metric(MetricKind.NULLS, column), ROWS
        case other:
            return (Metric(_KINDS[str(other)], column),)


def level_of(level: Level, measured: Mapping[Metric, Scalar]) -> float | None:
    """The number of one partition; None when it has no rows, or no value.

    :raises ValueError: it is not a number.
    """
    first, *others = (measured[metric] for metric in metrics_of_level(level))
    value: Scalar
    if others:
        *nulls, rows = (int(other or 0) for other in others)
        value = quotient(first, rows - sum(nulls))
    else:
        value = first if measured.get(ROWS, 1) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{level} is {value!r}, which is not a number")
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Step:
    """Where a series changes its level most."""

    place: int
    """Of the first number of the new level."""
    before: float
    after: float
    """The averages of the numbers before it, and from it on."""


def find_step(series: Sequence[float | None], least: int = 1) -> Step | None:
    """The largest change of level; None when there is none, or it is not clear.

    Every place is tried as a boundary, with at least ``least`` numbers on both sides. The one is taken at which two averages,
    before and from there on, come closest to the series: by the squared distances. It is clear when it takes away at least
    :data:`CLEAR` of the squared distances to one average of all. Numbers that are not there are left out.
    """
    known = [(place, value) for place, value in enumerate(series) if value is not None]
    values = [value for _, value in known]
    if not values:
        return None
    whole = math.fsum(values) / len(values)
    variation = math.fsum((value - whole) ** 2 for value in values)
    best: tuple[float, Step] | None = None
    for number, (_, (place, _)) in enumerate(pairwise(known), start=1):
        if number < least or len(values) - number < least:
            continue
        before, after = math.fsum(values[:number]) / number, math.fsum(values[number:]) / (len(values) - number)
        gain = (after - before) ** 2 * number * (len(values) - number) / len(values)
        if best is None or gain > best[0]:
            best = gain, Step(place, before, after)
    if best is None or variation <= (1e-9 * abs(whole)) ** 2 or best[0] < CLEAR * variation:
        return None
    return best[1]
