"""Comparisons of a number measured on both sides."""

from __future__ import annotations

from decimal import Decimal

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.change import Distance, is_same_beyond_numbers, quotient
from airflow_backfill_provider.checks.findings import Findings, Measured, failure
from airflow_backfill_provider.checks.metrics import metrics_of_comparison
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.wording import expected_of_measure, name_of_measure
from airflow_backfill_provider.spec.comparisons import LAST_GOOD, AnyMeasure, CompareAvg, CompareNullRate
from airflow_backfill_provider.spec.metric import Scalar


def judge_measure(comparison: AnyMeasure, found: Findings) -> Outcome:
    """Whether the change lies in the bounds; a value that only one side has is no pass, and NULL is never 0."""
    beside = comparison.of_side(comparison.other_side)
    of_staged, of_other = metrics_of_comparison(comparison), metrics_of_comparison(beside)
    answer = Answer(comparison.kind, name_of_measure(comparison), found.key, comparison.severity, of_staged[0])
    expected = expected_of_measure(comparison)
    rows = found.side(comparison.other_side)
    other = rows.measured
    if comparison.against == LAST_GOOD and any(metric not in other for metric in of_other):
        return answer.warned(
            expected,
            "nothing to compare with",
            "no backfill of this partition that was completed and not rolled back has left this number: this is the first",
        )
    for side, metrics in ((found.staged, of_staged), (other, of_other)):
        if (raised := failure(side, *metrics)) is not None:
            return answer.raised(expected, raised)
        if any(metric not in side for metric in metrics):
            return answer.unmeasured(expected)
    try:
        old, new = value_of(beside, other), value_of(comparison, found.staged)
        if old is None or new is None:
            return _absent(comparison, answer, expected, old, new, is_empty=not (found.rows_new or found.rows_old))
        if is_same_beyond_numbers(old, new) and _may_stay(comparison):
            return answer.passed(expected, f"{new}, as before", "not a finite number, so there is no change to bound")
        distance = Distance.between(old, new, comparison.abs_tol, comparison.rel_tol)
    except ValueError as error:
        way_on = "NULL is what stands for a number that is not there: mend the SQL, or leave the column out of compare"
        return answer.error(expected, "not a number", f"{error}; {way_on}")
    if distance.old == 0 and _is_percentage(comparison):
        return _of_zero(comparison, answer, expected, distance)
    detail = "compared within floating point rounding" if distance.rounding else ""
    if comparison.kind == "row_count" and old == new == 0:
        detail = "both empty"
    told = "; ".join(filter(None, (rows.told, detail)))
    return answer.of(_holds(comparison, distance), expected, str(distance), told)


def _holds(comparison: AnyMeasure, distance: Distance) -> bool:
    if comparison.change_between is not None:
        return distance.within(comparison.change_between)
    return distance.at_most(comparison.max_abs_change or Decimal(0))


def _of_zero(comparison: AnyMeasure, answer: Answer, expected: str, distance: Distance) -> Outcome:
    """There is no percentage of 0: only what needs none can be answered."""
    if distance.change == 0 and _may_stay(comparison):
        return answer.passed(expected, str(distance), "0 as before, which takes no percentage")
    if comparison.abs_tol is not None:
        return answer.of(distance.at_most(Decimal(0)), expected, str(distance), "of an old value of 0, abs_tol decides")
    detail = "there is no percentage of an old value of 0; give abs_tol as well, or bound the change in numbers"
    return answer.error(expected, str(distance), detail)


def _absent(
    comparison: AnyMeasure, answer: Answer, expected: str, old: Scalar, new: Scalar, *, is_empty: bool
) -> Outcome:
    """A side without a value, which is not 0."""
    found = f"{_shown(new)}, from {_shown(old)}"
    if old is None and _is_percentage(comparison) and not is_empty:
        return answer.error(expected, found, "there is no percentage of an old value that is not there")
    if old is None and new is None:
        return answer.passed(expected, "no value, as before", "both empty")
    return answer.fail(expected, found, "one side has no value, which is not 0, so there is no change to bound")


def _may_stay(comparison: AnyMeasure) -> bool:
    """Whether the bound lets the number be what it was."""
    change = comparison.change_between
    return change is None or change.low <= 0 <= change.high


def _is_percentage(comparison: AnyMeasure) -> bool:
    """Whether the bound is a share of the old value."""
    if comparison.change_between is not None:
        return comparison.change_between.percent
    return comparison.rel_tol is not None and comparison.max_abs_change is None


def value_of(comparison: AnyMeasure, measured: Measured) -> Scalar:
    """The number that is compared, of rows of which all its metrics were measured; ``None`` when they have none.

    :raises ValueError: a value that is divided is not a number.
    """
    first, *others = (measured[metric] for metric in metrics_of_comparison(comparison))
    match comparison:
        case CompareAvg():
            nulls, rows = others
            return quotient(first, _whole(rows) - _whole(nulls))
        case CompareNullRate():
            (rows,) = others
            return quotient(first, _whole(rows))
        case _:
            return first if not isinstance(first, Exception) else None


def _whole(value: Scalar | Exception) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a number of rows is missing")
    return value


def _shown(value: Scalar) -> str:
    return "no value" if value is None else str(value)
