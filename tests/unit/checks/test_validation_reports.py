from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_backfill_provider.checks.evaluate import Outcome, Verdict
from airflow_backfill_provider.checks.report import ValidationReport
from airflow_backfill_provider.spec.metric import ROWS

PASS = Outcome("not_null", "not_null(id)", "2013-02-08", Verdict.PASS, "error", "0 rows with NULL", "0 of 9 rows")
FAIL = replace(PASS, name="unique(id)", verdict=Verdict.FAIL, actual="3 of 9 rows", sql="SELECT 'é'", metric=ROWS)
WARN = replace(FAIL, name="row_count", partition="2013-02-09", verdict=Verdict.WARN, severity="warn")
ERROR = replace(FAIL, name="sql x", partition="2013-02-10", verdict=Verdict.ERROR, detail="no such column", sql=None)


@pytest.mark.parametrize(
    ("outcomes", "verdict", "ok"),
    [
        ((PASS,), Verdict.PASS, True),
        ((PASS, WARN), Verdict.WARN, True),
        ((WARN, FAIL, PASS), Verdict.FAIL, False),
        ((PASS, ERROR, FAIL), Verdict.ERROR, False),
        ((), Verdict.ERROR, False),
    ],
)
def test_the_worst_outcome_decides_and_nothing_checked_is_no_pass(
    outcomes: tuple[Outcome, ...], verdict: Verdict, ok: bool
) -> None:
    report = ValidationReport(outcomes)
    assert (report.verdict, report.ok) == (verdict, ok)


def test_every_failure_has_a_line_with_all_one_needs_to_look() -> None:
    report = ValidationReport((PASS, WARN, FAIL, ERROR))
    assert report.lines() == [
        "2013-02-08: unique(id): fail: expected 0 rows with NULL, found 3 of 9 rows; SQL: SELECT 'é'",
        "2013-02-10: sql x: error: expected 0 rows with NULL, found 3 of 9 rows; no such column",
        "2013-02-09: row_count: warn: expected 0 rows with NULL, found 3 of 9 rows; SQL: SELECT 'é'",
    ]


def test_a_warning_rejects_no_partition_and_an_error_does() -> None:
    report = ValidationReport((PASS, WARN, ERROR))
    assert report.rejected_keys == {"2013-02-10"}
    assert (report.failures, report.warnings) == ((ERROR,), (WARN,))


def test_the_summary_is_one_line_with_counts_and_names() -> None:
    report = ValidationReport((PASS, WARN, FAIL, ERROR))
    assert report.summary() == (
        "error: 2 of 3 partitions rejected; 1 pass, 1 warn, 1 fail, 1 error (unique(id), sql x)"
    )
    assert ValidationReport((PASS,)).summary() == "pass: 0 of 1 partitions rejected; 1 pass"
    assert ValidationReport(()).summary() == "error: nothing was checked"


def test_a_report_comes_back_from_json_without_the_metric() -> None:
    report = ValidationReport((PASS, WARN, FAIL, ERROR, Outcome.of_range("key_repeated", "once", 2, ["7"])))
    read = ValidationReport.from_json(json.loads(json.dumps(report.to_json())))
    assert read.outcomes == tuple(replace(outcome, metric=None) for outcome in report.outcomes)
    assert (read.verdict, read.summary(), read.lines()) == (report.verdict, report.summary(), report.lines())


def test_the_whole_range_has_an_outcome_without_a_partition() -> None:
    clean = Outcome.of_range("key_repeated", "every staged id once", 0, ["never shown"])
    assert (clean.verdict, clean.partition, clean.detail) == (Verdict.PASS, None, "")
    bad = Outcome.of_range("key_repeated", "every staged id once", 2, ["7", "8"])
    assert (bad.verdict, bad.actual, bad.detail) == (Verdict.FAIL, "2", "for example 7, 8")
    report = ValidationReport((bad,))
    assert report.rejected_keys == frozenset()
    assert report.summary() == "fail: 1 fail (every staged id once)"
    assert report.lines() == ["whole range: every staged id once: fail: expected 0, found 2; for example 7, 8"]


def test_a_statement_can_be_added_to_an_outcome() -> None:
    assert PASS.with_sql("SELECT 1") == replace(PASS, sql="SELECT 1")
    assert PASS.sql is None
