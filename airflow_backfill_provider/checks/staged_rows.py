"""Checks: verdicts about the staged rows alone."""

from __future__ import annotations

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.findings import Findings, count, failure
from airflow_backfill_provider.checks.metrics import looked_at, metric_of_check
from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.checks.wording import expected_of_check, name_of_check
from airflow_backfill_provider.spec.checks import Check, NotNullProportion, RowCount, Sql
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.spec.threshold import NOT_ZERO, Threshold


def judge_emptied(found: Findings, *, allow_empty: bool) -> Outcome:
    """Whether a partition that had rows comes out with none."""
    answer = Answer("empty", "rows are not replaced by none", found.key, "error", ROWS)
    new, old = count(found.staged, ROWS), count(found.baseline, ROWS)
    if new is None or old is None:
        return answer.error("rows", "not measured", "the row count is missing")
    shown = f"{new} rows, from {old}"
    if new > 0 or old == 0:
        return answer.passed("rows where there were rows", shown, "" if new else "both empty")
    if allow_empty:
        return answer.passed("rows, or none", shown, "no rows; allow_empty")
    return answer.fail(
        "rows where there were rows",
        shown,
        "set allow_empty: true in the spec when the partition is meant to be emptied",
    )


def judge_check(check: Check, found: Findings, *, allow_empty: bool) -> Outcome:
    """One check's verdict; no rows, and no row that ``where`` leaves, is never a pass by itself."""
    query = check.query if isinstance(check, Sql) else None
    metric = metric_of_check(check)
    answer = Answer(check.kind, name_of_check(check), found.key, check.severity, metric, query)
    expected = expected_of_check(check)
    if isinstance(check, Sql):
        failures = found.sql_failures.get(check.name)
        raised = failures if isinstance(failures, Exception) else failure(found.staged, looked_at(check))
    else:
        failures = count(found.staged, metric)
        raised = failure(found.staged, metric, looked_at(check))
    if raised is not None:
        return answer.raised(expected, raised)
    rows, looked = count(found.staged, ROWS), count(found.staged, looked_at(check))
    if rows is None or looked is None or not isinstance(failures, int):
        return answer.unmeasured(expected)
    if rows == 0 and not allow_empty:
        return answer.fail(expected, "no rows", "no data")
    if rows and not looked and not isinstance(check, RowCount):
        # Most days may have no such row; a condition that no row of the whole range meets is misspelt.
        detail = f"no row meets {check.where!r}, so nothing was checked"
        if found.key is None:
            return answer.fail(expected, f"none of {rows} rows looked at", detail)
        return answer.make(Verdict.WARN, expected, f"none of {rows} rows looked at", detail)
    failures, actual = _failures(check, failures, looked)
    return answer.make(_verdict(check, failures, looked), expected, actual, "" if rows else "no rows; allow_empty")


def _failures(check: Check, measured: int, rows: int) -> tuple[int, str]:
    """How often the check failed, and what was found."""
    match check:
        case RowCount():
            low, high = check.min_value, check.max_value
            holds = (low is None or low <= measured) and (high is None or measured <= high)
            return int(not holds), f"{measured} rows"
        case NotNullProportion():
            filled = rows - measured
            # Multiplied out, since a quotient would be rounded; of no rows, every proportion holds.
            holds = check.at_least * rows <= filled <= check.at_most * rows
            return int(not holds), f"{filled} of {rows} rows"
        case Sql():
            return measured, f"{measured} rows returned"
        case _:
            return measured, f"{measured} of {rows} rows"


def _verdict(check: Check, failures: int, rows: int) -> Verdict:
    """As dbt decides: ``error_if`` first, at severity ``error`` alone; then ``warn_if``."""
    error_if, warn_if = (Threshold.parse(text) if text else NOT_ZERO for text in (check.error_if, check.warn_if))
    if check.severity == "error" and error_if.met(failures, rows):
        return Verdict.FAIL
    return Verdict.WARN if warn_if.met(failures, rows) else Verdict.PASS
