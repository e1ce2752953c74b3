"""The range as a whole from what was recorded of its partitions, where that is exact. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal, localcontext
from typing import Any

from airflow_backfill_provider.spec.metric import Metric, MetricKind, Scalar

_SUMMED = frozenset(
    {
        MetricKind.ROWS,
        MetricKind.NULLS,
        MetricKind.OUTSIDE_VALUES,
        MetricKind.OUTSIDE_RANGE,
        MetricKind.UNTRUE,
        MetricKind.SUM,
    }
)
"""Not ORPHANS: the other table may have changed between two partitions."""
_EXACT = Context(prec=200)


def folds(metric: Metric, partition_by: str) -> bool:
    """Whether the range's value follows from the partitions' values.

    Duplicates do when the partition column is among the columns: rows of two partitions then differ in it.
    """
    if metric.kind is MetricKind.DUPLICATES:
        return partition_by.casefold() in {name.casefold() for name in metric.columns}
    return metric.kind in _SUMMED or metric.kind in (MetricKind.MIN, MetricKind.MAX)


def fold(metric: Metric, values: Sequence[Scalar]) -> Scalar:
    """The value of all rows together; partitions that had nothing to measure add nothing.

    :raises ValueError: a value is not a number.
    """
    present = [value for value in values if value is not None]
    if not present:
        return metric.nothing
    numbers: list[Any] = []
    for value in present:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise ValueError(f"{metric} is not a number, so it is of no use for the range: {type(value).__name__}")
        numbers.append(value)
    if metric.kind is MetricKind.MIN:
        return min(numbers)  # type: ignore[no-any-return]
    if metric.kind is MetricKind.MAX:
        return max(numbers)  # type: ignore[no-any-return]
    if any(isinstance(number, float) for number in numbers):
        return math.fsum(numbers)
    with localcontext(_EXACT):
        return sum(numbers[1:], start=numbers[0])  # type: ignore[no-any-return]


def to_recorded(values: Mapping[Metric, Scalar | Exception]) -> dict[str, Any]:
    """Measured values as JSON, by the metric's text; what could not be measured is left out."""
    return {
        str(metric): f"{value:f}" if isinstance(value, Decimal) else value
        for metric, value in values.items()
        if value is None or (isinstance(value, int | float | Decimal) and math.isfinite(value))
    }


def from_recorded(metric: Metric, recorded: Iterable[Mapping[str, Any]]) -> list[Scalar] | None:
    """The metric's value of each partition as :func:`to_recorded` wrote it; ``None`` when one lacks it."""
    values: list[Scalar] = []
    for entry in recorded:
        if str(metric) not in entry:
            return None
        value = entry[str(metric)]
        values.append(Decimal(value) if isinstance(value, str) else value)
    return values


@dataclass(frozen=True)
class RangeDiff:
    """The row diffs of all partitions added up: a row that moves to another partition is removed and added."""

    old: int = 0
    new: int = 0
    identical: int = 0
    changed: int = 0
    added: int = 0
    removed: int = 0
    old_null_keys: int = 0
    new_null_keys: int = 0
    old_duplicate_keys: int = 0
    new_duplicate_keys: int = 0

    @classmethod
    def of(cls, recorded: Sequence[Mapping[str, Any]]) -> RangeDiff:
        """From the counts recorded of each partition."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: sum(int(entry[name]) for entry in recorded) for name in names})
