from __future__ import annotations

import pytest

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.predicate import row_expression, unknown_columns


@pytest.mark.parametrize(
    "text",
    [
        "amount > 0",
        "\"q x\" ILIKE 'a%; --' AND NOT note IS NULL",
        "CASE WHEN a THEN b END",
        "a + b = c -- as invoiced",
        "a IN (1, 2)",
        "is_valid",
    ],
)
def test_one_expression_over_a_row_is_kept(text: str) -> None:
    written = row_expression(text, "duckdb")
    assert row_expression(written, "duckdb") == written
    assert "--" not in written.replace("'a%; --'", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a > 0; DROP TABLE t", "without a semicolon"),
        ("a > 0;", "without a semicolon"),
        ("a) OR (1 = 1", "is not one expression"),
        ("a, b", "is not one expression"),
        ("", "is not one expression"),
        ("-- nothing", "is not one expression"),
        ("SELECT 1", "is SELECT, not an expression"),
        ("DELETE FROM t", "is DELETE, not an expression"),
        ("DROP TABLE t", "not an expression"),
        ("a AS b", "is ALIAS"),
        ("a IN (SELECT id FROM t)", "reads the columns of one row"),
        ("EXISTS (SELECT 1)", "reads the columns of one row"),
        ("sum(a) > 1", "reads the columns of one row"),
        ("row_number() OVER () = 1", "reads the columns of one row"),
        ("a = ?", "reads the columns of one row"),
        ("t.a = 1", "name columns without their table"),
    ],
)
def test_anything_more_than_one_expression_over_a_row_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        row_expression(text, "duckdb")


def test_columns_are_found_in_any_case() -> None:
    assert unknown_columns("Amount > 0 AND nosuch = 1", "duckdb", ["amount"]) == ["nosuch"]
