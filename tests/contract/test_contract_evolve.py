from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from contract_engines import Engine
from contract_world import KEYS, RANGE, World, after, day, days
from stage_writing import write_one

from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Column,
    Publication,
    Published,
    Staged,
)

COMMENT = "NULL: there is a value, and nobody knows it. It's the first."


@pytest.fixture
def orders(orders: World) -> World:
    """The table, and a target that has a column more."""
    if orders.engine.name == "databricks":
        pytest.skip("a column is added in a commit of its own there")
    (*_, yielded) = orders.warehouse.select_columns(taxed(orders, RANGE[0]))
    tax = Column("tax", yielded.type, added=COMMENT)
    orders.target = replace(orders.target, columns=(*orders.target.columns, tax))
    return orders


def stage(world: World, *keys: str) -> Staged:
    """The days as they are published, with a tax of 0.25 each."""
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        return Staged(tuple(write_one(writer, day(key), taxed(world, key)) for key in keys))


def taxed(world: World, key: str) -> str:
    return f"SELECT t.*, CAST(0.25 AS DECIMAL(12,2)) AS tax FROM ({world.select(key)}) AS t"


def taxes(world: World) -> dict[int, str | None]:
    found = world.engine.rows("SELECT order_id, tax FROM analytics.orders ORDER BY order_id")
    return {number: None if tax is None else str(tax) for number, tax in found}


def columns(world: World) -> list[str]:
    target = world.target
    described = world.warehouse.describe(target.table, target.partition_by, target.key)
    return [column.name for column in described.columns]


FILLED = {number: "0.25" if 3 <= number <= 7 else None for number in range(1, 11)}


def test_the_commit_of_the_rows_adds_the_column_and_the_way_back_leaves_it_without_a_value(orders: World) -> None:
    assert orders.warehouse.growth_cautions(orders.target) is not None
    before, outside = orders.fingerprint(*KEYS), orders.outside()
    backup, marks = orders.warehouse.back_up(orders.target, "b1", days(*RANGE), label="publish")
    publication = orders.publication(stage(orders, *RANGE), RANGE)
    assert publication.before == marks == {key: before[key] for key in RANGE}
    assert "tax" not in columns(orders)

    orders.warehouse.replace_partitions(orders.target, publication)
    assert taxes(orders) == FILLED
    assert [row[:-1] for row in orders.outside()] == outside
    assert comment(orders) in (None, COMMENT)

    undo = orders.publication(Backup(backup.location), RANGE, action=Action.ROLLBACK, after=marks)
    orders.warehouse.replace_partitions(orders.target, undo)
    assert set(taxes(orders).values()) == {None}
    assert orders.fingerprint(*KEYS) == before
    assert columns(orders)[-1] == "tax"


def comment(world: World) -> str | None:
    """Where the engine keeps one of a column."""
    match world.engine.name:
        case "duckdb":
            found = "SELECT comment FROM duckdb_columns() WHERE table_name = 'orders' AND column_name = 'tax'"
        case "postgres":
            found = "SELECT col_description('analytics.orders'::regclass, 7)"
        case "delta":
            return str(table_of(world.engine).schema().fields[-1].metadata["comment"])
        case _:
            return None
    ((text,),) = world.engine.rows(found)
    assert text == COMMENT
    return str(text)


def table_of(engine: Engine) -> object:
    from deltalake import DeltaTable

    return DeltaTable(str(Path(engine.root) / "analytics" / "orders"))  # type: ignore[attr-defined]


def test_a_publish_that_is_refused_adds_nothing(orders: World) -> None:
    publication = orders.publication(stage(orders, *RANGE), RANGE)
    orders.engine.execute("DELETE FROM analytics.orders WHERE order_id = 3")
    with pytest.raises(Exception, match="moved"):
        orders.warehouse.replace_partitions(orders.target, publication)

    def lost() -> None:
        raise RuntimeError("the right to go on was lost")

    publication = orders.publication(publication.rows, RANGE, confirm=lost)
    with pytest.raises(RuntimeError):
        orders.warehouse.replace_partitions(orders.target, publication)
    assert "tax" not in columns(orders)
    assert orders.warehouse.receipts(orders.target) == ()


