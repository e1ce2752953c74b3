"""Code that is not ours may fill a stage: its rows are held to what a SELECT's are, and what it has done elsewhere is not kept."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb_outside
import pyarrow
import pytest
from contract_world import COLUMNS, World, day, days, row_sql

from airflow_backfill_provider.errors import BackfillError, PartitionOverrun, StrayWrite, WarehouseError
from airflow_backfill_provider.warehouses.base import Fill, Landing, Recompute, Staged, StagedPartition

DAY, NEXT = "2024-01-02", "2024-01-03"
ROWS: tuple[dict[str, Any], ...] = tuple(
    {
        "order_id": number,
        "order_date": date(2024, 1, 2),
        "Status": status,
        "amount": amount,
        "note": 'it\'s; -- "c"',
        "seen_at": datetime(2024, 1, 2, 23, 59, 59, 999999),  # noqa: DTZ001 - of a TIMESTAMP without a zone
    }
    for number, status, amount in [(20, "paid", Decimal("1.20")), (21, None, None), (22, "", Decimal("100"))]
)


@pytest.fixture(autouse=True)
def _takes_code(orders: World) -> None:
    if why := orders.warehouse.capabilities.takes_no_code:
        pytest.skip(why)


WITHOUT_LANDING = ("memory", "delta")


def kept(world: World, *fills: Fill, **settings: Any) -> Staged:
    """What is staged of a day each, by these pieces of code in one write."""
    partitions = days(DAY, NEXT)[: len(fills)]
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        return Staged(
            writer.write(
                *(Recompute((one,), fill=fill, **settings) for one, fill in zip(partitions, fills, strict=True))
            )
        )


def returning(rows: Any) -> Fill:
    return lambda landing: landing.add(rows)


def selected(world: World, rows: Iterable[dict[str, Any]]) -> StagedPartition:
    """The same rows as a SELECT stages them."""
    return world.stage({DAY: " UNION ALL ".join(row_sql(row.values()) for row in rows)}).partitions[0]


def by_frame(rows: Iterable[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(list(rows))


@pytest.mark.parametrize(
    "shaped",
    [
        list,
        iter,
        lambda rows: pyarrow.Table.from_pylist(list(rows)),
        lambda rows: pyarrow.Table.from_pylist(list(rows)).to_reader(),
        by_frame,
        lambda rows: [{name.upper(): value for name, value in reversed(row.items())} for row in rows],
    ],
    ids=["list", "iterator", "arrow", "arrow_reader", "data_frame", "other_case_and_order"],
)
def test_rows_that_code_returns_are_staged_as_a_select_s_are(orders: World, shaped: Any) -> None:
    (staged,) = kept(orders, returning(shaped(ROWS))).partitions

    assert staged.fingerprint == selected(orders, ROWS).fingerprint
    assert orders.warehouse.fingerprint(orders.target, Staged((staged,)), [day(DAY)]) == {DAY: staged.fingerprint}


def test_code_that_returns_nothing_stages_an_empty_partition(orders: World) -> None:
    (staged,) = kept(orders, lambda landing: None).partitions
    assert staged.fingerprint.rows == 0


def test_several_pieces_of_code_are_kept_in_one_write_each_for_its_own_partition(orders: World) -> None:
    moved = [row | {"order_date": date(2024, 1, 3), "seen_at": ROWS[0]["seen_at"] + timedelta(1)} for row in ROWS[:1]]
    staged = kept(orders, returning(ROWS), returning(moved)).partitions
    assert [entry.fingerprint.rows for entry in staged] == [3, 1]


def test_what_code_gave_can_be_doubled_for_a_drill(orders: World) -> None:
    def twice(landing: Landing) -> None:
        landing.add(list(ROWS))
        landing.double()

    (staged,) = kept(orders, twice).partitions
    assert staged.fingerprint == selected(orders, (*ROWS, *ROWS)).fingerprint


def test_rows_of_code_outside_its_partition_are_refused_and_nothing_is_kept(orders: World) -> None:
    strays = [ROWS[0], ROWS[1] | {"order_date": date(2024, 1, 3)}, ROWS[2] | {"order_date": None}]

    with orders.warehouse.open_stage(orders.target, "b1", "batch-1") as writer:
        with pytest.raises(PartitionOverrun, match="1 of its 3 rows"):
            writer.write(Recompute((day(DAY),), fill=returning(strays)))
        (staged,) = writer.write(Recompute((day(DAY),), fill=returning(ROWS)))

    assert staged.fingerprint == selected(orders, ROWS).fingerprint


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{name: value for name, value in ROWS[0].items() if name != "amount"}], "amount"),
        ([ROWS[0] | {"surplus": 1}], "surplus"),
        ([ROWS[0] | {"order_id": "many"}], "order_id|bigint|(?i:int64)"),
        ([ROWS[0] | {"order_id": 20.5}], "order_id|bigint"),
        ("SELECT 1", "returned str"),
        (17, "returned int"),
        ([(1, 2)], "returned tuple"),
    ],
    ids=["missing", "surplus", "misfit", "rounded", "text", "number", "tuples"],
)
def test_what_is_no_row_of_the_table_is_refused(orders: World, rows: Any, told: str) -> None:
    with pytest.raises(WarehouseError, match=told):
        kept(orders, returning(rows))


def test_an_error_of_code_comes_out_as_it_is_and_keeps_nothing_of_the_write(orders: World) -> None:
    def failing(landing: Landing) -> None:
        landing.add(ROWS)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        kept(orders, returning(ROWS), failing)

    assert sum(item.bytes for item in orders.warehouse.storage()) == 0


def test_nothing_but_the_stage_itself_is_left_of_what_code_filled(orders: World) -> None:
    (staged,) = kept(orders, returning(ROWS)).partitions
    assert {item.location for item in orders.warehouse.storage()} == {staged.location}


def test_published_rows_whose_key_code_does_not_return_can_be_kept(orders: World) -> None:
    (staged,) = kept(orders, returning(ROWS[:1]), keep_unmatched=True).partitions
    assert staged.fingerprint.rows == 1 + len(orders.contents("order_date = DATE '2024-01-02'"))


@pytest.fixture
def writable(orders: World) -> World:
    if orders.engine.name in WITHOUT_LANDING:
        refusing = (lambda landing: landing.connection), (lambda landing: _write(landing, "SELECT 1"))
        for fill in refusing:
            with pytest.raises(BackfillError, match="return the rows"):
                kept(orders, fill)
        pytest.skip("code returns its rows here")
    return orders


def _write(landing: Landing, select: str) -> None:
    table, columns = landing.table, ", ".join(f'"{name}"' for name in COLUMNS)
    landing.connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM ({select}) AS rows")


def test_code_may_read_the_warehouse_and_write_its_rows_by_the_connection(writable: World) -> None:
    def copying(landing: Landing) -> None:
        assert landing.columns == COLUMNS
        landing.connection.execute("CREATE TEMPORARY TABLE scratch AS SELECT 1 AS a")
        _write(landing, writable.select(DAY))

    (staged,) = kept(writable, copying).partitions

    assert staged.fingerprint == writable.fingerprint(DAY)[DAY]


def test_rows_that_another_process_puts_at_the_landing_s_address_are_taken(orders: World) -> None:
    def putting(landing: Landing) -> None:
        address = dict(landing.address)
        rows = " UNION ALL ".join(row_sql(row.values()) for row in ROWS)
        if "staging_file" in address:
            with duckdb_outside.empty() as outside:
                outside.execute(f"COPY ({rows}) TO '{address['staging_file']}' (FORMAT parquet)")
        else:
            names = ", ".join(f'"{name}"' for name in COLUMNS)
            orders.engine.execute(f"INSERT INTO {address['staging_table']} ({names}) SELECT {names} FROM ({rows}) AS r")
        landing.collect(address)

    if orders.warehouse.capabilities.takes_nothing_from_elsewhere:
        with pytest.raises(WarehouseError):
            kept(orders, putting)
        return
    (staged,) = kept(orders, putting).partitions
    assert staged.fingerprint == selected(orders, ROWS).fingerprint
    assert len(orders.warehouse.storage()) == 2, "what was handed over is gone"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM analytics.orders",
        "CREATE TABLE analytics.scratch AS SELECT 1 AS a",
        "ALTER TABLE analytics.orders ADD COLUMN more INTEGER",
    ],
)
def test_a_write_elsewhere_by_that_connection_is_undone_and_told(writable: World, statement: str) -> None:
    contents, tables = writable.contents(), writable.engine.tables()

    def straying(landing: Landing) -> None:
        _write(landing, row_sql(ROWS[0].values()))
        landing.connection.execute(statement)

    with pytest.raises(Exception, match=r"read-only|wrote to analytics") as refused:
        kept(writable, straying)

    assert isinstance(refused.value, StrayWrite) == (writable.engine.name == "postgres")
    assert (writable.contents(), writable.engine.tables()) == (contents, tables)
    assert writable.warehouse.storage() == ()
