"""Which metrics a spec needs of which rows, so that each side is measured once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_backfill_provider.checks.constraint import is_of_key, metric_of_constraint
from airflow_backfill_provider.checks.findings import Constraint
from airflow_backfill_provider.checks.fold import folds
from airflow_backfill_provider.spec.checks import (
    AcceptedRange,
    AcceptedValues,
    Check,
    ExpressionIsTrue,
    NotNull,
    NotNullProportion,
    Relationships,
    RowCount,
    Sql,
    Unique,
    UniqueCombination,
)
from airflow_backfill_provider.spec.comparisons import (
    AnyMeasure,
    CompareAvg,
    CompareCountDistinct,
    CompareMax,
    CompareMin,
    CompareNullRate,
    CompareRowCount,
    CompareRows,
    CompareSum,
)
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.spec.model import BackfillSpec


@dataclass(frozen=True)
class Needed:
    """Metrics by the rows they are measured of."""

    staged: tuple[Metric, ...]
    baseline: tuple[Metric, ...]
    others: Mapping[str, tuple[Metric, ...]]
    """Of the rows that staged ones are compared with beside the published ones, by :attr:`Measure.other_side`."""

    def of(self, side: str) -> tuple[Metric, ...]:
        """Those of that side; none where nothing is compared with it."""
        return self.baseline if side == "baseline" else self.others.get(side, ())


def metrics_for(spec: BackfillSpec, constraints: Sequence[Constraint] = ()) -> Needed:
    """Every metric of a partition that its verdicts rest on, or that those of the range are folded from."""
    asked = [
        entry
        for entry in _asked(spec, constraints)
        if entry.of_partition or folds(entry.metric, spec.target.partition_by)
    ]
    return _needed(asked, (ROWS,))


def metrics_for_range(spec: BackfillSpec, constraints: Sequence[Constraint] = ()) -> Needed:
    """Every metric that the verdicts about the range as a whole rest on."""
    return _needed([entry for entry in _asked(spec, constraints) if entry.of_range], (ROWS,))


@dataclass(frozen=True)
class _Asked:
    metric: Metric
    side: str
    of_partition: bool
    of_range: bool


def _asked(spec: BackfillSpec, constraints: Sequence[Constraint]) -> Iterator[_Asked]:
    for check in spec.checks:
        for metric in (metric_of_check(check), looked_at(check)):
            if metric is not None:
                yield _Asked(metric, "staged", check.judges_partitions, check.judges_range)
    for constraint in constraints:
        if not is_of_key(constraint, spec.target.key):
            yield _Asked(metric_of_constraint(constraint), "staged", True, True)
    for comparison in spec.comparisons:
        if isinstance(comparison, CompareRows):
            continue
        by_trial = comparison.against == "trial"  # from what is measured of each partition
        for side in ("staged", comparison.other_side):
            for metric in metrics_of_comparison(comparison.of_side(side)):
                of_partition = comparison.judges_partitions or by_trial
                yield _Asked(metric, side, of_partition, comparison.judges_range and not by_trial)


def _needed(asked: Sequence[_Asked], always: tuple[Metric, ...]) -> Needed:
    sides: dict[str, list[Metric]] = {"staged": list(always), "baseline": list(always)}
    for entry in asked:
        sides.setdefault(entry.side, []).append(entry.metric)
    distinct = {side: tuple(dict.fromkeys(metrics)) for side, metrics in sides.items()}
    return Needed(distinct.pop("staged"), distinct.pop("baseline"), distinct)


def looked_at(check: Check) -> Metric:
    """The number of rows that a check looks at."""
    return Metric(MetricKind.ROWS, where=check.where or "")


def metric_of_check(check: Check) -> Metric | None:
    """What a check counts; ``None`` for one that runs a query of its own."""
    where = check.where or ""
    match check:
        case Unique():
            return Metric(MetricKind.DUPLICATES, check.names, where=where)
        case UniqueCombination():
            return Metric(MetricKind.DUPLICATES, check.columns, where=where)
        case NotNull() | NotNullProportion():
            return Metric(MetricKind.NULLS, (check.column,), where=where)
        case AcceptedValues():
            return Metric(MetricKind.OUTSIDE_VALUES, (check.column,), values=check.values, where=where)
        case AcceptedRange():
            return Metric(
                MetricKind.OUTSIDE_RANGE,
                (check.column,),
                min_value=check.min_value,
                max_value=check.max_value,
                inclusive=check.inclusive,
                where=where,
            )
        case Relationships():
            return Metric(MetricKind.ORPHANS, (check.column,), to_table=check.to, to_field=check.field, where=where)
        case ExpressionIsTrue():
            return Metric(MetricKind.UNTRUE, expression=check.expression, where=where)
        case RowCount():
            return looked_at(check)
        case Sql():
            return None


def metrics_of_comparison(comparison: AnyMeasure) -> tuple[Metric, ...]:
    """What a comparison measures on both sides; an average and a rate are divided out of exact numbers."""
    match comparison:
        case CompareRowCount():
            return (ROWS,)
        case CompareSum():
            return (Metric(MetricKind.SUM, (comparison.column,)),)
        case CompareMin():
            return (Metric(MetricKind.MIN, (comparison.column,)),)
        case CompareMax():
            return (Metric(MetricKind.MAX, (comparison.column,)),)
        case CompareCountDistinct():
            return (Metric(MetricKind.COUNT_DISTINCT, (comparison.column,)),)
        case CompareAvg():
            nulls = Metric(MetricKind.NULLS, (comparison.column,))
            return (Metric(MetricKind.SUM, (comparison.column,)), nulls, ROWS)
        case CompareNullRate():
            return (Metric(MetricKind.NULLS, (comparison.column,)), ROWS)
