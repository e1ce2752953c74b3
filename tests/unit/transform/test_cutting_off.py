"""Bounding every read of the source by when its rows arrived, in the user's own text."""

from __future__ import annotations

import pytest

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.transform.cutoff import cut_off

ARRIVED = "\"ingested_at\" <= CAST('2024-06-01 12:00:00' AS TIMESTAMP)"
BOUNDED = f"(SELECT * FROM raw.orders WHERE {ARRIVED})"


def cut(select: str, source: str = "raw.orders") -> str:
    return cut_off(select, source, ARRIVED, "duckdb", "a.sql")


@pytest.mark.parametrize(
    ("select", "bounded"),
    [
        ("SELECT a FROM raw.orders", f"SELECT a FROM {BOUNDED} AS orders"),
        ("SELECT o.a FROM raw.orders AS o", f"SELECT o.a FROM {BOUNDED} AS o"),
        ("SELECT o.a FROM raw.orders o -- why", f"SELECT o.a FROM {BOUNDED} o -- why"),
        ("SELECT orders.a\nFROM  raw.orders\nWHERE a>1", f"SELECT orders.a\nFROM  {BOUNDED} AS orders\nWHERE a>1"),
        ("SELECT 'ünï' AS a FROM raw.orders", f"SELECT 'ünï' AS a FROM {BOUNDED} AS orders"),
        (
            "SELECT a FROM raw.orders, raw.other JOIN raw.orders AS p USING (a)",
            f"SELECT a FROM {BOUNDED} AS orders, raw.other JOIN {BOUNDED} AS p USING (a)",
        ),
        (
            "WITH q AS (SELECT * FROM raw.orders) SELECT a FROM q WHERE EXISTS (SELECT 1 FROM raw.orders AS x)",
            f"WITH q AS (SELECT * FROM {BOUNDED} AS orders) SELECT a FROM q WHERE EXISTS (SELECT 1 FROM {BOUNDED} AS x)",
        ),
        (
            "SELECT a FROM raw.orders UNION ALL SELECT a FROM staging.orders",
            f"SELECT a FROM {BOUNDED} AS orders UNION ALL SELECT a FROM staging.orders",
        ),
        (
            'SELECT a FROM "raw"."orders"',
            f'SELECT a FROM {BOUNDED.replace("raw.orders", chr(34) + "raw" + chr(34) + "." + chr(34) + "orders" + chr(34))} AS "orders"',
        ),
        (
            "SELECT a FROM RAW.Orders LEFT JOIN raw.other ON true",
            f"SELECT a FROM {BOUNDED.replace('raw.orders', 'RAW.Orders')} AS Orders LEFT JOIN raw.other ON true",
        ),
    ],
)
def test_every_read_is_bounded_and_all_else_stays_as_it_was_written(select: str, bounded: str) -> None:
    assert cut(select) == bounded


@pytest.mark.parametrize(
    ("select", "source", "told"),
    [
        ("SELECT a FROM raw.other", "raw.orders", "does not read raw.orders"),
        ("SELECT a FROM orders", "raw.orders", "may be raw.orders under another name"),
        ("SELECT a FROM db.raw.orders", "raw.orders", "may be raw.orders under another name"),
        ("SELECT a FROM raw.orders JOIN main.raw.orders AS m USING (a)", "raw.orders", "under another name"),
        ("WITH orders AS (SELECT * FROM orders) SELECT a FROM orders", "orders", "calls a WITH query orders"),
        ("WITH Orders AS (SELECT * FROM orders) SELECT a FROM orders", "ORDERS", "calls a WITH query"),
        ("SELECT a FROM raw.orders TABLESAMPLE 10%", "raw.orders", "cannot be bounded by source.cutoff"),
    ],
)
def test_a_read_that_cannot_be_bounded_is_refused(select: str, source: str, told: str) -> None:
    with pytest.raises(TransformRefused, match=told):
        cut(select, source)


def test_statements_that_differ_in_their_literals_are_bounded_alike() -> None:
    for day in ("'a'", "'a much longer one'", "7"):
        select = f"SELECT {day} AS a FROM raw.orders AS o JOIN raw.orders USING (a) WHERE d = {day}"
        assert cut(select) == (
            f"SELECT {day} AS a FROM {BOUNDED} AS o JOIN {BOUNDED} AS orders USING (a) WHERE d = {day}"
        )
