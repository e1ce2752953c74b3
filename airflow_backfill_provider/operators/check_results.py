"""Outcomes in the shape of common-sql's ``SQLCheckResult``, few enough for XCom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.context import Context

if TYPE_CHECKING:
    from airflow.providers.common.sql.operators.sql import SQLCheckResult

    from airflow_backfill_provider.checks.outcome import Outcome
    from airflow_backfill_provider.checks.report import ValidationReport

XCOM_KEY = "check_results"
AT_MOST = 50
"""Results that one task pushes: those that fail, then warnings. Passes are counted, and stand in the ledger."""
TEXT_AT_MOST = 500
"""Characters of each text in a result."""


def check_results(report: ValidationReport, table: str) -> list[SQLCheckResult]:
    """The failures, then the warnings, then one result that sums up all outcomes of this task."""
    from airflow.providers.common.sql.operators.sql import SQLCheckResult

    reported = (*report.failures, *report.warnings)
    results = [_result(outcome, table) for outcome in reported[:AT_MOST]]
    counts = {str(verdict): count for verdict, count in report.counts.items()}
    counts["left_out"] = max(0, len(reported) - AT_MOST)
    results.append(
        SQLCheckResult(
            name="safe_backfill",
            check_type="summary",
            success=report.ok,
            table=table,
            actual=_cut(report.summary()),
            description=f"All {len(report.outcomes)} outcomes of this task; the ledger has each of them.",
            params=counts,
        )
    )
    return results


def push(context: Context, report: ValidationReport, table: str) -> list[SQLCheckResult]:
    """Push the results under ``check_results``, as plain dictionaries; returns them."""
    results = check_results(report, table)
    context["ti"].xcom_push(key=XCOM_KEY, value=[asdict(result) for result in results])
    return results


def _result(outcome: Outcome, table: str) -> SQLCheckResult:
    from airflow.providers.common.sql.operators.sql import SQLCheckResult

    columns: Sequence[str] = outcome.metric.columns if outcome.metric is not None else ()
    params: dict[str, Any] = {"partition": outcome.partition, "verdict": str(outcome.verdict)}
    return SQLCheckResult(
        name=_cut(f"{outcome.name} [{outcome.partition or 'whole range'}]"),
        check_type=outcome.kind,
        success=False,
        severity="error" if outcome.failed else "warn",
        column=columns[0] if len(columns) == 1 else None,
        table=table,
        expected=_cut(outcome.expected),
        actual=_cut(outcome.actual),
        content=_cut(outcome.sql) if outcome.sql else None,
        description=_cut(outcome.detail) if outcome.detail else None,
        params=params,
    )


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_AT_MOST else f"{text[: TEXT_AT_MOST - 1]}…"
