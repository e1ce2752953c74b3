"""A dbt model's compiled SQL is bounded as dbt bounds it in a run, read by read, and nothing else in it changes."""

from __future__ import annotations

import pytest

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.spec.transforms import SqlTransform
from airflow_backfill_provider.transform import EventTime, cut_to_window, held_to_batch, render
from airflow_backfill_provider.windows import Grain, parse_key

DAY = parse_key("2013-02-08", Grain.DAY, "UTC")
ORDERS = EventTime('"w"."raw"."orders"', "ordered_at")
LINES = EventTime('"w"."raw"."lines"', "ordered_at")
BETWEEN = "where ordered_at >= '2013-02-08 00:00:00+00:00' and ordered_at < '2013-02-09 00:00:00+00:00'"


def batch(sql: str, *parents: EventTime) -> str:
    """The SQL of February 8."""
    return render(SqlTransform(sql=held_to_batch(sql, parents, "duckdb", "dbt model m").template), DAY)


def test_each_read_of_a_parent_becomes_the_text_that_dbt_writes_in_a_run() -> None:
    sql = 'select o.id from "w"."raw"."orders" as o join "w"."raw"."lines" l on l.id = o.id, "w"."raw"."other"'
    assert batch(sql, ORDERS, LINES) == (
        f'select o.id from (select * from "w"."raw"."orders" {BETWEEN}) as o '
        f'join (select * from "w"."raw"."lines" {BETWEEN}) l on l.id = o.id, "w"."raw"."other"'
    )


def test_an_ephemeral_model_is_bounded_where_it_is_read_and_what_it_reads_is_not() -> None:
    sql = 'with __dbt__cte__eph as (\nselect * from "w"."raw"."orders"\n) select * from __dbt__cte__eph'
    bounded = batch(sql, ORDERS, EventTime("__dbt__cte__eph", "ordered_at"))
    assert bounded.startswith('with __dbt__cte__eph as (\nselect * from "w"."raw"."orders"\n)')
    assert bounded.endswith(f"(select * from __dbt__cte__eph {BETWEEN}) AS __dbt__cte__eph")


def test_a_full_build_is_cut_by_the_column_of_the_target() -> None:
    sql = cut_to_window("select 1 as day;\n", "day", "duckdb", "dbt model m").template
    assert render(SqlTransform(sql=sql), DAY) == (
        "select * from (\nselect 1 as day\n) as built "
        "where \"day\" >= '2013-02-08 00:00:00+00:00' and \"day\" < '2013-02-09 00:00:00+00:00'"
    )


def test_braces_that_dbt_left_in_the_sql_stay_what_they_are() -> None:
    sql = "select '{{ x }} {% y %} {# z #} {{{' as braces"
    assert batch(sql) == sql


@pytest.mark.parametrize(
    ("sql", "parent", "told"),
    [
        ("select 1; select 2", ORDERS, "compiles to 2 statements"),
        ('select * from "w"."raw"."orders" tablesample 1%', ORDERS, "cannot be bounded to a batch"),
        ('select * from "w"."raw"."orders"', EventTime(ORDERS.relation, "a) or (b"), "cannot be bounded by"),
        ("select (", ORDERS, "is not one statement"),
    ],
)
def test_what_cannot_be_bounded_is_refused(sql: str, parent: EventTime, told: str) -> None:
    with pytest.raises(TransformRefused, match=told):
        held_to_batch(sql, [parent], "duckdb", "dbt model m")
