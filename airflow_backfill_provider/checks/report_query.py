"""A number that people look at, before and after: whether it moves as far as was expected."""

from __future__ import annotations

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.change import Distance
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.wording import expected_change
from airflow_backfill_provider.spec.metric import Scalar
from airflow_backfill_provider.spec.report_queries import ReportQuery

KIND = "report_query"


def judge_report_query(query: ReportQuery, old: Scalar | Exception, new: Scalar | Exception) -> Outcome:
    """Whether the change lies in the bounds; a side without a value is no pass."""
    answer = Answer(KIND, query.name, None, query.severity, sql=query.sql)
    expected = expected_change(query.change_between)
    for side in (old, new):
        if isinstance(side, Exception):
            return answer.raised(expected, side)
    if old is None or new is None:
        return answer.fail(expected, f"{_shown(new)}, from {_shown(old)}", "a side has no value, which is not 0")
    try:
        distance = Distance.between(old, new)  # type: ignore[arg-type]
    except ValueError as error:
        return answer.error(expected, "not a number", str(error))
    if query.change_between.percent and distance.old == 0:
        return answer.error(expected, str(distance), "there is no percentage of an old value of 0; bound it in numbers")
    return answer.of(distance.within(query.change_between), expected, str(distance))


def _shown(value: object) -> str:
    return "no value" if value is None else str(value)
