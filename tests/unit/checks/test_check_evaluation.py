from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.checks.evaluate import Outcome, Verdict, evaluate_partition
from airflow_backfill_provider.checks.metrics import metrics_for
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import RowDiff

KEY = "2013-02-08"
SUM = Metric(MetricKind.SUM, ("net",))
NULLS = Metric(MetricKind.NULLS, ("id",))


def spec(checks: list[Any] | None = None, compare: list[Any] | None = None, **more: Any) -> BackfillSpec:
    return BackfillSpec.model_validate(
        {
            "name": "fct",
            "target": {"table": "analytics.fct", "partition_by": "d", "key": ["id"]},
            "transform": {"sql": "SELECT 1"},
            "compute": {"conn_id": "w"},
            "source": {"table": "raw.t", "partition_by": "d"},
            "checks": checks or [],
            "compare": compare or [],
            **more,
        }
    )


def evaluate(
    of: BackfillSpec,
    staged: Mapping[Metric, Scalar],
    baseline: Mapping[Metric, Scalar] | None = None,
    source: Mapping[Metric, Scalar] | None = None,
    diff: RowDiff | None = None,
    sql: Mapping[str, int | Exception] | None = None,
) -> dict[str, Outcome]:
    """Outcomes by name; sides left out had 10 rows."""
    rows = {ROWS: 10}
    outcomes = evaluate_partition(
        of, KEY, staged, baseline or rows, source or {}, diff or RowDiff(10, 10, 10), sql or {}
    )
    assert all(outcome.partition == KEY for outcome in outcomes)
    return {outcome.name: outcome for outcome in outcomes}


def compare_sum(old: Scalar, new: Scalar, **bounds: Any) -> Outcome:
    of = spec(compare=[{"sum": {"column": "net", **bounds}}])
    return evaluate(of, {ROWS: 10, SUM: new}, {ROWS: 10, SUM: old})["sum(net) against baseline"]


def compare_rows(old: int, new: int, **bounds: Any) -> Outcome:
    return evaluate(spec(compare=[{"row_count": bounds}]), {ROWS: new}, {ROWS: old})["row_count against baseline"]


CHECKS: list[tuple[dict[str, Any], str, Metric]] = [
    ({"unique": {"column": "id"}}, "unique(id)", Metric(MetricKind.DUPLICATES, ("id",))),
    ({"unique": {"columns": ["a", "b"]}}, "unique(a, b)", Metric(MetricKind.DUPLICATES, ("a", "b"))),
    ({"not_null": {"column": "id"}}, "not_null(id)", NULLS),
    (
        {"accepted_values": {"column": "s", "values": ["x", 1]}},
        "accepted_values(s)",
        Metric(MetricKind.OUTSIDE_VALUES, ("s",), values=("x", Decimal(1))),
    ),
    (
        {"accepted_range": {"column": "n", "min_value": 0, "inclusive": False}},
        "accepted_range(n)",
        Metric(MetricKind.OUTSIDE_RANGE, ("n",), min_value=Decimal(0), inclusive=False),
    ),
]


