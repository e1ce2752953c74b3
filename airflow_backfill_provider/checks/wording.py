"""How checks and comparisons are called, and what they expect, in words."""

from __future__ import annotations

from typing import assert_never

from airflow_backfill_provider.checks.change import plain
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
from airflow_backfill_provider.spec.comparisons import AnyMeasure, Change, CompareRowCount, CompareRows

UNIQUE_KEY = "a key that is unique"


def name_of_check(check: Check) -> str:
    """``not_null(order_id)``, with the condition that narrows it."""
    match check:
        case Unique():
            about = f"({', '.join(check.names)})"
        case UniqueCombination():
            about = f"({', '.join(check.columns)})"
        case Sql():
            about = f" {check.name}"
        case ExpressionIsTrue():
            about = f"({check.expression})"
        case Relationships():
            about = f"({check.column} to {check.to}.{check.field})"
        case NotNull() | NotNullProportion() | AcceptedValues() | AcceptedRange():
            about = f"({check.column})"
        case RowCount():
            about = ""
        case _:
            assert_never(check)
    return f"{check.kind}{about}{f' where {check.where}' if check.where else ''}"


def name_of_measure(comparison: AnyMeasure) -> str:
    """``sum(amount) against baseline``"""
    about = "" if isinstance(comparison, CompareRowCount) else f"({comparison.column})"
    there = comparison.of_side(comparison.other_side)
    other = "" if isinstance(there, CompareRowCount) or there == comparison else f".{there.column}"
    return f"{comparison.kind}{about} against {comparison.against}{other}"


def expected_of_check(check: Check) -> str:
    """What a pass needs, with the conditions that were written."""
    conditions = [
        f"{word} if {condition}"
        for word, condition in (("error", check.error_if), ("warning", check.warn_if))
        if condition
    ]
    return "; ".join([_expected(check), *conditions])


def _expected(check: Check) -> str:
    match check:
        case Unique() | UniqueCombination():
            return "0 duplicates"
        case NotNull():
            return "0 rows with NULL"
        case NotNullProportion():
            return f"a share of rows that are not NULL in {_interval(check.at_least, check.at_most)}"
        case Sql():
            return "0 rows returned"
        case AcceptedValues():
            return f"0 rows outside {', '.join(map(str, check.values))}"
        case AcceptedRange():
            return f"0 rows outside {_interval(check.min_value, check.max_value, check.inclusive)}"
        case Relationships():
            return f"0 rows without one in {check.to}.{check.field}"
        case ExpressionIsTrue():
            return "0 rows where it is not true"
        case RowCount():
            return f"rows in {_interval(check.min_value, check.max_value)}"
        case _:
            assert_never(check)


def expected_of_measure(comparison: AnyMeasure) -> str:
    """The bounds on the change; a percentage says what it is of."""
    if comparison.against == "trial":
        return f"no partition changes by more than {plain(comparison.times)} times as much as the one that was tried"
    tolerances = []
    if comparison.abs_tol is not None:
        tolerances.append(plain(comparison.abs_tol))
    if comparison.rel_tol is not None:
        tolerances.append(f"{plain(comparison.rel_tol * 100)}% of the old value")
    tolerance = " or ".join(tolerances)
    if comparison.change_between is not None:
        bound = expected_change(comparison.change_between)
    elif comparison.max_abs_change is not None:
        bound = f"a change of at most {plain(comparison.max_abs_change)}"
    else:
        return f"a change of at most {tolerance}"
    return f"{bound}, give or take {tolerance}" if tolerance else bound


def expected_change(change: Change) -> str:
    """How far a number may move."""
    sign, of = ("%", " of the old value") if change.percent else ("", "")
    return f"a change in [{plain(change.low)}{sign}, {plain(change.high)}{sign}]{of}"


def expected_of_row_diff(comparison: CompareRows) -> str:
    """The bounds, and what is left out of the comparison."""
    given = [f"at most {limit} {name}" for name, limit in comparison.limits.items()]
    without = f"; compared without {', '.join(comparison.exclude_columns)}" if comparison.exclude_columns else ""
    return (", ".join(given) or UNIQUE_KEY) + without


def _interval(low: object, high: object, inclusive: bool = True) -> str:
    opening, closing = ("[", "]") if inclusive else ("(", ")")
    left = f"{opening}{low}" if low is not None else "(-∞"
    right = f"{high}{closing}" if high is not None else "∞)"
    return f"{left}, {right}"
