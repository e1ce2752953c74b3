from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from contract_world import RANGE, World, day, days, only

from airflow_backfill_provider.errors import BackfillError, WarehouseError
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.warehouses.base import Staged, Warehouse


def test_a_new_warehouse_stores_nothing(warehouse: Warehouse) -> None:
    assert warehouse.storage() == ()


def test_stages_and_backups_are_listed_with_their_backfill(orders: World) -> None:
    one = only(orders.stage_corrected("2024-01-02", backfill_id="b1"))
    two = only(orders.stage_corrected("2024-01-02", backfill_id="b2"))
    backup, _ = orders.warehouse.back_up(orders.target, "b2", days(*RANGE), label="before")

    items = orders.warehouse.storage()

    assert {(item.backfill_id, item.kind, item.location) for item in items} == {
        ("b1", "stage", one.location),
        ("b2", "stage", two.location),
        ("b2", "backup", backup.location),
    }
    now = datetime.now(UTC)
    assert all(item.bytes > 0 and now - timedelta(minutes=1) < item.modified_at <= now for item in items)


def test_listing_does_not_care_where_a_stage_was_published(orders: World) -> None:
    staged = orders.stage_corrected("2024-01-02")
    orders.warehouse.replace_partitions(orders.target, orders.publication(staged, ["2024-01-02"]))

    assert [item.kind for item in orders.warehouse.storage()] == ["stage"]


def test_dropping_removes_one_location_and_nothing_else(orders: World) -> None:
    contents = orders.contents()
    one, two = only(orders.stage_corrected("2024-01-02")), only(orders.stage_corrected("2024-01-02"))
    backup, _ = orders.warehouse.back_up(orders.target, "b1", days(*RANGE), label="before")

    orders.warehouse.drop(one.location)

    assert {item.location for item in orders.warehouse.storage()} == {two.location, backup.location}
    assert orders.warehouse.measure(orders.target, Staged((two,)), [two.partition], [ROWS])["2024-01-02"][ROWS] == 3
    orders.warehouse.drop(backup.location)
    assert [item.location for item in orders.warehouse.storage()] == [two.location]
    assert orders.contents() == contents


def test_dropping_what_is_gone_is_silent(orders: World) -> None:
    staged = only(orders.stage_corrected("2024-01-02"))

    for _ in range(2):
        orders.warehouse.drop(staged.location)

    assert orders.warehouse.storage() == ()


def test_rows_of_a_dropped_stage_are_an_error_rather_than_no_rows(orders: World) -> None:
    staged = orders.stage_corrected("2024-01-02")
    orders.warehouse.drop(only(staged).location)

    with pytest.raises(WarehouseError):
        orders.warehouse.fingerprint(orders.target, staged, [day("2024-01-02")])


def test_rows_of_a_dropped_backup_are_an_error_rather_than_no_rows(orders: World) -> None:
    backup, _ = orders.warehouse.back_up(orders.target, "b1", days(*RANGE), label="before")
    orders.warehouse.drop(backup.location)

    with pytest.raises(WarehouseError):
        orders.warehouse.fingerprint(orders.target, backup, days(*RANGE))


@pytest.mark.parametrize("location", ["analytics.orders", "", "..", "/", "x'; DROP TABLE analytics.orders; --"])
def test_only_a_stage_or_a_backup_can_be_dropped(orders: World, location: str) -> None:
    contents = orders.contents()
    staged = only(orders.stage_corrected("2024-01-02"))

    try:
        orders.warehouse.drop(location)
    except BackfillError:
        pass  # a refusal is as good as silence

    assert orders.contents() == contents
    assert [item.location for item in orders.warehouse.storage()] == [staged.location]


def test_the_published_database_itself_cannot_be_dropped(orders: World) -> None:
    contents = orders.contents()
    path = str(getattr(orders.engine, "path", "memory"))

    try:
        orders.warehouse.drop(path)
    except BackfillError:
        pass  # a refusal is as good as silence

    assert orders.contents() == contents


def test_closing_twice_is_silent(warehouse: Warehouse) -> None:
    warehouse.close()
    warehouse.close()
