"""The target's own constraints as built-in checks of the staged rows, so that none of them fails inside a publish."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.findings import Constraint, Findings, count, failure
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind


def metric_of_constraint(constraint: Constraint) -> Metric:
    """The rows that break it. As in SQL, NULL satisfies a CHECK and is never a duplicate."""
    match constraint.kind:
        case "not_null":
            return Metric(MetricKind.NULLS, tuple(constraint.columns))
        case "unique":
            return Metric(MetricKind.DUPLICATES, tuple(constraint.columns), where=constraint.where)
        case "check":
            return Metric(MetricKind.UNTRUE, expression=f"({constraint.expression}) IS NOT FALSE")
    raise ValueError(f"{constraint.kind} is not a kind of constraint")


def is_of_key(constraint: Constraint, key: Sequence[str]) -> bool:
    """Whether it says that the key is unique, which matching rows by key proves anyway."""
    columns, keys = ({name.casefold() for name in names} for names in (constraint.columns, key))
    return constraint.kind == "unique" and columns == keys


def judge_constraint(constraint: Constraint, key: Sequence[str], found: Findings) -> Outcome:
    """Whether no staged row breaks the constraint."""
    matched = is_of_key(constraint, key)
    metric = metric_of_constraint(constraint)
    answer = Answer("constraint", constraint.name, found.key, "error", None if matched else metric)
    expected = f"no row that breaks {constraint.text}"
    if (raised := failure(found.staged, metric)) is not None:
        return answer.raised(expected, raised)
    broken = found.diff.new_duplicate_keys if matched else count(found.staged, metric)
    rows = count(found.staged, ROWS)
    if broken is None or rows is None:
        return answer.unmeasured(expected)
    return answer.of(broken == 0, expected, f"{broken} of {rows} rows")
