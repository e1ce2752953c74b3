from __future__ import annotations

import pytest
import sqlglot
from contract_engines import Engine
from contract_world import COLUMNS, World

from airflow_backfill_provider.errors import SpecError, TransformRefused
from airflow_backfill_provider.warehouses.base import Warehouse
from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind, Reading


def test_capabilities_name_the_engine_a_known_dialect_and_the_mechanism(warehouse: Warehouse) -> None:
    capabilities = warehouse.capabilities

    assert capabilities.engine
    assert "replace_partitions" in capabilities.mechanisms
    assert sqlglot.Dialect.get_or_raise(capabilities.dialect)
    assert capabilities.rows_per_second > 0


def test_columns_are_described_in_the_table_s_order(orders: World) -> None:
    assert orders.target.column_names == COLUMNS
    assert orders.target.key == ("order_id",)
    assert all(column.hashable and not column.generated for column in orders.target.columns)


@pytest.mark.parametrize(("column", "kind"), [("order_date", ColumnKind.DATE), ("seen_at", ColumnKind.TIMESTAMP)])
def test_the_clock_is_the_partition_column_s(orders: World, column: str, kind: ColumnKind) -> None:
    assert orders.warehouse.describe("analytics.orders", column, ["order_id"]).clock.kind is kind


def test_a_column_that_takes_no_null_is_described_so(orders: World) -> None:
    orders.engine.execute("CREATE TABLE analytics.strict (id BIGINT NOT NULL, d DATE)")

    columns = orders.warehouse.describe("analytics.strict", "d", ["id"]).columns

    assert [column.nullable for column in columns] == [False, True]


def test_describing_writes_nothing(orders: World) -> None:
    before = orders.engine.tables()

    orders.warehouse.describe("analytics.orders", "order_date", ["order_id"])

    assert orders.engine.tables() == before
    assert orders.warehouse.storage() == ()


@pytest.mark.parametrize("table", ["analytics.nope", "nowhere.orders", "analytics.orders; DROP TABLE orders"])
def test_a_missing_table_is_refused_naming_what_exists(orders: World, table: str) -> None:
    with pytest.raises(SpecError) as refused:
        orders.warehouse.describe(table, "order_date", ["order_id"])

    assert table in str(refused.value)
    assert "analytics.orders" in str(refused.value).replace(table, "")
    assert orders.contents()