def test_a_column_that_somebody_added_meanwhile_is_filled_if_it_is_the_same(orders: World) -> None:
    first, second = orders.publication(stage(orders, RANGE[0]), RANGE[:1]), stage(orders, RANGE[1])
    orders.warehouse.replace_partitions(orders.target, first)
    orders.warehouse.replace_partitions(orders.target, orders.publication(second, RANGE[1:2], backfill_id="b2"))
    assert taxes(orders) == FILLED


def test_what_reads_the_table_finds_no_value_in_the_column(orders: World) -> None:
    staged = stage(orders, RANGE[0])
    warehouse, target, partitions = orders.warehouse, orders.target, days(RANGE[0])
    diff = warehouse.compare(target, Published(), staged, partitions)[RANGE[0]]
    assert (diff.changed, diff.identical) == (3, 0)
    assert warehouse.changed_columns(target, Published(), staged, partitions) == {RANGE[0]: {"tax": 3}}
    query = 'SELECT count(tax) FROM "safe_backfill_afterwards"'
    assert warehouse.one_value(target, staged, query) == 3
    assert warehouse.one_value(target, Staged(()), query) == 0


def test_it_is_rehearsed_on_a_shadow_and_the_table_stays_without_it(orders: World) -> None:
    partitions = days(RANGE[0])
    staged = stage(orders, RANGE[0])
    with orders.warehouse.open_shadow(orders.target, "b1", days(*KEYS[:3])) as shadow:
        before = shadow.warehouse.fingerprint(shadow.target, Published(), partitions)
        backup, marks = shadow.warehouse.back_up(shadow.target, "b1", partitions, label="trial")
        forth = Publication("b1", Action.PUBLISH, "p1", partitions, staged, before, after(staged))
        shadow.warehouse.replace_partitions(shadow.target, forth)
        assert shadow.warehouse.fingerprint(shadow.target, Published(), partitions) == after(staged)
        back = Publication("b1", Action.ROLLBACK, "p1", partitions, backup, after(staged), marks)
        shadow.warehouse.replace_partitions(shadow.target, back)
        assert shadow.warehouse.fingerprint(shadow.target, Published(), partitions) == before == marks
    assert "tax" not in columns(orders)


def test_a_merge_adds_the_column_too(orders: World) -> None:
    if "merge" not in orders.warehouse.capabilities.mechanisms:
        pytest.skip("the engine does not merge")
    orders.warehouse.merge(orders.target, orders.publication(stage(orders, *RANGE), RANGE))
    assert taxes(orders) == FILLED


def test_the_way_back_of_an_earlier_plan_leaves_a_column_that_came_later_unless_its_range_has_values_in_it(
    orders: World,
) -> None:
    wide, narrow = orders.target, replace(orders.target, columns=orders.target.columns[:-1])
    first, second = RANGE[:1], RANGE[1:2]
    orders.target = narrow
    backup, marks = orders.warehouse.back_up(narrow, "b1", days(*first), label="publish")
    with orders.warehouse.open_stage(narrow, "b1", "batch-1") as writer:
        same = Staged((write_one(writer, day(first[0]), orders.select(first[0])),))
    orders.warehouse.replace_partitions(narrow, orders.publication(same, first))
    orders.target = wide
    orders.warehouse.replace_partitions(wide, orders.publication(stage(orders, *second), second, backfill_id="b2"))
    filled = taxes(orders)

    orders.target = narrow
    undo = orders.publication(backup, first, action=Action.ROLLBACK, after=marks)
    orders.warehouse.replace_partitions(narrow, undo)
    assert taxes(orders) == filled
    assert orders.fingerprint(*first) == marks

    orders.target = wide
    orders.warehouse.replace_partitions(wide, orders.publication(stage(orders, *first), first, backfill_id="b3"))
    orders.target = narrow
    undo = orders.publication(backup, first, action=Action.ROLLBACK, after=marks)
    refused = orders.refuses(orders.warehouse.replace_partitions, undo)
    assert "has values in tax (in 3 rows), which the way back would lose" in str(refused)
    assert "other columns" in str(orders.refuses(orders.warehouse.replace_partitions, orders.publication(same, first)))