@pytest.mark.parametrize(("check", "name", "metric"), CHECKS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_check_passes_when_no_row_offends_and_fails_when_one_does(
    check: dict[str, Any], name: str, metric: Metric
) -> None:
    of = spec(checks=[check])
    assert metric in metrics_for(of).staged
    assert evaluate(of, {ROWS: 10, metric: 0})[name].verdict is Verdict.PASS
    bad = evaluate(of, {ROWS: 10, metric: 3})[name]
    assert (bad.verdict, bad.actual, bad.metric) == (Verdict.FAIL, "3 of 10 rows", metric)
    assert bad.expected.startswith("0 ")


@pytest.mark.parametrize(("check", "name", "metric"), CHECKS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_check_over_no_rows_is_not_a_pass(check: dict[str, Any], name: str, metric: Metric) -> None:
    outcome = evaluate(spec(checks=[check]), {ROWS: 0, metric: 0}, {ROWS: 0})[name]
    assert (outcome.verdict, outcome.detail) == (Verdict.FAIL, "no data")
    allowed = evaluate(spec(checks=[check], allow_empty=True), {ROWS: 0, metric: 0}, {ROWS: 0})[name]
    assert (allowed.verdict, allowed.detail) == (Verdict.PASS, "no rows; allow_empty")


@pytest.mark.parametrize(("check", "name", "metric"), CHECKS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("allow_empty", [False, True])
def test_a_value_that_was_not_measured_is_an_error(
    check: dict[str, Any], name: str, metric: Metric, allow_empty: bool
) -> None:
    of = spec(checks=[check], allow_empty=allow_empty)
    for staged in ({ROWS: 10}, {ROWS: 10, metric: None}, {metric: 0}, {ROWS: None, metric: 0}):
        assert evaluate(of, staged)[name].verdict is Verdict.ERROR


@pytest.mark.parametrize(
    ("rows", "bounds", "verdict"),
    [
        (10, {"min_value": 10}, Verdict.PASS),
        (9, {"min_value": 10}, Verdict.FAIL),
        (10, {"max_value": 10}, Verdict.PASS),
        (11, {"max_value": 10}, Verdict.FAIL),
        (5, {"min_value": 1, "max_value": 10}, Verdict.PASS),
        (0, {"max_value": 10}, Verdict.FAIL),
        (0, {"min_value": 0}, Verdict.FAIL),
    ],
)
def test_row_counts_lie_in_the_bounds_and_none_is_not_a_pass(
    rows: int, bounds: dict[str, int], verdict: Verdict
) -> None:
    assert evaluate(spec(checks=[{"row_count": bounds}]), {ROWS: rows})["row_count"].verdict is verdict


def test_an_allowed_empty_partition_still_keeps_a_bound_on_its_row_count() -> None:
    of = spec(checks=[{"row_count": {"min_value": 1}}], allow_empty=True)
    assert evaluate(of, {ROWS: 0})["row_count"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("staged", "baseline", "allow_empty", "verdict", "detail"),
    [
        (0, 40, False, Verdict.FAIL, "set allow_empty: true"),
        (0, 40, True, Verdict.PASS, "no rows; allow_empty"),
        (0, 0, False, Verdict.PASS, "both empty"),
        (5, 0, False, Verdict.PASS, ""),
        (5, 40, False, Verdict.PASS, ""),
        (None, 40, True, Verdict.ERROR, "missing"),
        (5, None, True, Verdict.ERROR, "missing"),
    ],
)
def test_rows_are_replaced_by_none_only_when_that_is_allowed(
    staged: int | None, baseline: int | None, allow_empty: bool, verdict: Verdict, detail: str
) -> None:
    outcomes = evaluate(spec(allow_empty=allow_empty), {ROWS: staged}, {ROWS: baseline})
    outcome = outcomes["rows are not replaced by none"]
    assert (outcome.kind, outcome.verdict) == ("empty", verdict)
    assert detail in outcome.detail
    if verdict is Verdict.FAIL:
        assert outcome.actual == "0 rows, from 40"


@pytest.mark.parametrize("severity", ["error", "warn"])
def test_severity_decides_between_fail_and_warn_and_never_softens_an_error(severity: str) -> None:
    of = spec(checks=[{"not_null": {"column": "id", "severity": severity}}])
    bad = evaluate(of, {ROWS: 10, NULLS: 1})["not_null(id)"].verdict
    assert bad is (Verdict.WARN if severity == "warn" else Verdict.FAIL)
    assert evaluate(of, {ROWS: 10})["not_null(id)"].verdict is Verdict.ERROR
    assert evaluate(of, {ROWS: 10, NULLS: 0})["not_null(id)"].verdict is Verdict.PASS


SQL_CHECK = {"sql": {"name": "no_orphans", "query": "SELECT * FROM stage WHERE parent IS NULL"}}


@pytest.mark.parametrize(
    ("result", "rows", "verdict", "actual"),
    [
        (0, 10, Verdict.PASS, "0 rows returned"),
        (3, 10, Verdict.FAIL, "3 rows returned"),
        (0, 0, Verdict.FAIL, "no rows"),
        (RuntimeError("column parent does not exist"), 10, Verdict.ERROR, "the query failed"),
        (RuntimeError("column parent does not exist"), 0, Verdict.ERROR, "the query failed"),
        (None, 10, Verdict.ERROR, "not measured"),
    ],
)
def test_a_query_of_the_users_must_run_and_return_nothing(
    result: int | Exception | None, rows: int, verdict: Verdict, actual: str
) -> None:
    results = {} if result is None else {"no_orphans": result}
    outcome = evaluate(spec(checks=[SQL_CHECK]), {ROWS: rows}, sql=results)["sql no_orphans"]
    assert (outcome.verdict, outcome.actual) == (verdict, actual)
    assert outcome.sql == SQL_CHECK["sql"]["query"]
    if isinstance(result, Exception):
        assert outcome.detail == "column parent does not exist"


def test_a_query_that_finds_rows_about_an_allowed_empty_partition_fails() -> None:
    of = spec(checks=[SQL_CHECK], allow_empty=True)
    assert evaluate(of, {ROWS: 0}, sql={"no_orphans": 1})["sql no_orphans"].verdict is Verdict.FAIL
    assert evaluate(of, {ROWS: 0}, sql={"no_orphans": 0})["sql no_orphans"].detail == "no rows; allow_empty"


@pytest.mark.parametrize(
    ("old", "new", "bounds", "holds"),
    [
        (100, 100, [0, 0], True),
        (100, 99, [0, 0], False),
        (100, 90, [-10, 0], True),
        (100, 89, [-10, 0], False),
        (100, 110, [-10, 0], False),
        (100, 92, ["-8%", "0%"], True),
        (100, 91, ["-8%", "0%"], False),
        (100, 101, ["-8%", "0%"], False),
        (0, 0, ["-8%", "8%"], True),
        (0, 0, ["5%", "8%"], False),
        (0, 1, ["-100%", "1000%"], False),
        (3, 4, ["0%", "33.33%"], False),
        (3, 4, ["0%", "33.34%"], True),
    ],
)
def test_a_change_is_new_minus_old_signed(old: int, new: int, bounds: list[Any], holds: bool) -> None:
    assert (compare_rows(old, new, change_between=bounds).verdict is Verdict.PASS) == holds


@pytest.mark.parametrize(
    ("old", "new", "bounds", "holds"),
    [
        (-100, -108, ["-8%", "0%"], True),
        (-100, -109, ["-8%", "0%"], False),
        (-100, -92, ["0%", "8%"], True),
        (-100, -92, ["-8%", "0%"], False),
        (-100, 100, ["0%", "200%"], True),
    ],
)
def test_a_percentage_is_of_the_size_of_the_old_value(old: int, new: int, bounds: list[Any], holds: bool) -> None:
    assert (compare_sum(old, new, change_between=bounds).verdict is Verdict.PASS) == holds


@pytest.mark.parametrize(("new", "holds"), [(95, True), (105, True), (94, False), (106, False)])
def test_an_absolute_bound_holds_in_both_directions(new: int, holds: bool) -> None:
    assert (compare_rows(100, new, max_abs_change=5).verdict is Verdict.PASS) == holds


def test_the_outcome_shows_the_numbers_it_compared() -> None:
    outcome = compare_rows(1234, 1100, change_between=["-8%", 0])
    assert outcome.expected == "a change in [-8%, 0%] of the old value"
    assert outcome.actual == "1100, from 1234: -134 (-10.86% of the old value)"
    assert compare_rows(0, 5, max_abs_change=2).actual == "5, from 0: +5"


def test_sums_that_are_missing_on_both_sides_are_unchanged_and_never_zero() -> None:
    outcome = compare_sum(None, None, change_between=[5, 8])
    assert (outcome.verdict, outcome.detail) == (Verdict.PASS, "both empty")


@pytest.mark.parametrize(("old", "new"), [(None, 0), (0, None), (None, 5), (5, None)])
def test_a_sum_that_is_missing_on_one_side_is_not_zero(old: Scalar, new: Scalar) -> None:
    outcome = compare_sum(old, new, change_between=[-100, 100])
    assert outcome.verdict is Verdict.FAIL
    assert "no value" in outcome.actual
    assert "is not 0" in outcome.detail


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity"), "12", True])
def test_a_sum_that_is_no_finite_number_is_an_error(bad: Scalar) -> None:
    for old, new in ((bad, 1), (1, bad)):
        assert compare_sum(old, new, max_abs_change=1).verdict is Verdict.ERROR


@pytest.mark.parametrize("bad", ["12", True])
def test_a_sum_that_is_no_number_on_both_sides_is_an_error(bad: Scalar) -> None:
    assert compare_sum(bad, bad, max_abs_change=1).verdict is Verdict.ERROR


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity")])
def test_a_number_that_is_not_finite_on_both_sides_is_as_before_where_the_bound_lets_it_stay(bad: Any) -> None:
    outcome = compare_sum(bad, bad, change_between=[0, 10])
    assert (outcome.verdict, outcome.actual) == (Verdict.PASS, f"{bad}, as before")
    assert compare_sum(bad, bad, change_between=["-1%", "1%"]).verdict is Verdict.PASS
    assert compare_sum(bad, bad, change_between=[1, 10]).verdict is Verdict.ERROR
    mean = spec(compare=[{"avg": {"column": "net", "max_abs_change": 0}}])
    of_rows = {ROWS: 10, Metric(MetricKind.NULLS, ("net",)): 0, SUM: bad}
    (averaged,) = [one for name, one in evaluate(mean, of_rows, of_rows).items() if name.startswith("avg")]
    assert averaged.verdict is Verdict.PASS


def test_infinity_beside_the_other_or_beside_nan_is_an_error_that_names_a_way_on() -> None:
    for old, new in ((float("inf"), float("-inf")), (float("nan"), float("inf")), (1.0, float("nan"))):
        outcome = compare_sum(old, new, change_between=[0, 10])
        assert outcome.verdict is Verdict.ERROR
        assert "NULL is what stands for a number that is not there" in outcome.detail


def test_decimal_sums_are_compared_to_the_last_of_38_digits() -> None:
    old = Decimal("12345678901234567890123456789012345.678")
    assert compare_sum(old, old, max_abs_change=0).verdict is Verdict.PASS
    off = Decimal("12345678901234567890123456789012345.679")
    assert compare_sum(old, off, max_abs_change=0).verdict is Verdict.FAIL
    assert compare_sum(old, off, max_abs_change=0).actual.startswith(f"{off}, from {old}: +0.001")
    assert compare_sum(Decimal(0), old, max_abs_change=str(old)).verdict is Verdict.PASS
    assert compare_sum(Decimal("-0.001"), old, max_abs_change=str(old)).verdict is Verdict.FAIL


def test_float_sums_are_compared_within_rounding_and_say_so() -> None:
    values = [0.1] * 10
    forwards, exact = sum(values), 1.0
    assert forwards != exact
    outcome = compare_sum(exact, forwards, change_between=[0, 0])
    assert (outcome.verdict, outcome.detail) == (Verdict.PASS, "compared within floating point rounding")
    assert compare_sum(1.0, 1.00001, change_between=[0, 0]).verdict is Verdict.FAIL
    assert compare_sum(1e300, 1e300, max_abs_change=0).verdict is Verdict.PASS


@settings(deadline=None)
@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20), st.integers(-200, 200), st.integers(0, 200))
def test_percentages_are_exact(old: int, new: int, low: int, width: int) -> None:
    outcome = compare_sum(old, new, change_between=[f"{low}%", f"{low + width}%"])
    change = 100 * (new - old)
    expected = low * abs(old) <= change <= (low + width) * abs(old)
    if old == 0:
        # Of 0 there is no percentage; only 0 that stays 0 needs none.
        expected = new == 0 and low <= 0 <= low + width
        assert outcome.verdict is (Verdict.PASS if expected else Verdict.ERROR)
    assert (outcome.verdict is Verdict.PASS) == expected


def test_row_counts_are_compared_against_the_source_when_asked() -> None:
    of = spec(compare=[{"row_count": {"against": "source", "max_abs_change": 0}}])
    assert metrics_for(of).of("source") == (ROWS,)
    name = "row_count against source"
    assert evaluate(of, {ROWS: 10}, {ROWS: 99}, {ROWS: 10})[name].verdict is Verdict.PASS
    assert evaluate(of, {ROWS: 10}, {ROWS: 10}, {ROWS: 11})[name].verdict is Verdict.FAIL
    assert evaluate(of, {ROWS: 10}, {ROWS: 10}, {})[name].verdict is Verdict.ERROR
    both = evaluate(of, {ROWS: 0}, {ROWS: 0}, {ROWS: 0})[name]
    assert (both.verdict, both.detail) == (Verdict.PASS, "both empty")


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"max_added": 1, "max_removed": 2, "max_changed": 3}, Verdict.PASS),
        ({"max_added": 0}, Verdict.FAIL),
        ({"max_removed": 1}, Verdict.FAIL),
        ({"max_changed": 2}, Verdict.FAIL),
    ],
)
def test_each_kind_of_row_difference_has_its_own_bound(bounds: dict[str, int], verdict: Verdict) -> None:
    diff = RowDiff(old=15, new=14, identical=10, changed=3, added=1, removed=2)
    outcome = evaluate(spec(compare=[{"row_diff": bounds}]), {ROWS: 14}, diff=diff)["row_diff"]
    assert (outcome.verdict, outcome.actual) == (verdict, "1 added, 2 removed, 3 changed")