@pytest.mark.parametrize(("partition_by", "key"), [("nope", ["order_id"]), ("order_date", ["order_id", "nope"])])
def test_a_missing_column_is_refused_naming_what_exists(orders: World, partition_by: str, key: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        orders.warehouse.describe("analytics.orders", partition_by, key)

    assert "nope" in str(refused.value)
    assert all(name in str(refused.value) for name in COLUMNS)


@pytest.mark.parametrize("column", ["Status", "order_id", "amount"])
def test_a_partition_column_that_tells_no_time_is_refused(orders: World, column: str) -> None:
    with pytest.raises(SpecError, match=column):
        orders.warehouse.describe("analytics.orders", column, ["order_id"])


def test_a_timestamp_with_a_zone_tells_instants_and_takes_no_zone_from_the_spec(orders: World) -> None:
    if "zoned" in orders.engine.lacks:
        pytest.skip("the engine has no such type")
    orders.engine.execute("CREATE TABLE analytics.zoned (id BIGINT, zoned_at TIMESTAMP WITH TIME ZONE)")

    clock = orders.warehouse.describe("analytics.zoned", "zoned_at", ["id"], Reading("Asia/Tokyo")).clock

    assert clock == Clock(ColumnKind.TIMESTAMPTZ)
    with pytest.raises(SpecError, match=r"zoned_at.*leave column_timezone out"):
        orders.warehouse.describe("analytics.zoned", "zoned_at", ["id"], Reading(column_timezone="Asia/Tokyo"))


@pytest.mark.parametrize(
    ("column", "reading", "told"),
    [
        ("order_id", Reading(), "set column_format to one of yyyymmdd"),
        ("Status", Reading(), "grain: list"),
        ("order_id", Reading(column_format="iso_date"), "an integer does not hold iso_date"),
        ("order_date", Reading(column_format="yyyymmdd"), "leave it out"),
        ("seen_at", Reading(by_value=True), "list partitions"),
    ],
)
def test_a_reading_that_does_not_go_with_the_type_is_refused_saying_what_does(
    orders: World, column: str, reading: Reading, told: str
) -> None:
    with pytest.raises(SpecError, match=f"{column}.*{told}"):
        orders.warehouse.describe("analytics.orders", column, ["order_id"], reading)


@pytest.mark.parametrize(
    ("column", "reading", "clock"),
    [
        ("order_date", Reading("Asia/Tokyo"), Clock(ColumnKind.DATE, "Asia/Tokyo")),
        ("seen_at", Reading("Asia/Tokyo"), Clock(ColumnKind.TIMESTAMP, "UTC")),
        ("seen_at", Reading("UTC", "Asia/Tokyo"), Clock(ColumnKind.TIMESTAMP, "Asia/Tokyo")),
        ("order_id", Reading(column_format="yyyymm"), Clock(ColumnKind.INTEGER, "UTC", "yyyymm")),
        ("Status", Reading(column_format="yyyymmdd"), Clock(ColumnKind.TEXT, "UTC", "yyyymmdd")),
        ("Status", Reading(by_value=True), Clock(ColumnKind.TEXT)),
        ("order_id", Reading(by_value=True), Clock(ColumnKind.INTEGER)),
    ],
)
def test_the_clock_is_the_type_and_what_the_spec_says_of_it(
    orders: World, column: str, reading: Reading, clock: Clock
) -> None:
    assert orders.warehouse.describe("analytics.orders", column, ["order_id"], reading).clock == clock


def test_a_view_of_part_of_a_table_is_refused(orders: World) -> None:
    if "view" in orders.engine.lacks:
        pytest.skip("the engine has no views")
    orders.engine.execute("CREATE VIEW analytics.seen AS SELECT * FROM analytics.orders WHERE order_id > 3")

    with pytest.raises(SpecError, match="view"):
        orders.warehouse.describe("analytics.seen", "order_date", ["order_id"])


def test_select_columns_names_and_types_every_column_without_running(orders: World) -> None:
    columns = orders.warehouse.select_columns(
        'SELECT order_id, "Status", order_date AS d, amount, seen_at, 1 / (order_id - order_id) AS never '
        "FROM analytics.orders"
    )

    assert [column.name for column in columns] == ["order_id", "Status", "d", "amount", "seen_at", "never"]
    described = {column.name: column.type for column in orders.target.columns}
    assert orders.warehouse.lossless(columns[0].type, described["order_id"])
    assert orders.warehouse.lossless(columns[1].type, described["Status"])
    assert orders.warehouse.lossless(columns[2].type, described["order_date"])
    assert orders.warehouse.lossless(columns[3].type, described["amount"])
    assert orders.warehouse.lossless(columns[4].type, described["seen_at"])


def test_select_columns_sees_through_a_star_and_a_common_table_expression(orders: World) -> None:
    columns = orders.warehouse.select_columns("WITH o AS (SELECT * FROM analytics.orders) SELECT o.* FROM o")

    assert tuple(column.name for column in columns) == COLUMNS


@pytest.mark.parametrize(
    ("select", "named"),
    [
        ("SELECT misspelt FROM analytics.orders", "misspelt"),
        ("SELECT 1 AS a FROM analytics.absent_table", "absent_table"),
        ("SELECT order_id FROM analytics.orders WHERE misspelt = 1", "misspelt"),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_engine_s_message(
    orders: World, select: str, named: str
) -> None:
    with pytest.raises(TransformRefused, match=named):
        orders.warehouse.select_columns(select)


@pytest.mark.parametrize("statement", ["DELETE FROM analytics.orders", "SELECT 1 AS a; DELETE FROM analytics.orders"])
def test_select_columns_binds_a_select_and_nothing_else(orders: World, statement: str) -> None:
    before = orders.contents()

    with pytest.raises(TransformRefused):
        orders.warehouse.select_columns(statement)

    assert orders.contents() == before


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("BIGINT", "BIGINT"),
        ("INTEGER", "BIGINT"),
        ("BIGINT", "INTEGER"),  # too large a number fails loudly
        ("INTEGER", "DECIMAL(12,2)"),
        ("INTEGER", "DOUBLE"),
        ("DECIMAL(12,2)", "DECIMAL(18,2)"),
        ("DECIMAL(18,2)", "DECIMAL(12,4)"),
        ("DATE", "TIMESTAMP"),
        ("VARCHAR", "VARCHAR"),
        ("BOOLEAN", "BOOLEAN"),
    ],
)
def test_a_type_that_keeps_every_value_is_lossless(
    engine: Engine, warehouse: Warehouse, source: str, target: str
) -> None:
    assert warehouse.lossless(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("DOUBLE", "BIGINT"),
        ("DOUBLE", "DECIMAL(12,2)"),
        ("BIGINT", "DOUBLE"),  # 2**53 + 1 has no double
        ("DECIMAL(12,4)", "DECIMAL(12,2)"),
        ("DECIMAL(12,2)", "BIGINT"),
        ("TIMESTAMP", "DATE"),
        ("VARCHAR", "BIGINT"),
        ("VARCHAR", "DATE"),
    ],
)
def test_a_type_that_may_change_a_value_is_not_lossless(warehouse: Warehouse, source: str, target: str) -> None:
    assert not warehouse.lossless(source, target)


def test_other_names_of_the_table_s_rows_are_told_from_other_tables(orders: World) -> None:
    if "view" in orders.engine.lacks:
        pytest.skip("the engine has no views")
    orders.engine.execute(
        'CREATE TABLE analytics.customers ("id" BIGINT)',
        "CREATE VIEW analytics.shown AS SELECT * FROM analytics.orders",
        "CREATE VIEW analytics.shown_again AS SELECT * FROM analytics.shown",
        "CREATE VIEW analytics.others AS SELECT * FROM analytics.customers",
    )
    names = ["analytics.orders", "analytics.shown", "analytics.shown_again", "analytics.others", "analytics.gone"]

    assert orders.warehouse.aliases(orders.target, names) == ("analytics.shown", "analytics.shown_again")
