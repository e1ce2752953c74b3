from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from contract_engines import Engine
from contract_world import EMPTY_DAY, KEYS, RANGE, ROWS, World, day, days
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stage_writing import write_one

from airflow_backfill_provider.warehouses.base import Published, RowDiff, Staged, Warehouse

DAY = "2024-01-02"
OLD = [
    (3, DAY, "paid", "30.00", "b", "2024-01-02 00:00:00"),
    (4, DAY, "open", "0.10", None, "2024-01-02 12:00:00"),
    (5, DAY, None, None, 'it\'s; -- "c"', "2024-01-02 23:59:59.999999"),
]


def _compare(world: World, new: list[tuple[Any, ...]], key: str = DAY) -> RowDiff:
    staged = world.stage_rows({key: new})
    return world.warehouse.compare(world.target, Published(), staged, [day(key)])[key]


def test_the_same_rows_are_identical(world: World) -> None:
    staged = world.stage({key: world.select(key) for key in KEYS})

    diffs = world.warehouse.compare(world.target, Published(), staged, days(*KEYS))

    assert list(diffs) == list(KEYS)
    assert [diff.identical for diff in diffs.values()] == [2, 3, 2, 0, 1]
    assert all(diff == RowDiff(diff.identical, diff.identical, diff.identical) for diff in diffs.values())


def test_rows_are_counted_as_identical_changed_added_and_removed(world: World) -> None:
    new = [OLD[0], (4, DAY, "open", "9.99", None, "2024-01-02 12:00:00"), (40, *OLD[2][1:]), (41, *OLD[2][1:])]

    assert _compare(world, new) == RowDiff(old=3, new=4, identical=1, changed=1, added=2, removed=1)


@pytest.mark.parametrize("side", ["value becomes NULL", "NULL becomes value", "NULL becomes empty text"])
def test_a_change_between_null_and_a_value_is_a_change(world: World, side: str) -> None:
    changed = {
        "value becomes NULL": (3, DAY, "paid", None, "b", "2024-01-02 00:00:00"),
        "NULL becomes value": (4, DAY, "open", "0.10", "note", "2024-01-02 12:00:00"),
        "NULL becomes empty text": (4, DAY, "open", "0.10", "", "2024-01-02 12:00:00"),
    }[side]
    new = [changed if row[0] == changed[0] else row for row in OLD]

    assert _compare(world, new) == RowDiff(old=3, new=3, identical=2, changed=1)


def test_values_swapped_between_two_columns_are_a_change(world: World) -> None:
    new = [(3, DAY, "b", "30.00", "paid", "2024-01-02 00:00:00"), *OLD[1:]]

    assert _compare(world, new) == RowDiff(old=3, new=3, identical=2, changed=1)


def test_everything_removed_and_everything_added(world: World) -> None:
    assert _compare(world, []) == RowDiff(old=3, new=0, removed=3)
    added = [(90, EMPTY_DAY, "x", None, None, f"{EMPTY_DAY} 01:00:00")]
    assert _compare(world, added, EMPTY_DAY) == RowDiff(old=0, new=1, added=1)
    assert _compare(world, [], EMPTY_DAY) == RowDiff(old=0, new=0)


@pytest.mark.parametrize("times", [2, 3])
def test_a_repeated_new_key_is_reported_instead_of_a_row_diff(world: World, times: int) -> None:
    diff = _compare(world, [OLD[0]] * times + OLD[1:])

    assert diff == RowDiff(old=3, new=2 + times, new_duplicate_keys=times - 1)


def test_a_repeated_old_key_is_reported_instead_of_a_row_diff(world: World) -> None:
    world.engine.execute("UPDATE analytics.orders SET order_id = 3 WHERE order_id = 4")

    diff = _compare(world, OLD)

    assert diff == RowDiff(old=3, new=3, old_duplicate_keys=1)


def test_rows_published_twice_are_not_held_against_the_new_rows(world: World) -> None:
    world.engine.execute("INSERT INTO analytics.orders SELECT * FROM analytics.orders")

    assert _compare(world, OLD) == RowDiff(old=6, new=3, old_duplicate_keys=3)


