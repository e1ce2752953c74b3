"""The one place that compares: from measured values to outcomes. Pure.

Missing data is not a pass, NULL is never 0, and what could not be measured is an error, not a fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, assert_never

from airflow_backfill_provider.checks.change import Distance, plain
from airflow_backfill_provider.checks.metrics import metric_of_check, metric_of_comparison
from airflow_backfill_provider.checks.outcome import Outcome, Verdict
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
    Severity,
    Sql,
    Unique,
)
from airflow_backfill_provider.spec.metric import ROWS, Metric, Scalar
from airflow_backfill_provider.spec.model import BackfillSpec

__all__ = ["Outcome", "Verdict", "evaluate_partition"]

Measured = Mapping[Metric, Scalar]

_UNIQUE_KEY = "a key that is unique"


class Diff(Protocol):
    """Old against new rows of one partition, matched by key."""

    @property
    def old(self) -> int: ...
    @property
    def new(self) -> int: ...
    @property
    def changed(self) -> int: ...
    @property
    def added(self) -> int: ...
    @property
    def removed(self) -> int: ...
    @property
    def old_null_keys(self) -> int: ...
    @property
    def new_null_keys(self) -> int: ...
    @property
    def old_duplicate_keys(self) -> int: ...
    @property
    def new_duplicate_keys(self) -> int: ...


def evaluate_partition(
    spec: BackfillSpec,
    key: str,
    staged: Measured,
    baseline: Measured,
    source: Measured,
    diff: Diff,
    sql_failures: Mapping[str, int | Exception],
) -> list[Outcome]:
    """Every outcome of one partition: whether it came out empty, then each check, then each comparison.

    ``sql_failures`` maps the name of each ``sql`` check to the rows its query returned, or to the engine's error.
    When the spec lists no row diff, its counts are reported all the same, and keys that are not unique: in the
    staged rows as a failure, in the published ones as a warning.
    """
    outcomes = [_emptied(spec, key, staged, baseline)]
    outcomes += [_check(check, spec, key, staged, sql_failures) for check in spec.checks]
    outcomes += [_comparison(comparison, key, staged, baseline, source, diff) for comparison in spec.compare]
    if not any(isinstance(comparison, CompareRows) for comparison in spec.compare):
        outcomes.append(_row_diff(None, key, diff))
    return outcomes


def _emptied(spec: BackfillSpec, key: str, staged: Measured, baseline: Measured) -> Outcome:
    """Whether a partition that had rows comes out with none."""
    answer = _Answer("empty", "rows are not replaced by none", key, "error", ROWS)
    new, old = _count(staged, ROWS), _count(baseline, ROWS)
    if new is None or old is None:
        return answer.error("rows", "not measured", "the row count is missing")
    found = f"{new} rows, from {old}"
    if new > 0 or old == 0:
        return answer.passed("rows where there were rows", found, "" if new else "both empty")
    if spec.allow_empty:
        return answer.passed("rows, or none", found, "no rows; allow_empty")
    return answer.fail(
        "rows where there were rows",
        found,
        "set allow_empty: true in the spec when the partition is meant to be emptied",
    )


def _check(
    check: Check, spec: BackfillSpec, key: str, staged: Measured, sql_failures: Mapping[str, int | Exception]
) -> Outcome:
    metric = metric_of_check(check)
    answer = _Answer(
        check.kind, _name(check), key, check.severity, metric, check.query if isinstance(check, Sql) else None
    )
    expected = _expected(check)
    rows = _count(staged, ROWS)
    if isinstance(check, Sql):
        failures = sql_failures.get(check.name)
        if isinstance(failures, Exception):
            return answer.error(expected, "the query failed", str(failures) or type(failures).__name__)
        count = failures
    else:
        count = _count(staged, metric)
    if rows is None or count is None:
        return answer.error(expected, "not measured", "the value is missing")
    if rows == 0 and not spec.allow_empty:
        return answer.fail(expected, "no rows", "no data")
    detail = "" if rows else "no rows; allow_empty"
    if isinstance(check, RowCount):
        low, high = check.min_value, check.max_value
        holds = (low is None or low <= count) and (high is None or count <= high)
        return answer.of(holds, expected, f"{count} rows", detail)
    unit = "rows returned" if isinstance(check, Sql) else f"of {rows} rows"
    return answer.of(count == 0, expected, f"{count} {unit}", detail)


def _comparison(
    comparison: Comparison, key: str, staged: Measured, baseline: Measured, source: Measured, diff: Diff
) -> Outcome:
    if isinstance(comparison, CompareRows):
        return _row_diff(comparison, key, diff)
    metric = metric_of_comparison(comparison)
    answer = _Answer(comparison.kind, _name(comparison), key, comparison.severity, metric)
    expected = _expected(comparison)
    other = source if comparison.against == "source" else baseline
    if metric is None or metric not in staged or metric not in other:
        return answer.error(expected, "not measured", "the value is missing")
    old, new = other[metric], staged[metric]
    if old is None and new is None:
        return answer.passed(expected, "no value, as before", "both empty")
    if old is None or new is None:
        found = f"{_shown(new)}, from {_shown(old)}"
        return answer.fail(expected, found, "one side has no value, which is not 0, so there is no change to bound")
    try:
        distance = Distance.between(old, new)
    except ValueError as error:
        return answer.error(expected, f"{_shown(new)}, from {_shown(old)}", str(error))
    if comparison.change_between is not None:
        holds = distance.within(comparison.change_between)
    elif comparison.max_abs_change is not None:
        holds = distance.at_most(comparison.max_abs_change)
    else:
        return answer.error(expected, str(distance), "the comparison has no bound")
    detail = "compared within floating point rounding" if distance.slack else ""
    if isinstance(comparison, CompareRowCount) and old == new == 0:
        detail = "both empty"
    return answer.of(holds, expected, str(distance), detail)


def _row_diff(listed: CompareRows | None, key: str, diff: Diff) -> Outcome:
    """Whether keys allow a row diff, and whether it lies in the bounds; ``None`` when the spec lists none."""
    comparison = listed or CompareRows()
    answer = _Answer("row_diff", "row_diff", key, comparison.severity)
    if diff.new_null_keys or diff.new_duplicate_keys:
        # No severity softens it: these rows are about to be published.
        return _Answer("row_diff", "row_diff", key, "error").fail(
            _UNIQUE_KEY,
            _key_faults("staged", diff.new_null_keys, diff.new_duplicate_keys),
            "key not unique in the staged rows: mend the SQL, or target.key in the spec",
        )
    if diff.old_null_keys or diff.old_duplicate_keys:
        found = _key_faults("published", diff.old_null_keys, diff.old_duplicate_keys)
        if listed is None:
            return _Answer("row_diff", "row_diff", key, "warn").fail(
                _UNIQUE_KEY,
                found,
                "the published rows repeat or lack keys, so rows could not be matched; the staged rows do neither",
            )
        return answer.fail(
            _UNIQUE_KEY,
            found,
            "the published rows repeat or lack keys, so rows cannot be matched; to correct exactly that, remove "
            "row_diff from compare, and bound row_count or sum instead",
        )
    expected = _expected(comparison)
    counts = {"added": diff.added, "removed": diff.removed, "changed": diff.changed}
    limits = {"added": comparison.max_added, "removed": comparison.max_removed, "changed": comparison.max_changed}
    beyond = [name for name, limit in limits.items() if limit is not None and counts[name] > limit]
    found = ", ".join(f"{count} {name}" for name, count in counts.items())
    detail = f"too many {' and '.join(beyond)}" if beyond else "both empty" if diff.old == diff.new == 0 else ""
    return answer.of(not beyond, expected, found, detail)


class _Answer:
    """Builds the outcomes of one question about one partition."""

    def __init__(
        self, kind: str, name: str, key: str, severity: Severity, metric: Metric | None = None, sql: str | None = None
    ) -> None:
        self.kind, self.name, self.key, self.severity, self.metric, self.sql = kind, name, key, severity, metric, sql

    def _make(self, verdict: Verdict, expected: str, actual: str, detail: str) -> Outcome:
        return Outcome(
            self.kind, self.name, self.key, verdict, self.severity, expected, actual, detail, self.sql, self.metric
        )

    def of(self, holds: bool, expected: str, actual: str, detail: str = "") -> Outcome:
        return self.passed(expected, actual, detail) if holds else self.fail(expected, actual, detail)

    def passed(self, expected: str, actual: str, detail: str = "") -> Outcome:
        return self._make(Verdict.PASS, expected, actual, detail)

    def fail(self, expected: str, actual: str, detail: str = "") -> Outcome:
        verdict = Verdict.WARN if self.severity == "warn" else Verdict.FAIL
        return self._make(verdict, expected, actual, detail)

    def error(self, expected: str, actual: str, detail: str) -> Outcome:
        return self._make(Verdict.ERROR, expected, actual, detail)


def _key_faults(side: str, absent: int, repeated: int) -> str:
    return f"{repeated} {side} rows repeat a key, {absent} lack one"


def _count(measured: Measured, metric: Metric | None) -> int | None:
    value = None if metric is None else measured.get(metric)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _shown(value: Scalar) -> str:
    return "no value" if value is None else str(value)


def _name(check: Check | Comparison) -> str:
    match check:
        case Unique():
            return f"unique({', '.join(check.names)})"
        case Sql():
            return f"sql {check.name}"
        case NotNull() | AcceptedValues() | AcceptedRange():
            return f"{check.kind}({check.column})"
        case CompareSum():
            return f"sum({check.column}) against {check.against}"
        case CompareRowCount():
            return f"row_count against {check.against}"
        case RowCount() | CompareRows():
            return check.kind
        case _:
            assert_never(check)


def _expected(check: Check | Comparison) -> str:
    match check:
        case Unique():
            return "0 duplicates"
        case NotNull():
            return "0 rows with NULL"
        case Sql():
            return "0 rows returned"
        case AcceptedValues():
            return f"0 rows outside {', '.join(map(str, check.values))}"
        case AcceptedRange():
            return f"0 rows outside {_interval(check.min_value, check.max_value, check.inclusive)}"
        case RowCount():
            return f"rows in {_interval(check.min_value, check.max_value, True)}"
        case CompareRows():
            limits = {"added": check.max_added, "removed": check.max_removed, "changed": check.max_changed}
            given = [f"at most {limit} {name}" for name, limit in limits.items() if limit is not None]
            return ", ".join(given) or _UNIQUE_KEY
        case CompareRowCount() | CompareSum():
            if check.change_between is None:
                return f"a change of at most {plain(check.max_abs_change)}" if check.max_abs_change is not None else ""
            sign = "%" if check.change_between.percent else ""
            return f"a change in [{plain(check.change_between.low)}{sign}, {plain(check.change_between.high)}{sign}]"
        case _:
            assert_never(check)


def _interval(low: object, high: object, inclusive: bool) -> str:
    opening, closing = ("[", "]") if inclusive else ("(", ")")
    left = f"{opening}{low}" if low is not None else "(-∞"
    right = f"{high}{closing}" if high is not None else "∞)"
    return f"{left}, {right}"
