from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from airflow.providers.common.sql.operators.sql import SQLCheckResult

from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.checks.report import ValidationReport
from airflow_backfill_provider.operators.check_results import AT_MOST, TEXT_AT_MOST, XCOM_KEY, check_results, push
from airflow_backfill_provider.spec.metric import Metric, MetricKind

NULLS = Metric(MetricKind.NULLS, ("id",))


def outcome(verdict: Verdict, number: int = 0, **more: Any) -> Outcome:
    values: dict[str, Any] = {
        "expected": "0 rows with NULL",
        "actual": "3 of 10 rows",
        "sql": "SELECT 1",
        "metric": NULLS,
    }
    return Outcome("not_null", "not_null(id)", f"day {number}", verdict, "error", **(values | more))


def test_failures_and_warnings_have_the_shape_of_common_sql_and_passes_are_counted() -> None:
    report = ValidationReport((outcome(Verdict.PASS), outcome(Verdict.WARN, 1), outcome(Verdict.ERROR, 2)))
    error, warning, summary = check_results(report, "analytics.t")
    assert asdict(error) == asdict(
        SQLCheckResult(
            name="not_null(id) [day 2]",
            check_type="not_null",
            success=False,
            severity="error",
            column="id",
            table="analytics.t",
            expected="0 rows with NULL",
            actual="3 of 10 rows",
            content="SELECT 1",
            description=None,
            params={"partition": "day 2", "verdict": "error"},
        )
    )
    assert (warning.severity, warning.success) == ("warn", False)
    assert (summary.check_type, summary.success) == ("summary", False)
    assert summary.params == {"pass": 1, "warn": 1, "fail": 0, "error": 1, "left_out": 0}
    assert check_results(ValidationReport((outcome(Verdict.PASS),)), "t")[0].success is True


class Ti:
    """What an operator pushes to."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))


def test_what_goes_to_xcom_is_bounded_however_much_fails() -> None:
    long = "x" * 10_000
    bad = [outcome(Verdict.FAIL, n, sql=long, expected=long, actual=long, detail=long) for n in range(3_000)]
    passes = [outcome(Verdict.PASS, n) for n in range(3_000)]
    ti = Ti()
    push({"ti": ti}, ValidationReport((*passes, *bad)), "t")  # type: ignore[arg-type,typeddict-item]
    pushed = ti.pushed[XCOM_KEY]
    assert len(pushed) == AT_MOST + 1
    assert max(len(text) for result in pushed for text in result.values() if isinstance(text, str)) == TEXT_AT_MOST
    assert pushed[-1]["params"]["left_out"] == 3_000 - AT_MOST
    assert pushed[-1]["params"]["pass"] == 3_000
    assert len(json.dumps(pushed)) < 200_000
