from __future__ import annotations

import pytest
from contract_world import RANGE, World, days

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Published, Sample, SampleOf, Staged

NEW = {
    "2024-01-02": [
        (3, "2024-01-02", "paid", "31.00", "b", "2024-01-02 00:00:00"),
        (40, "2024-01-02", "open", "0.10", None, "2024-01-02 12:00:00"),
        (5, "2024-01-02", None, None, 'it\'s; -- "c"', "2024-01-02 23:59:59.999999"),
    ]
}
"""One order is changed, one is added, one is gone, and one is as it is published."""


def keep(orders: World, staged: Staged, limit: int = 20, *columns: str, exclude: tuple[str, ...] = ()) -> Sample:
    named = tuple(name for name in orders.target.column_names if not columns or name in columns)
    what = SampleOf(limit, named, exclude)
    partitions = [entry.partition for entry in staged.partitions]
    return orders.warehouse.keep_sample(orders.target, "b1", Published(), staged, partitions, what)


def test_rows_of_each_key_that_differs_stand_old_before_new(orders: World) -> None:
    sample = keep(orders, orders.stage_rows(NEW), 20, "order_id", "amount", "note")

    found = {(row[2], row[1]): row[3:] for row in sample.rows}
    assert found == {
        ("3", "old"): ("30.00", "b"),
        ("3", "new"): ("31.00", "b"),
        ("4", "old"): ("0.10", None),
        ("40", "new"): ("0.10", None),
    }
    places = [(row[0], row[2]) for row in sample.rows]
    assert sorted({place for place, _ in places if place is not None}) == ["1", "2", "3"]
    changed = [row[1] for row in sample.rows if row[2] == "3"]
    assert changed == ["old", "new"]


def test_it_is_bounded_and_of_the_same_keys_each_time(orders: World) -> None:
    staged = orders.stage_corrected(*RANGE)
    whole = keep(orders, staged)

    first, second = keep(orders, staged, 2), keep(orders, staged, 2)

    assert first.rows == second.rows == tuple(row for row in whole.rows if row[0] in ("1", "2"))
    assert len(first.rows) == 4
    assert first.location != second.location


def test_a_column_that_is_not_compared_makes_no_difference(orders: World) -> None:
    staged = orders.stage_corrected(*RANGE)

    assert keep(orders, staged, exclude=("amount",)).rows == ()


def test_it_lies_beside_the_stages_until_it_is_dropped(orders: World) -> None:
    tables = orders.engine.tables()
    sample = keep(orders, orders.stage_rows(NEW))

    assert [
        (item.kind, item.backfill_id) for item in orders.warehouse.storage() if item.location == sample.location
    ] == [("sample", "b1")]
    assert orders.engine.tables() == tables
    orders.warehouse.drop(sample.location)
    assert "sample" not in [item.kind for item in orders.warehouse.storage()]


def test_of_no_partition_there_is_none(orders: World) -> None:
    staged = orders.stage_rows(NEW)
    with pytest.raises(WarehouseError, match="nothing to keep a sample of"):
        orders.warehouse.keep_sample(orders.target, "b1", Published(), staged, days(), SampleOf(1, ("order_id",)))