@pytest.mark.parametrize(
    "compare",
    [[], [{"row_diff": {}}], [{"row_diff": {"max_added": 0}}], [{"row_diff": {"severity": "warn"}}]],
    ids=str,
)
@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"new_null_keys": 1}, "0 staged rows repeat a key, 1 lack one"),
        ({"new_duplicate_keys": 5}, "5 staged rows repeat a key, 0 lack one"),
        ({"new_duplicate_keys": 5, "old_duplicate_keys": 7}, "5 staged rows repeat a key, 0 lack one"),
    ],
    ids=str,
)
def test_staged_keys_that_are_not_unique_always_fail_before_any_row_difference(
    compare: list[Any], keys: dict[str, int], found: str
) -> None:
    outcome = evaluate(spec(compare=compare), {ROWS: 3}, diff=RowDiff(old=2, new=3, **keys))["row_diff"]
    assert (outcome.verdict, outcome.severity) == (Verdict.FAIL, "error")
    assert (outcome.expected, outcome.actual) == ("a key that is unique", found)
    assert outcome.detail.startswith("key not unique in the staged rows: ")


OLD_FAULTS = [
    ({"old_duplicate_keys": 6}, "6 published rows repeat a key, 0 lack one"),
    ({"old_null_keys": 2}, "0 published rows repeat a key, 2 lack one"),
]


