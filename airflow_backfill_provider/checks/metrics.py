"""Which metrics a spec needs of which rows, so that each side is measured once."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_backfill_provider.spec.checks import (
    AcceptedRange,
    AcceptedValues,
    Check,
    CompareRowCount,
    CompareRows,
    CompareSum,
    Comparison,
    NotNull,
    RowCount,
    Sql,
    Unique,
)
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.spec.model import BackfillSpec


@dataclass(frozen=True)
class Needed:
    """Metrics by the rows they are measured of; ``source`` is empty when nothing is compared against the source."""

    staged: tuple[Metric, ...]
    baseline: tuple[Metric, ...]
    source: tuple[Metric, ...]


def metrics_for(spec: BackfillSpec) -> Needed:
    """Every metric that :func:`airflow_backfill_provider.checks.evaluate.evaluate_partition` will ask for."""
    staged, baseline = [ROWS], [ROWS]
    source: list[Metric] = []
    for check in spec.checks:
        staged += [metric for metric in [metric_of_check(check)] if metric is not None]
    for comparison in spec.compare:
        metric = metric_of_comparison(comparison)
        if metric is not None:
            staged.append(metric)
            (source if getattr(comparison, "against", None) == "source" else baseline).append(metric)
    return Needed(*(tuple(dict.fromkeys(side)) for side in (staged, baseline, source)))


def metric_of_check(check: Check) -> Metric | None:
    """What a check looks at; ``None`` for one that runs a query of its own."""
    match check:
        case Unique():
            return Metric(MetricKind.DUPLICATES, check.names)
        case NotNull():
            return Metric(MetricKind.NULLS, (check.column,))
        case AcceptedValues():
            return Metric(MetricKind.OUTSIDE_VALUES, (check.column,), values=check.values)
        case AcceptedRange():
            return Metric(
                MetricKind.OUTSIDE_RANGE,
                (check.column,),
                min_value=check.min_value,
                max_value=check.max_value,
                inclusive=check.inclusive,
            )
        case RowCount():
            return ROWS
        case Sql():
            return None


def metric_of_comparison(comparison: Comparison) -> Metric | None:
    """What a comparison looks at on both sides; ``None`` for one that matches rows."""
    match comparison:
        case CompareRowCount():
            return ROWS
        case CompareSum():
            return Metric(MetricKind.SUM, (comparison.column,))
        case CompareRows():
            return None
