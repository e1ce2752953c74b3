"""Conditions on checks, the checks of dbt_utils, the measures that are compared, and the range as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from test_check_evaluation import KEY, evaluate, spec

from airflow_backfill_provider.checks.evaluate import Outcome, Verdict, evaluate_partition, evaluate_range
from airflow_backfill_provider.checks.metrics import metrics_for, metrics_for_range
from airflow_backfill_provider.checks.row_diff import with_columns
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar
from airflow_backfill_provider.warehouses.base import Constraint, ConstraintKind, RowDiff

NULLS = Metric(MetricKind.NULLS, ("id",))


def check(body: dict[str, Any], values: dict[Metric, Any], **more: Any) -> Outcome:
    of = spec(checks=[body], **more)
    assert set(metrics_for(of).staged) <= set(values) | {ROWS}
    return next(o for o in evaluate(of, {ROWS: 10} | values).values() if o.kind == next(iter(body)))


@pytest.mark.parametrize(
    ("conditions", "failures", "verdict"),
    [
        ({"error_if": ">10", "warn_if": ">2"}, 2, Verdict.PASS),
        ({"error_if": ">10", "warn_if": ">2"}, 3, Verdict.WARN),
        ({"error_if": ">10", "warn_if": ">2"}, 11, Verdict.FAIL),
        ({"error_if": "> 10"}, 1, Verdict.WARN),
        ({"warn_if": "> 10"}, 1, Verdict.FAIL),
        ({"error_if": "> 5%"}, 5, Verdict.WARN),
        ({"error_if": "> 5%", "warn_if": "> 5%"}, 5, Verdict.PASS),
        ({"error_if": "> 5%"}, 6, Verdict.FAIL),
        ({"severity": "warn", "error_if": "> 1", "warn_if": "> 1"}, 6, Verdict.WARN),
        ({"severity": "warn", "warn_if": "> 6"}, 6, Verdict.PASS),
    ],
)
def test_error_if_comes_first_and_only_at_severity_error_then_warn_if(
    conditions: dict[str, Any], failures: int, verdict: Verdict
) -> None:
    outcome = check({"not_null": {"column": "id", **conditions}}, {ROWS: 100, NULLS: failures})
    assert outcome.verdict is verdict
    assert outcome.expected.startswith("0 rows with NULL; ")


MATCHED = RowDiff(10, 10, 10)
WHERE = "status = 'x'"


def test_where_narrows_what_is_counted_and_what_a_percentage_is_of() -> None:
    nulls, looked = Metric(MetricKind.NULLS, ("id",), where=WHERE), Metric(MetricKind.ROWS, where=WHERE)
    body = {"not_null": {"column": "id", "where": WHERE, "error_if": "> 50%"}}
    outcome = check(body, {ROWS: 100, looked: 4, nulls: 3})
    assert (outcome.verdict, outcome.actual) == (Verdict.FAIL, "3 of 4 rows")
    assert outcome.name == f"not_null(id) where {WHERE}"
    assert outcome.metric == nulls


def test_a_condition_that_no_row_meets_checked_nothing_and_is_no_pass() -> None:
    nulls, looked = Metric(MetricKind.NULLS, ("id",), where=WHERE), Metric(MetricKind.ROWS, where=WHERE)
    of = spec(checks=[{"not_null": {"column": "id", "where": WHERE}}])
    values = {ROWS: 10, looked: 0, nulls: 0}
    outcome = evaluate(of, values)[f"not_null(id) where {WHERE}"]
    assert (outcome.verdict, outcome.actual) == (Verdict.WARN, "none of 10 rows looked at")
    (whole,) = evaluate_range(of, values, {ROWS: 10}, {}, RowDiff(10, 10, 10), {})
    assert whole.verdict is Verdict.FAIL
    count = check({"row_count": {"max_value": 5, "where": WHERE}}, {looked: 0})
    assert (count.verdict, count.actual) == (Verdict.PASS, "0 rows")


@pytest.mark.parametrize(
    ("bounds", "nulls", "verdict"),
    [
        ({"at_least": 0.9}, 1, Verdict.PASS),
        ({"at_least": 0.91}, 1, Verdict.FAIL),
        ({"at_most": 0.5}, 5, Verdict.PASS),
        ({"at_most": 0.5}, 4, Verdict.FAIL),
        ({"at_least": 0.2, "at_most": 0.8}, 10, Verdict.FAIL),
    ],
)
def test_a_proportion_that_is_not_null_lies_in_its_bounds(bounds: dict[str, Any], nulls: int, verdict: Verdict) -> None:
    outcome = check({"not_null_proportion": {"column": "id", **bounds}}, {NULLS: nulls})
    assert (outcome.verdict, outcome.actual) == (verdict, f"{10 - nulls} of 10 rows")


@pytest.mark.parametrize(
    ("body", "metric"),
    [
        (
            {"unique_combination_of_columns": {"combination_of_columns": ["a", "b"]}},
            Metric(MetricKind.DUPLICATES, ("a", "b")),
        ),
        (
            {"relationships": {"column": "c", "to": "raw.dim", "field": "id"}},
            Metric(MetricKind.ORPHANS, ("c",), to_table="raw.dim", to_field="id"),
        ),
        ({"expression_is_true": {"expression": "a > b"}}, Metric(MetricKind.UNTRUE, expression="a > b")),
    ],
    ids=str,
)
def test_each_check_fails_on_the_rows_it_counts_and_is_an_error_where_counting_fails(
    body: dict[str, Any], metric: Metric
) -> None:
    assert check(body, {metric: 0}).verdict is Verdict.PASS
    bad = check(body, {metric: 2})
    assert (bad.verdict, bad.actual, bad.metric) == (Verdict.FAIL, "2 of 10 rows", metric)
    broken = check(body, {metric: RuntimeError("no such function")})
    assert (broken.verdict, broken.detail) == (Verdict.ERROR, "no such function")
    assert check(body | {next(iter(body)): {**next(iter(body.values())), "severity": "warn"}},
                 {metric: RuntimeError("x")}).verdict is Verdict.ERROR  # fmt: skip


MEASURES: dict[str, tuple[Metric, ...]] = {
    "sum": (Metric(MetricKind.SUM, ("n",)),),
    "min": (Metric(MetricKind.MIN, ("n",)),),
    "max": (Metric(MetricKind.MAX, ("n",)),),
    "count_distinct": (Metric(MetricKind.COUNT_DISTINCT, ("n",)),),
    "avg": (Metric(MetricKind.SUM, ("n",)), Metric(MetricKind.NULLS, ("n",))),
    "null_rate": (Metric(MetricKind.NULLS, ("n",)),),
}


def compare(kind: str, old: dict[Metric, Any], new: dict[Metric, Any], **bounds: Any) -> Outcome:
    of = spec(compare=[{kind: {"column": "n", **bounds}}])
    assert set(MEASURES[kind]) <= set(metrics_for(of).staged) & set(metrics_for(of).baseline)
    return evaluate(of, {ROWS: 10} | new, {ROWS: 10} | old)[f"{kind}(n) against baseline"]


@pytest.mark.parametrize("kind", ["sum", "min", "max", "count_distinct"])
def test_every_measure_takes_every_bound(kind: str) -> None:
    (metric,) = MEASURES[kind]

    def verdict(old: Scalar, new: Scalar, **bounds: Any) -> Verdict:
        return compare(kind, {metric: old}, {metric: new}, **bounds).verdict

    assert verdict(100, 101, max_abs_change=1) is Verdict.PASS
    assert verdict(100, 102, max_abs_change=1) is Verdict.FAIL
    assert verdict(100, 92, change_between=["-8%", 0]) is Verdict.PASS
    assert verdict(100, 91, change_between=["-8%", 0]) is Verdict.FAIL
    assert verdict(100, 91, change_between=["-8%", 0], abs_tol=1) is Verdict.PASS
    assert verdict(100, 90, change_between=["-8%", 0], abs_tol=1) is Verdict.FAIL
    assert verdict(100, 101, rel_tol=0.01) is Verdict.PASS
    assert verdict(100, 102, rel_tol=0.01) is Verdict.FAIL
    assert verdict(-100, -101, rel_tol=0.01) is Verdict.PASS
    assert verdict(100, 102, rel_tol=0.01, abs_tol=2) is Verdict.PASS


def test_an_average_is_of_the_values_that_are_there_and_exact() -> None:
    total, nulls = MEASURES["avg"]
    same = compare("avg", {total: 2, nulls: 4}, {total: 3, nulls: 1}, max_abs_change=0)
    assert same.verdict is Verdict.PASS
    more = compare("avg", {total: 30, nulls: 0}, {total: Decimal("33.00"), nulls: 0}, change_between=["0%", "10%"])
    assert (more.verdict, more.actual) == (Verdict.PASS, "3.3, from 3: +0.3 (+10.00% of the old value)")
    third = compare("avg", {total: 10, nulls: 1}, {total: 10, nulls: 7}, max_abs_change=0)
    assert third.actual.startswith("3.33333333333333, from 1.11111111111111: +2.2222")
    floats = compare("avg", {total: 8.283370618941088, nulls: 9}, {total: 9.1, nulls: 9}, max_abs_change=1)
    assert floats.actual == "9.1, from 8.28337062: +0.816629381 (+9.86% of the old value)"
    none = compare("avg", {total: None, nulls: 10}, {total: 0, nulls: 0}, max_abs_change=5)
    assert (none.verdict, none.actual) == (Verdict.FAIL, "0, from no value")


def test_a_null_rate_is_a_share_of_all_rows() -> None:
    (nulls,) = MEASURES["null_rate"]
    assert compare("null_rate", {nulls: 1}, {nulls: 2}, change_between=[0, 0.1]).verdict is Verdict.PASS
    assert compare("null_rate", {nulls: 1}, {nulls: 3}, change_between=[0, 0.1]).verdict is Verdict.FAIL
    assert compare("null_rate", {nulls: 1}, {nulls: 2}, change_between=[0, "100%"]).verdict is Verdict.PASS
    empty = compare("null_rate", {nulls: 0, ROWS: 0}, {nulls: 0}, max_abs_change=1)
    assert (empty.verdict, empty.actual) == (Verdict.FAIL, "0, from no value")


@pytest.mark.parametrize("bounds", [{"change_between": ["-100%", "1000%"]}, {"rel_tol": 5}], ids=str)
@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (0, 5, Verdict.ERROR),
        (None, 5, Verdict.ERROR),
        (None, None, Verdict.ERROR),
        (0, 0, Verdict.PASS),
        (5, None, Verdict.FAIL),
    ],
)
def test_a_percentage_of_nothing_is_an_error_and_not_a_pass(
    bounds: dict[str, Any], old: Scalar, new: Scalar, verdict: Verdict
) -> None:
    (metric,) = MEASURES["sum"]
    outcome = compare("sum", {metric: old}, {metric: new}, **bounds)
    assert outcome.verdict is verdict
    assert "of the old value" in outcome.expected
    if old == 0 and new:
        assert "no percentage of an old value of 0" in outcome.detail
        assert compare("sum", {metric: old}, {metric: new}, **bounds, abs_tol=5).verdict is Verdict.PASS
        assert compare("sum", {metric: old}, {metric: new}, **bounds, abs_tol=4).verdict is Verdict.FAIL


def test_a_day_without_rows_on_both_sides_has_nothing_to_be_a_percentage_of() -> None:
    (metric,) = MEASURES["sum"]
    nothing = {ROWS: 0, metric: None}
    assert compare("sum", nothing, nothing, change_between=["-8%", "0%"]).verdict is Verdict.PASS


CONSTRAINTS = (
    Constraint(ConstraintKind.CHECK, "t_n_check", "CHECK((n > 0))", ("n",), "(n > 0)"),
    Constraint(ConstraintKind.NOT_NULL, "t_id_not_null", "NOT NULL(id)", ("id",)),
    Constraint(ConstraintKind.UNIQUE, "t_code_key", "UNIQUE(code)", ("code",), where='"code" IS NOT NULL'),
    Constraint(ConstraintKind.UNIQUE, "t_pkey", "PRIMARY KEY(ID)", ("ID",), where='"ID" IS NOT NULL'),
)


def test_a_broken_constraint_fails_with_its_text_and_a_whole_one_passes() -> None:
    of = spec()
    metrics = metrics_for(of, CONSTRAINTS).staged
    assert len(metrics) == 4, "rows, and one for each constraint but the key's"
    good: dict[Metric, Scalar] = {metric: 10 if metric == ROWS else 0 for metric in metrics}

    def verdicts(values: dict[Metric, Any], diff: RowDiff = MATCHED) -> dict[str, Outcome]:
        outcomes = evaluate_partition(of, KEY, values, {ROWS: 10}, {}, diff, {}, CONSTRAINTS)
        return {outcome.name: outcome for outcome in outcomes if outcome.kind == "constraint"}

    assert {outcome.verdict for outcome in verdicts(good).values()} == {Verdict.PASS}
    assert list(verdicts(good)) == [constraint.name for constraint in CONSTRAINTS]
    for constraint, metric in zip(CONSTRAINTS, metrics[1:], strict=False):
        bad = verdicts(good | {metric: 2})
        assert {name for name, outcome in bad.items() if outcome.failed} == {constraint.name}
        assert bad[constraint.name].expected == f"no row that breaks {constraint.text}"
        broken = verdicts(good | {metric: RuntimeError("x")})[constraint.name]
        assert (broken.verdict, broken.detail) == (Verdict.ERROR, "x")
    repeated = verdicts(good, RowDiff(10, 11, new_duplicate_keys=1))
    assert repeated["t_pkey"].verdict is Verdict.FAIL


@dataclass
class Case:
    body: dict[str, Any]
    partition: bool
    whole: bool


@pytest.mark.parametrize(
    "case",
    [
        Case({"checks": [{"not_null": {"column": "id"}}]}, True, True),
        Case({"checks": [{"not_null": {"column": "id", "error_if": "> 10"}}]}, True, False),
        Case({"checks": [{"not_null": {"column": "id", "error_if": "> 1%"}}]}, True, True),
        Case({"checks": [{"not_null": {"column": "id", "over": "range"}}]}, False, True),
        Case({"checks": [{"row_count": {"min_value": 1}}]}, True, True),
        Case({"checks": [{"row_count": {"max_value": 9}}]}, True, False),
        Case({"checks": [{"row_count": {"max_value": 9, "over": "both"}}]}, True, True),
        Case({"compare": [{"row_count": {"change_between": ["-8%", 0]}}]}, True, True),
        Case({"compare": [{"row_count": {"max_abs_change": 0}}]}, True, True),
        Case({"compare": [{"row_count": {"max_abs_change": 5}}]}, True, False),
        Case({"compare": [{"max": {"column": "n", "max_abs_change": 5}}]}, True, True),
        Case({"compare": [{"row_diff": {"max_added": 0}}]}, True, True),
        Case({"compare": [{"row_diff": {"max_changed": 7}}]}, True, False),
        Case({"compare": [{"row_diff": {"max_changed": 7, "over": "range"}}]}, False, True),
    ],
    ids=lambda case: str(case.body),
)
def test_an_entry_is_judged_over_the_range_too_unless_its_bound_would_have_to_grow(case: Case) -> None:
    of = spec(**case.body)
    (kind,) = next(iter(case.body.values()))[0]
    values = dict.fromkeys((*metrics_for(of).staged, *metrics_for_range(of).staged), 1)
    partition = evaluate_partition(of, KEY, values, values, values, RowDiff(1, 1, 1), {})
    whole = evaluate_range(of, values, values, values, RowDiff(1, 1, 1), {})
    assert [outcome.partition for outcome in whole] == [None] * case.whole
    judged = [outcome for outcome in partition if outcome.kind == kind and outcome.expected != "a key that is unique"]
    assert len(judged) == case.partition


def test_a_unique_key_over_the_range_is_known_when_no_key_is_new() -> None:
    of = spec(checks=[{"unique": {"column": "ID"}}])
    (known,) = evaluate_range(of, {ROWS: 10}, {ROWS: 10}, {}, RowDiff(10, 10, 10), {}, no_new_keys=True)
    assert (known.verdict, known.actual) == (Verdict.PASS, "no key is new")
    (unmeasured,) = evaluate_range(of, {ROWS: 10}, {ROWS: 10}, {}, RowDiff(10, 10, 10), {})
    assert unmeasured.verdict is Verdict.ERROR


def test_a_failing_row_difference_names_what_changed_and_hints_at_volatile_columns() -> None:
    of = spec(compare=[{"row_diff": {"max_changed": 0}}])
    diff = RowDiff(old=3, new=3, changed=3)
    outcome = with_columns(evaluate(of, {ROWS: 3}, diff=diff)["row_diff"], diff, {"n": 1, "loaded_at": 3})
    assert "of 3 matched rows changed: loaded_at in 3, n in 1" in outcome.detail
    assert "100 % of the matched rows differ in loaded_at" in outcome.detail
    assert "exclude_columns: [loaded_at]" in outcome.detail
    some = RowDiff(old=3, new=3, identical=1, changed=2)
    assert "exclude_columns" not in with_columns(outcome, some, {"n": 1}).detail.removeprefix(outcome.detail)
