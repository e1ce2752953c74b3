from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from contract_engines import Engine
from contract_world import EMPTY_DAY, KEYS, ROWS, World, create_orders, day, days, only, rows_sql
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.warehouses.base import Fingerprint, Published

DAY = "2024-01-02"
Row = tuple[Any, ...]


def _row(**changes: Any) -> Row:
    base = {
        "order_id": 1,
        "order_date": DAY,
        "Status": "a",
        "amount": "1.00",
        "note": "b",
        "seen_at": "2024-01-02 10:00:00",
    }
    return tuple((base | changes).values())


def _of(orders: World, rows: list[Row]) -> Fingerprint:
    """The fingerprint of the day when these are the table's rows."""
    orders.engine.execute("DELETE FROM analytics.orders", f"INSERT INTO analytics.orders {rows_sql(rows)}")
    return orders.fingerprint(DAY)[DAY]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            [_row(Status="x", note="y")], [_row(Status="y", note="x")], id="values swapped between two columns"
        ),
        pytest.param([_row(Status=None, note="y")], [_row(Status="y", note=None)], id="a NULL swapped with a value"),
        pytest.param(
            [_row(order_id=1, note="x"), _row(order_id=2, note="y")],
            [_row(order_id=1, note="y"), _row(order_id=2, note="x")],
            id="values swapped between two rows",
        ),
        pytest.param([_row(), _row()], [_row(note="z"), _row(note="z")], id="one pair for another"),
        pytest.param([_row(), _row()], [], id="a pair against nothing"),
        pytest.param([_row(), _row(), _row()], [_row()], id="three of a kind against one"),
        pytest.param(
            [_row(), _row(), _row(note="z")], [_row(), _row(note="z"), _row(note="z")], id="which of two rows is twice"
        ),
        pytest.param([_row(note=None)], [_row(note="")], id="NULL against the empty text"),
        pytest.param([_row(amount=None)], [_row(amount="0.00")], id="NULL against zero"),
        pytest.param([_row(note="a")], [_row(note="A")], id="case"),
        pytest.param([_row(note="a")], [_row(note="a ")], id="a trailing blank"),
        pytest.param([_row(Status="x1", amount="1.00")], [_row(Status="x", amount="11.00")], id="where one value ends"),
        pytest.param([_row(note="NULL")], [_row(note=None)], id="NULL against its name"),
        pytest.param([_row(amount="0.10")], [_row(amount="0.11")], id="one cent"),
        pytest.param(
            [_row(seen_at="2024-01-02 10:00:00")], [_row(seen_at="2024-01-02 10:00:00.000001")], id="one microsecond"
        ),
        pytest.param([_row(order_id=None)], [_row(order_id=0)], id="a key that is NULL"),
    ],
)
def test_rows_that_differ_have_fingerprints_that_differ(orders: World, one: list[Row], other: list[Row]) -> None:
    assert _of(orders, one) != _of(orders, other)


def test_the_digest_alone_tells_rows_apart(orders: World) -> None:
    assert _of(orders, [_row(note="x")]).digest != _of(orders, [_row(note="y")]).digest


def test_the_order_of_rows_does_not_count(orders: World) -> None:
    rows = [_row(order_id=number, note=str(number % 3)) for number in range(20)]

    assert _of(orders, rows) == _of(orders, rows[::-1])


def test_equal_values_are_equal_however_they_were_written(orders: World) -> None:
    assert _of(orders, [_row(amount="1.1")]) == _of(orders, [_row(amount="1.10")])


_VALUES = st.sampled_from([None, "", "x", "y"])
_DRAWN_ROWS = st.lists(
    st.builds(
        lambda order_id, status, amount, note: _row(order_id=order_id, Status=status, amount=amount, note=note),
        st.sampled_from([None, 1, 2]),
        _VALUES,
        st.sampled_from([None, "0.00", "1.00", "2.00"]),
        _VALUES,
    ),
    max_size=5,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=_DRAWN_ROWS, other=_DRAWN_ROWS, data=st.data())
def test_fingerprints_are_equal_exactly_when_the_rows_are_equal_as_a_bag(
    orders: World, one: list[Row], other: list[Row], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(one))

    assert _of(orders, one) == _of(orders, shuffled)
    assert (_of(orders, one) == _of(orders, other)) == (Counter(one) == Counter(other))


def test_an_empty_partition_has_no_rows_and_the_same_fingerprint_everywhere(world: World) -> None:
    empty = world.fingerprint(EMPTY_DAY, "2031-07-01")

    assert empty[EMPTY_DAY].rows == 0
    assert empty[EMPTY_DAY] == empty["2031-07-01"]
    assert empty[EMPTY_DAY] == only(world.stage_rows({EMPTY_DAY: []})).fingerprint


def test_many_partitions_at_once_and_one_by_one_give_the_same_answer(world: World) -> None:
    together = world.fingerprint(*KEYS)

    assert list(together) == list(KEYS)
    assert together == {key: world.fingerprint(key)[key] for key in KEYS}


def test_partitions_with_holes_between_them_are_told_apart(world: World) -> None:
    chosen = ["2024-01-05", "2024-01-01", "2024-01-03"]

    assert world.fingerprint(*chosen) == {key: world.fingerprint(key)[key] for key in chosen}


def test_no_partition_is_no_answer_rather_than_the_whole_table(orders: World) -> None:
    assert orders.fingerprint() == {}


@pytest.mark.parametrize(
    ("key", "rows"),
    [("2023-12-31", 0), ("2024-01-01", 2), ("2024-01-02", 3), ("2024-01-03", 2), ("2024-01-04", 0), ("2024-01-05", 1)],
)
def test_midnight_and_the_last_microsecond_belong_to_exactly_one_day(world: World, key: str, rows: int) -> None:
    assert world.fingerprint(key)[key].rows == rows


def test_the_days_hold_every_row_that_has_a_day(world: World) -> None:
    rows = sum(fingerprint.rows for fingerprint in world.fingerprint(*KEYS).values())

    assert rows == len(ROWS) - world.warehouse.outside_rows(world.target).null_partition


def test_rows_without_a_partition_value_are_counted_as_outside(world: World) -> None:
    assert world.warehouse.outside_rows(world.target).null_partition == 2


def test_staged_rows_and_a_backup_have_the_fingerprint_of_the_published_rows_they_equal(world: World) -> None:
    published = world.fingerprint(*KEYS)
    staged = world.stage({key: world.select(key) for key in KEYS})
    backup, copied = world.warehouse.back_up(world.target, "b1", days(*KEYS), label="before")

    assert {entry.partition.key: entry.fingerprint for entry in staged.partitions} == published
    assert world.warehouse.fingerprint(world.target, staged, days(*KEYS)) == published
    assert world.warehouse.fingerprint(world.target, backup, days(*KEYS)) == published
    assert copied == published


def test_a_table_with_the_same_rows_has_the_same_fingerprint(orders: World, engine: Engine) -> None:
    engine.execute(create_orders(engine, "analytics.twin"))
    engine.execute("INSERT INTO analytics.twin SELECT * FROM analytics.orders")
    twin = orders.warehouse.describe("analytics.twin", "order_date", ["order_id"])

    assert orders.warehouse.fingerprint(twin, Published(), [day(DAY)]) == orders.fingerprint(DAY)