def test_the_keys_of_each_side_are_counted_apart(world: World) -> None:
    world.engine.execute(
        "UPDATE analytics.orders SET order_id = 3 WHERE order_id = 4",
        "UPDATE analytics.orders SET order_id = NULL WHERE order_id = 5",
    )

    diff = _compare(world, [OLD[0]] * 3 + [(None, *OLD[1][1:])] * 2)

    assert diff == RowDiff(old=3, new=5, old_null_keys=1, new_null_keys=2, old_duplicate_keys=1, new_duplicate_keys=2)


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_null_key_is_reported_instead_of_a_row_diff(world: World, side: str) -> None:
    new = list(OLD)
    if side == "old":
        world.engine.execute("UPDATE analytics.orders SET order_id = NULL WHERE order_id = 4")
    else:
        new[1] = (None, *OLD[1][1:])

    diff = _compare(world, new)

    assert diff == RowDiff(old=3, new=3, old_null_keys=int(side == "old"), new_null_keys=int(side == "new"))


def test_keys_of_one_partition_do_not_disturb_another(world: World) -> None:
    staged = world.stage(
        {DAY: f"{world.select(DAY)} UNION ALL {world.select(DAY)}", "2024-01-03": world.select("2024-01-03")}
    )

    diffs = world.warehouse.compare(world.target, Published(), staged, days(DAY, "2024-01-03"))

    assert diffs[DAY] == RowDiff(old=3, new=6, new_duplicate_keys=3)
    assert diffs["2024-01-03"] == RowDiff(old=2, new=2, identical=2)


def test_a_key_that_moves_to_another_day_is_removed_here_and_added_there(world: World) -> None:
    moved = (3, "2024-01-03", "paid", "30.00", "b", "2024-01-03 00:00:00")
    staged = world.stage_rows({DAY: OLD[1:], "2024-01-03": [moved]})

    diffs = world.warehouse.compare(world.target, Published(), staged, days(DAY, "2024-01-03"))

    assert diffs[DAY] == RowDiff(old=3, new=2, identical=2, removed=1)
    assert diffs["2024-01-03"] == RowDiff(old=2, new=1, added=1, removed=2)


def test_a_key_of_several_columns_matches_on_all_of_them(orders: World) -> None:
    target = orders.warehouse.describe("analytics.orders", "order_date", ["order_id", "amount"])
    staged = orders.stage_rows(
        {"2024-01-01": [(1, "2024-01-01", "x", "10.00", None, None), (2, "2024-01-01", "x", "1", None, None)]}
    )

    diff = orders.warehouse.compare(target, Published(), staged, [day("2024-01-01")])["2024-01-01"]

    assert diff == RowDiff(old=2, new=2, changed=1, added=1, removed=1)


def test_a_null_in_part_of_a_key_is_a_null_key(orders: World) -> None:
    target = orders.warehouse.describe("analytics.orders", "order_date", ["order_id", "note"])
    staged = orders.stage({DAY: orders.select(DAY)})

    diff = orders.warehouse.compare(target, Published(), staged, [day(DAY)])[DAY]

    assert diff == RowDiff(old=3, new=3, old_null_keys=1, new_null_keys=1)


def test_a_backup_and_two_stages_can_stand_on_either_side(world: World) -> None:
    backup, _ = world.warehouse.back_up(world.target, "b1", days(DAY), label="before")
    one, two = world.stage_corrected(DAY), world.stage({DAY: world.select(DAY)})

    for old, new, identical in ((backup, two, 3), (backup, Published(), 3), (one, two, 1), (one, one, 3)):
        diff = world.warehouse.compare(world.target, old, new, [day(DAY)])[DAY]
        assert diff == RowDiff(old=3, new=3, identical=identical, changed=3 - identical)


def test_no_partition_is_compared_as_no_answer(world: World) -> None:
    assert world.warehouse.compare(world.target, Published(), Staged(()), []) == {}


_ROWS = st.lists(
    st.tuples(st.sampled_from([None, 1, 2, 3, 4]), st.sampled_from([None, "x", "y"])),
    max_size=5,
    unique_by=lambda row: row,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=_ROWS, new=_ROWS)
def test_old_and_new_rows_are_conserved(orders: World, old: list[Any], new: list[Any]) -> None:
    def rows(pairs: list[Any]) -> list[tuple[Any, ...]]:
        return [(key, DAY, status, None, None, None) for key, status in pairs]

    before = orders.stage_rows({DAY: rows(old)})
    after = orders.stage_rows({DAY: rows(new)})
    diff = orders.warehouse.compare(orders.target, before, after, [day(DAY)])[DAY]

    assert (diff.old, diff.new) == (len(old), len(new))
    sides = [[key for key, _ in side] for side in (old, new)]
    assert [diff.old_null_keys, diff.new_null_keys] == [keys.count(None) for keys in sides]
    known = [[key for key in keys if key is not None] for keys in sides]
    surplus = [len(keys) - len(set(keys)) for keys in known]
    assert [diff.old_duplicate_keys, diff.new_duplicate_keys] == surplus
    if any(surplus) or diff.old_null_keys or diff.new_null_keys:
        assert (diff.identical, diff.changed, diff.added, diff.removed) == (0, 0, 0, 0)
    else:
        assert diff.old == diff.identical + diff.changed + diff.removed
        assert diff.new == diff.identical + diff.changed + diff.added
        assert diff.identical == len(set(old) & set(new))


