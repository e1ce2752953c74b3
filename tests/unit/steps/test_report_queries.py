"""The team's own queries are asked before the publish, of the table as it is and as it would be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from report_reading import Report
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.checks.outcome import Verdict
from airflow_backfill_provider.checks.report_query import judge_report_query
from airflow_backfill_provider.errors import SpecError, ValidationFailed
from airflow_backfill_provider.spec.report_queries import ReportQuery

TOTAL = (
    f"SELECT sum(o.amount) FROM analytics.orders AS o WHERE o.order_date BETWEEN DATE '{DAYS[0]}' AND DATE '{DAYS[-1]}'"
)


def spec(low: Any, high: Any, sql: str = TOTAL, **more: Any) -> Any:
    query = {"name": "revenue of March", "sql": sql, "change_between": [low, high], **more}
    return make_spec(report_queries=[query])


def test_the_number_after_the_publish_is_the_one_that_was_said_before_it_and_leads_the_report(world: World) -> None:
    ((old,),) = world.engine.rows(TOTAL)
    world.spec = spec(-5000, 0)
    world.prepare()
    before = Report(world).sentence
    assert world.engine.rows(TOTAL) == [(old,)]
    world.publish()
    ((new,),) = world.engine.rows(TOTAL)
    assert f"revenue of March: {new:,}, from {old:,}: {new - old:,} " in before
    assert "(expected a change in [-5000, 0])" in before


def test_a_number_that_moves_further_than_expected_stops_the_publish_before_it(world: World) -> None:
    world.spec = spec("-1%", "0%")
    published = world.published()
    with pytest.raises(ValidationFailed, match=r"revenue of March: fail: expected a change in \[-1%, 0%\]"):
        world.prepare()
    assert world.published() == published


def test_a_query_that_fails_or_has_no_one_value_is_an_error(world: World) -> None:
    world.spec = spec(0, 0, "SELECT o.amount FROM analytics.orders AS o")
    with pytest.raises(ValidationFailed, match=r"error: .*more than 1 row"):
        world.prepare()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT 1", "does not read analytics.orders"),
        ("SELECT count(*) FROM raw.orders", "does not read analytics.orders"),
        ("DELETE FROM analytics.orders", "report_queries revenue of March"),
        ("SELECT 1; SELECT 2", "report_queries revenue of March"),
    ],
)
def test_a_query_that_the_backfill_cannot_change_or_that_writes_is_refused(world: World, sql: str, reason: str) -> None:
    world.spec = spec(0, 0, sql)
    with pytest.raises(SpecError, match=reason):
        world.scope()


def test_a_side_without_a_value_is_no_pass_and_a_percentage_of_0_no_number() -> None:
    query = ReportQuery(name="n", sql="s", change_between=[-10, 10])  # type: ignore[arg-type]
    percent = ReportQuery(name="n", sql="s", change_between=["-1%", "1%"])  # type: ignore[arg-type]
    assert judge_report_query(query, 1, 2).verdict is Verdict.PASS
    assert judge_report_query(query, None, 2).verdict is Verdict.FAIL
    assert judge_report_query(query, "a", 2).verdict is Verdict.ERROR
    assert judge_report_query(percent, 0, 2).verdict is Verdict.ERROR
    assert judge_report_query(query, RuntimeError("boom"), 2).actual == "the query failed"


def test_two_numbers_have_two_names() -> None:
    query = {"name": "revenue", "sql": TOTAL, "change_between": [0, 0]}
    with pytest.raises(ValidationError, match="two report_queries are called 'revenue'"):
        make_spec(report_queries=[query, query])
