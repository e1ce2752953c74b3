"""A name that a WITH defines hides a table only where it stands for it."""

from __future__ import annotations

import pytest
import sqlglot

from airflow_backfill_provider.real_tables import real_tables
from airflow_backfill_provider.transform import may_read_table


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["orders"]),
        ("SELECT * FROM t WHERE id IN (WITH orders AS (SELECT * FROM orders) SELECT id FROM orders)", ["t", "orders"]),
        ("WITH a AS (SELECT 1), orders AS (SELECT * FROM a) SELECT * FROM orders JOIN x ON TRUE", ["x"]),
        ("WITH RECURSIVE orders AS (SELECT 1 UNION ALL SELECT * FROM orders) SELECT * FROM orders", []),
        ("WITH orders AS (SELECT 1) SELECT * FROM orders JOIN analytics.orders AS o ON TRUE", ["o"]),
        ("WITH a AS (SELECT 1) SELECT * FROM (SELECT * FROM orders) AS a JOIN a AS b ON TRUE", ["orders"]),
    ],
)
def test_a_table_is_told_from_a_name_of_the_same_query(sql: str, tables: list[str]) -> None:
    found = real_tables(sqlglot.parse_one(sql, dialect="duckdb"))
    assert [table.alias_or_name for table in found] == tables


def test_a_query_that_hides_the_target_behind_its_own_name_may_read_it() -> None:
    sql = "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders"
    assert may_read_table(sql, "analytics.orders", "duckdb")