@pytest.mark.parametrize(("keys", "found"), OLD_FAULTS, ids=str)
@pytest.mark.parametrize("bounds", [{}, {"max_added": 0}], ids=str)
@pytest.mark.parametrize(("severity", "verdict"), [("error", Verdict.FAIL), ("warn", Verdict.WARN)])
def test_published_keys_that_are_not_unique_fail_a_row_difference_that_was_asked_for(
    keys: dict[str, int], found: str, bounds: dict[str, int], severity: str, verdict: Verdict
) -> None:
    of = spec(compare=[{"row_diff": bounds | {"severity": severity}}])
    outcome = evaluate(of, {ROWS: 3}, diff=RowDiff(old=9, new=3, **keys))["row_diff"]
    assert (outcome.verdict, outcome.actual) == (verdict, found)
    assert outcome.detail.startswith("the published rows repeat or lack keys, so rows cannot be matched")
    assert "remove row_diff" in outcome.detail


@pytest.mark.parametrize(("keys", "found"), OLD_FAULTS, ids=str)
def test_published_keys_that_are_not_unique_are_a_warning_when_no_row_difference_was_asked_for(
    keys: dict[str, int], found: str
) -> None:
    of = spec(compare=[{"row_count": {"max_abs_change": 9}}])
    outcome = evaluate(of, {ROWS: 3}, diff=RowDiff(old=9, new=3, **keys))["row_diff"]
    assert (outcome.verdict, outcome.severity, outcome.actual) == (Verdict.WARN, "warn", found)
    assert "could not be matched" in outcome.detail
    assert "the staged rows do neither" in outcome.detail