def test_a_key_in_another_partition_is_counted_by_where_it_was_and_where_it_is(orders: World) -> None:
    first, second, third = days(*RANGE)
    rows = {key: [row for row in ROWS if row[1] == key] for key in RANGE}
    moved = [(row[0], RANGE[2], *row[2:]) for row in rows[RANGE[0]][:2]] + [
        (row[0], RANGE[2], *row[2:]) for row in rows[RANGE[1]][:1]
    ]
    staged = orders.stage_rows({RANGE[0]: rows[RANGE[0]][2:], RANGE[1]: rows[RANGE[1]][1:], RANGE[2]: moved})

    found = orders.warehouse.moved_keys(orders.target, Published(), staged, (first, second, third))
    assert found == {(RANGE[0], RANGE[2]): 2, (RANGE[1], RANGE[2]): 1}
    assert orders.warehouse.moved_keys(orders.target, Published(), Published(), (first, second, third)) == {}


def test_a_key_that_repeats_counts_once_where_it_moved_and_one_that_is_null_never(orders: World) -> None:
    first, second, third = days(*RANGE)
    left = next(row for row in ROWS if row[1] == RANGE[0])
    orders.engine.execute(
        f"INSERT INTO analytics.orders SELECT * FROM analytics.orders WHERE order_id = {left[0]}",
        f"INSERT INTO analytics.orders SELECT * FROM analytics.orders WHERE order_id = {left[0]}",
        f"UPDATE analytics.orders SET order_id = NULL WHERE order_id = {next(r[0] for r in ROWS if r[1] == RANGE[1])}",
    )
    moved = [(left[0], RANGE[2], *left[2:]), (None, RANGE[2], *left[2:])]
    staged = orders.stage_rows({RANGE[0]: [], RANGE[1]: [], RANGE[2]: moved})

    found = orders.warehouse.moved_keys(orders.target, Published(), staged, (first, second, third))
    assert found == {(RANGE[0], RANGE[2]): 1}


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("NaN", "NaN", True),
        ("Infinity", "Infinity", True),
        ("0.0", "-0.0", True),
        ("NaN", "1.0", False),
        ("1.0", "NaN", False),
        ("NaN", "Infinity", False),
    ],
)
def test_nan_is_nan_and_no_number_and_zero_is_zero_whatever_its_sign(
    engine: Engine, warehouse: Warehouse, old: str, new: str, is_same: bool
) -> None:
    if "nan" in engine.lacks and not {"NaN", "Infinity"}.isdisjoint((old, new)):
        pytest.skip("the engine has no number that is not finite")
    real = engine.types["real"]

    def row(value: str) -> str:
        return f"SELECT CAST(1 AS BIGINT) AS id, CAST('{DAY}' AS DATE) AS d, CAST('{value}' AS {real}) AS v"

    engine.execute(
        f"CREATE TABLE analytics.readings (id {engine.types['integer']}, d {engine.types['date']}, v {real})",
        f"INSERT INTO analytics.readings {row(old)}",
    )
    target = warehouse.describe("analytics.readings", "d", ["id"])
    with warehouse.open_stage(target, "b1", "batch-1") as writer:
        staged = Staged((write_one(writer, day(DAY), row(new)),))
    sides = (target, Published(), staged, [day(DAY)])

    diff = warehouse.compare(*sides)[DAY]
    assert (diff.identical, diff.changed) == ((1, 0) if is_same else (0, 1))
    before, after = (warehouse.fingerprint(target, rows, [day(DAY)])[DAY] for rows in (Published(), staged))
    assert (before == after) == is_same
    changed: dict[str, int] = {} if is_same else {"v": 1}
    assert warehouse.changed_columns(*sides)[DAY] == changed
    assert warehouse.changed_columns(*sides, tolerance={"v": Decimal(1000)})[DAY] == changed
