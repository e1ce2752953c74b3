from __future__ import annotations

from typing import Any

import pytest
from contract_world import World

from airflow_backfill_provider.warehouses.base import KeyConflicts, Staged

DAY, NEXT = "2024-01-02", "2024-01-03"


def _row(order_id: int | None, key: str = DAY, note: str | None = None) -> tuple[Any, ...]:
    return (order_id, key, "x", None, note, f"{key} 06:00:00")


def _conflicts(world: World, **rows: list[tuple[Any, ...]]) -> KeyConflicts:
    keys = {"day": DAY, "next": NEXT}
    return world.warehouse.key_conflicts(
        world.target, world.stage_rows({keys[name]: kept for name, kept in rows.items()})
    )


def test_keys_of_the_rows_that_are_replaced_are_no_conflict(world: World) -> None:
    assert _conflicts(world, day=[_row(3), _row(4), _row(77)]) == KeyConflicts(0, 0)


@pytest.mark.parametrize("order_id", [1, 8, 9], ids=["an earlier day", "a later day", "a row without a day"])
def test_a_key_that_also_exists_outside_the_range_is_counted(world: World, order_id: int) -> None:
    conflicts = _conflicts(world, day=[_row(3), _row(order_id)])

    assert (conflicts.outside, conflicts.repeated) == (1, 0)
    assert any(str(order_id) in example for example in conflicts.examples)


def test_only_what_is_staged_is_the_range(world: World) -> None:
    assert _conflicts(world, day=[_row(6)]).outside == 1
    assert _conflicts(world, day=[_row(6)], next=[]).outside == 0


def test_a_key_staged_twice_in_one_partition_is_repeated(world: World) -> None:
    conflicts = _conflicts(world, day=[_row(3, note="a"), _row(3, note="b"), _row(3, note="c"), _row(4)])

    assert (conflicts.outside, conflicts.repeated) == (0, 1)
    assert any("3" in example for example in conflicts.examples)


def test_a_key_staged_in_two_partitions_is_repeated(world: World) -> None:
    conflicts = _conflicts(world, day=[_row(77), _row(3)], next=[_row(77, NEXT)])

    assert (conflicts.outside, conflicts.repeated) == (0, 1)


def test_a_key_staged_in_two_attempts_is_repeated(world: World) -> None:
    one = world.stage_rows({DAY: [_row(77)]}, label="one")
    two = world.stage_rows({NEXT: [_row(77, NEXT)]}, label="two")

    assert world.warehouse.key_conflicts(world.target, Staged((*one.partitions, *two.partitions))).repeated == 1


def test_a_repeat_is_not_looked_for_when_no_key_is_new_and_outside_still_is(world: World) -> None:
    staged = world.stage_rows({DAY: [_row(77), _row(8)], NEXT: [_row(77, NEXT)]})

    conflicts = world.warehouse.key_conflicts(world.target, staged, no_new_keys=True)

    assert (conflicts.outside, conflicts.repeated) == (1, 0)


def test_distinct_keys_are_counted_once_however_often_they_occur(world: World) -> None:
    world.engine.execute("UPDATE analytics.orders SET order_id = 1 WHERE order_id = 2")

    assert _conflicts(world, day=[_row(1), _row(1), _row(8)]) .outside == 2  # fmt: skip
    assert _conflicts(world, day=[_row(1), _row(1), _row(8)]).repeated == 1


def test_a_key_of_several_columns_conflicts_only_as_a_whole(orders: World) -> None:
    target = orders.warehouse.describe("analytics.orders", "order_date", ["order_id", "note"])
    staged = orders.stage_rows({DAY: [_row(2, note="a"), _row(2, note="b"), _row(8, note="other")]})

    conflicts = orders.warehouse.key_conflicts(target, staged)

    assert (conflicts.outside, conflicts.repeated) == (1, 0)


def test_a_key_that_holds_the_partition_column_cannot_exist_outside(orders: World) -> None:
    target = orders.warehouse.describe("analytics.orders", "order_date", ["order_id", "order_date"])

    assert orders.warehouse.key_conflicts(target, orders.stage_rows({DAY: [_row(1), _row(8)]})) == KeyConflicts(0, 0)


def test_null_keys_are_equal_to_nothing(world: World) -> None:
    world.engine.execute("UPDATE analytics.orders SET order_id = NULL WHERE order_id = 1")

    assert _conflicts(world, day=[_row(None, note="a"), _row(None, note="b")]) == KeyConflicts(0, 0)


def test_nothing_staged_conflicts_with_nothing(world: World) -> None:
    assert _conflicts(world, day=[]) == KeyConflicts(0, 0)
    assert world.warehouse.key_conflicts(world.target, Staged(())) == KeyConflicts(0, 0)


def test_the_statements_in_a_report_list_the_keys_that_conflict(world: World) -> None:
    staged = world.stage_rows({DAY: [_row(1), _row(8), _row(77), _row(3)], NEXT: [_row(77, NEXT)]})

    outside, repeated = world.warehouse.key_conflict_sql(world.target, staged)

    assert sorted(world.engine.staged_rows(outside)) == [(1,), (8,)]
    assert world.engine.staged_rows(repeated) == [(77,)]
