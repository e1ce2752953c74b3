"""The one place that judges: from what was found to outcomes. Pure.

Missing data is not a pass, NULL is never 0, and what could not be measured is an error, not a fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.comparison import judge_measure
from airflow_backfill_provider.checks.constraint import is_of_key, judge_constraint
from airflow_backfill_provider.checks.findings import Constraint, Diff, Findings, Measured, Side
from airflow_backfill_provider.checks.metrics import metric_of_check
from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.checks.row_diff import judge_row_diff
from airflow_backfill_provider.checks.staged_rows import judge_check, judge_emptied
from airflow_backfill_provider.checks.wording import expected_of_check, name_of_check
from airflow_backfill_provider.spec.checks import Check
from airflow_backfill_provider.spec.comparisons import AnyMeasure, CompareRows, Comparison
from airflow_backfill_provider.spec.metric import MetricKind
from airflow_backfill_provider.spec.model import BackfillSpec

__all__ = ["Outcome", "Verdict", "evaluate_partition", "evaluate_range"]


def evaluate_partition(
    spec: BackfillSpec,
    key: str,
    staged: Measured,
    baseline: Measured,
    source: Measured,
    diff: Diff,
    sql_failures: Mapping[str, int | Exception],
    constraints: Sequence[Constraint] = (),
    others: Mapping[str, Side] = MappingProxyType({}),
) -> list[Outcome]:
    """Every outcome of one partition: whether it came out empty, the target's own constraints, then each check, then
    each comparison.

    ``sql_failures`` maps the name of each ``sql`` check to the rows its query returned, or to the engine's error; ``others``
    is of the last good backfill and of each other table that is compared with. When the spec lists no row diff, its counts are reported all the same, and keys that are not unique: in the
    staged rows as a failure, in the published ones as a warning.
    """
    found = Findings(key, staged, baseline, source, diff, sql_failures, others)
    outcomes = [judge_emptied(found, allow_empty=spec.allow_empty)]
    outcomes += [judge_constraint(constraint, spec.target.key, found) for constraint in constraints]
    outcomes += [
        judge_check(check, found, allow_empty=spec.allow_empty) for check in spec.checks if check.judges_partitions
    ]
    listed = [comparison for comparison in spec.comparisons if comparison.judges_partitions]
    outcomes += [_judge_comparison(comparison, found) for comparison in listed]
    if not any(isinstance(comparison, CompareRows) for comparison in listed):
        outcomes.append(judge_row_diff(None, key, diff))
    return outcomes


def evaluate_range(
    spec: BackfillSpec,
    staged: Measured,
    baseline: Measured,
    source: Measured,
    diff: Diff,
    sql_failures: Mapping[str, int | Exception],
    constraints: Sequence[Constraint] = (),
    others: Mapping[str, Side] = MappingProxyType({}),
    *,
    no_new_keys: bool = False,
) -> list[Outcome]:
    """Every outcome of the range as a whole, in the order of :func:`evaluate_partition`.

    ``no_new_keys`` says that every staged key stands in its own partition already: a key in two partitions was then
    published so before, and is not looked for.
    """
    found = Findings(None, staged, baseline, source, diff, sql_failures, others)
    outcomes = [
        judge_constraint(constraint, spec.target.key, found)
        for constraint in constraints
        if not is_of_key(constraint, spec.target.key)
    ]
    for check in spec.checks:
        if not check.judges_range:
            continue
        if no_new_keys and is_key_check(check, spec.target.key):
            outcomes.append(_known_keys(check))
        else:
            outcomes.append(judge_check(check, found, allow_empty=spec.allow_empty))
    outcomes += [
        _judge_comparison(comparison, found)
        for comparison in spec.comparisons
        if comparison.judges_range and not is_of_trial(comparison)
    ]
    return outcomes


def is_of_trial(comparison: Comparison) -> TypeGuard[AnyMeasure]:
    """Whether partitions are compared with the one that was tried, rather than staged rows with others."""
    return not isinstance(comparison, CompareRows) and comparison.against == "trial"


def is_key_check(check: Check, key: Sequence[str]) -> bool:
    """Whether a check says that the key is unique among all rows."""
    metric = metric_of_check(check)
    if metric is None or metric.kind is not MetricKind.DUPLICATES or metric.where:
        return False
    return {name.casefold() for name in metric.columns} == {name.casefold() for name in key}


def _known_keys(check: Check) -> Outcome:
    answer = Answer(check.kind, name_of_check(check), None, check.severity)
    detail = "a key in two partitions was published so before, and is not looked for"
    return answer.passed(expected_of_check(check), "no key is new", detail)


def _judge_comparison(comparison: Comparison, found: Findings) -> Outcome:
    if isinstance(comparison, CompareRows):
        return judge_row_diff(comparison, found.key, found.diff)
    return judge_measure(comparison, found)
