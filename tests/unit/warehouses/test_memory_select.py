from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Column
from airflow_backfill_provider.warehouses.memory.select import Select, Table

COLUMNS = (
    Column("id", "BIGINT"),
    Column("d", "DATE"),
    Column("at", "TIMESTAMP"),
    Column("amount", "DECIMAL(12,2)"),
    Column("Name", "VARCHAR"),
)
TABLES = {
    "raw.orders": Table(
        COLUMNS,
        (
            (1, date(2024, 1, 1), datetime.fromisoformat("2024-01-01 23:59:59.999999"), Decimal("1.10"), "Ann"),
            (2, date(2024, 1, 2), datetime.fromisoformat("2024-01-02 00:00:00"), None, None),
            (3, None, None, Decimal("3.00"), "bob"),
        ),
    )
}


def _run(sql: str) -> list[tuple[Any, ...]]:
    return list(Select.bind(sql, TABLES).run())


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id FROM raw.orders WHERE NOT (\"Name\" = 'Ann')", [(3,)]),
        ("SELECT id FROM raw.orders WHERE amount NOT IN (1, NULL)", []),
        ("SELECT id FROM raw.orders WHERE \"Name\" LIKE 'a%'", []),
        ("SELECT id FROM raw.orders WHERE \"Name\" ILIKE 'a%'", [(1,)]),
        ("SELECT id FROM raw.orders WHERE at = d", [(2,)]),
        ("SELECT id FROM raw.orders WHERE at < DATE '2024-01-02'", [(1,)]),
        ("SELECT id FROM raw.orders WHERE d = '2024-01-02'", [(2,)]),
        ("SELECT id FROM raw.orders WHERE at >= TIMESTAMP '2024-01-01 23:59:59.999999' AND at < TIMESTAMP '2024-01-02'", [(1,)]),
        ("SELECT id FROM raw.orders EXCEPT SELECT id FROM raw.orders WHERE id = 1", [(2,), (3,)]),
        ("SELECT sum(amount) AS s, count(amount) AS n, count(*) AS r FROM raw.orders", [(Decimal("4.10"), 2, 3)]),
        ("SELECT sum(amount) AS s FROM raw.orders WHERE id = 2", [(None,)]),
        ("SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM raw.orders WHERE id < 3", [(2, 1), (1, 2)]),
        ("SELECT TRY_CAST('x' AS BIGINT) AS x, CAST('7' AS BIGINT) AS y, CAST(at AS DATE) AS z FROM raw.orders WHERE id = 1",
         [(None, 7, date(2024, 1, 1))]),
        ("SELECT CAST(d AS VARCHAR) AS t, CAST(1.005 AS DECIMAL(4,2)) AS m FROM raw.orders WHERE id = 1",
         [("2024-01-01", Decimal("1.01"))]),
        ("SELECT orders.id FROM raw.orders JOIN raw.orders AS o ON o.id = orders.id WHERE raw.orders.id = 1", [(1,)]),
        ("WITH orders AS (SELECT 9 AS id) SELECT id FROM orders", [(9,)]),
        ("SELECT 'raw.orders' AS t, '\"; --' AS u", [("raw.orders", '"; --')]),
    ],
)  # fmt: skip
def test_sql_means_what_it_means_elsewhere(sql: str, rows: list[tuple[Any, ...]]) -> None:
    assert _run(sql) == rows


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT CAST('x' AS BIGINT) AS x", "a value is not a BIGINT"),
        ('SELECT "nope" FROM raw.orders', "nope"),
        ("SELECT name FROM raw.orders", "name"),
        ("SELECT no_such_function(id) AS x FROM raw.orders", "(?i)no_such_function"),
        ("SELECT 1 AS x FROM raw.absent", "raw.absent.*raw.orders"),
        ("SELECT date_trunc('month', at) AS x FROM raw.orders", "failed"),
        ("SELECT d + INTERVAL 1 DAY AS x FROM raw.orders", "failed"),
        ("SELECT id FROM raw.orders WHERE", "bound"),
    ],
)
def test_what_cannot_be_run_is_an_error_and_never_another_answer(sql: str, reason: str) -> None:
    with pytest.raises(WarehouseError, match=reason):
        _run(sql)


def test_a_number_with_more_digits_than_a_double_holds_is_refused() -> None:
    table = Table((Column("n", "DECIMAL(38,2)"),), ((Decimal("12345678901234567.89"),),))

    with pytest.raises(WarehouseError, match="digits"):
        Select.bind("SELECT n FROM t", {"t": table}).run()


def test_a_table_read_twice_is_bound_to_the_rows_it_has_then() -> None:
    empty = {"raw.orders": Table(COLUMNS)}

    assert len(Select.bind("SELECT * FROM raw.orders", TABLES).run()) == 3
    assert Select.bind("SELECT * FROM raw.orders", empty).run() == ()
