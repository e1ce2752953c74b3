"""A number of each partition before and after: what the charts draw and the headline adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from airflow_backfill_provider.checks.change import Distance
from airflow_backfill_provider.checks.comparison import value_of
from airflow_backfill_provider.checks.fold import fold, folds, from_recorded
from airflow_backfill_provider.checks.metrics import metrics_of_comparison
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.spec.comparisons import AnyMeasure, CompareRowCount, CompareRows
from airflow_backfill_provider.spec.metric import Metric, Scalar

_WORDS = {
    "sum": "sum of {}",
    "min": "smallest {}",
    "max": "largest {}",
    "avg": "average {}",
    "count_distinct": "different values of {}",
    "null_rate": "share of rows without {}",
}


@dataclass(frozen=True)
class Pair:
    """Old and new value; None where there is none, which is not 0."""

    old: Decimal | None = None
    new: Decimal | None = None
    delta: Decimal | None = None
    """New less old; 0 within floating point rounding; None when one is missing."""

    @classmethod
    def of(cls, old: Scalar, new: Scalar) -> Pair:
        """Exact numbers of measured ones; what is not a finite number is not there."""
        before, after = _decimal(old), _decimal(new)
        if before is None or after is None:
            return cls(before, after)
        return cls(before, after, Distance.between(old, new).change)

    @property
    def moved(self) -> Decimal:
        """How far new is from old, in either direction; 0 where that is not known."""
        return Decimal(0) if self.delta is None else abs(self.delta)


@dataclass(frozen=True)
class Series:
    """One number over the partitions of the plan, in its order."""

    name: str
    points: tuple[Pair, ...]
    total: Pair
    """Of the range as a whole; without values where it does not follow from the partitions."""

    @property
    def moves(self) -> bool:
        """Whether a partition has a delta that is not 0."""
        return any(point.delta for point in self.points)


def rows(facts: Facts) -> Series:
    """Published rows against staged ones."""
    points = tuple(Pair.of(line.rows_old, line.rows_new) for line in facts.lines)
    complete = all(point.new is not None for point in points)
    new = sum(line.rows_new or 0 for line in facts.lines) if complete else None
    return Series("rows", points, Pair.of(facts.plan.baseline_rows, new))


def measures(facts: Facts) -> tuple[Series, ...]:
    """Every number of a column that the spec compares with the published rows, and that was measured."""
    wanted: dict[str, AnyMeasure] = {}
    for comparison in facts.plan.spec.comparisons:
        if not isinstance(comparison, CompareRows | CompareRowCount) and comparison.other_side == "baseline":
            wanted.setdefault(_WORDS[comparison.kind].format(comparison.column), comparison)
    found = (_measure(facts, name, comparison) for name, comparison in wanted.items())
    return tuple(one for one in found if any(point.delta is not None for point in one.points))


def _measure(facts: Facts, name: str, comparison: AnyMeasure) -> Series:
    sides = {side: [line.measured(side) for line in facts.lines] for side in ("baseline", "staged")}
    points = tuple(
        Pair.of(_value(comparison, [old]), _value(comparison, [new]))
        for old, new in zip(sides["baseline"], sides["staged"], strict=True)
    )
    total = Pair()
    if all(folds(metric, facts.plan.target.partition_by) for metric in metrics_of_comparison(comparison)):
        total = Pair.of(_value(comparison, sides["baseline"]), _value(comparison, sides["staged"]))
    return Series(name, points, total)


def _value(comparison: AnyMeasure, recorded: Sequence[Mapping[str, Any]]) -> Scalar:
    """The comparison's number of all these partitions together; None when one of them was not measured."""
    values: dict[Metric, Scalar | Exception] = {}
    for metric in metrics_of_comparison(comparison):
        parts = from_recorded(metric, recorded)
        if parts is None:
            return None
        values[metric] = parts[0] if len(parts) == 1 else fold(metric, parts)
    try:
        return value_of(comparison, values)
    except ValueError:
        return None  # not a number; the check's own answer says so


def _decimal(value: Scalar) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def thinned(moved: Sequence[Decimal] | Sequence[int] | Sequence[float], at_most: int) -> list[int]:
    """The places of at most so many partitions to draw: of each stretch the one that moved most.

    So a single partition that jumps is never averaged away.
    """
    stretches = min(len(moved), at_most)
    bounds = [stretch * len(moved) // stretches for stretch in range(stretches + 1)]
    return [max(range(first, end), key=lambda place: moved[place]) for first, end in pairwise(bounds)]