def test_the_row_difference_is_evidence_also_when_nothing_bounds_it() -> None:
    diff = RowDiff(old=10, new=11, identical=8, changed=2, added=1)
    outcome = evaluate(spec(), {ROWS: 11}, diff=diff)["row_diff"]
    assert (outcome.verdict, outcome.actual) == (Verdict.PASS, "1 added, 0 removed, 2 changed")


def test_every_check_and_every_comparison_has_an_outcome_in_the_order_of_the_spec() -> None:
    of = spec(
        checks=[check for check, _, _ in CHECKS] + [{"row_count": {"min_value": 1}}, SQL_CHECK],
        compare=[
            {"row_count": {"max_abs_change": 0}},
            {"sum": {"column": "net", "max_abs_change": 0}},
            {"row_diff": {}},
        ],
    )
    needed = metrics_for(of)
    measured: dict[Metric, Scalar] = dict.fromkeys(needed.staged, 1)
    outcomes = evaluate_partition(of, KEY, measured, measured, {}, RowDiff(1, 1, 1), {"no_orphans": 1})
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds == ["empty", *(check.kind for check in of.checks), *(comparison.kind for comparison in of.compare)]
    assert Verdict.ERROR not in {outcome.verdict for outcome in outcomes}
    assert len([outcome for outcome in outcomes if outcome.failed]) == 6


def test_equal_metrics_are_asked_for_once() -> None:
    of = spec(
        checks=[{"not_null": {"column": "id"}}, {"not_null": {"column": "id", "severity": "warn"}}],
        compare=[{"sum": {"column": "net", "max_abs_change": 0}}, {"row_count": {"max_abs_change": 0}}],
    )
    needed = metrics_for(of)
    assert (needed.staged, needed.baseline, needed.others) == ((ROWS, NULLS, SUM), (ROWS, SUM), {})
