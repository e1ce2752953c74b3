from __future__ import annotations

import pytest
from contract_world import EMPTY_DAY, RANGE, World, after, day, days

from airflow_backfill_provider.errors import PublishRefused, TargetMoved
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.warehouses.base import Action


def test_a_backup_is_exactly_the_affected_partitions(world: World) -> None:
    backup, fingerprints = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")

    assert fingerprints == world.fingerprint(*RANGE)
    measured = world.warehouse.measure(world.target, backup, days(*RANGE), [ROWS])
    assert [values[ROWS] for values in measured.values()] == [3, 2, 0]
    (item,) = world.warehouse.storage()
    assert (item.kind, item.location) == ("backup", backup.location)


def test_a_backup_changes_nothing_that_consumers_see(world: World) -> None:
    tables, contents = world.engine.tables(), world.contents()

    world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")

    assert world.engine.tables() == tables
    assert world.contents() == contents


def test_a_backup_keeps_its_rows_when_the_table_moves_on(world: World) -> None:
    backup, fingerprints = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")
    world.engine.execute("DELETE FROM analytics.orders")

    assert world.warehouse.fingerprint(world.target, backup, days(*RANGE)) == fingerprints


@pytest.mark.parametrize("label", ["before", "again"])
def test_a_second_backup_leaves_the_first_alone(world: World, label: str) -> None:
    first, old = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")
    world.engine.execute("UPDATE analytics.orders SET note = 'moved on' WHERE order_id = 6")
    second, new = world.warehouse.back_up(world.target, "b1", days(*RANGE), label=label)

    assert first.location != second.location
    assert old != new
    assert world.warehouse.fingerprint(world.target, first, days(*RANGE)) == old
    assert world.warehouse.fingerprint(world.target, second, days(*RANGE)) == new


def test_a_rollback_restores_the_range_and_keeps_later_writes_elsewhere(world: World) -> None:
    backup, before = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")
    original = world.contents()
    staged = world.stage_corrected(*RANGE)
    world.warehouse.replace_partitions(world.target, world.publication(staged, RANGE))
    late = (
        "CAST('2024-01-06' AS DATE), 'new', CAST(1 AS DECIMAL(12,2)), 'late', CAST('2024-01-06 10:00:00' AS TIMESTAMP)"
    )
    world.engine.execute(f"INSERT INTO analytics.orders SELECT 60, {late}")
    world.engine.execute("UPDATE analytics.orders SET note = 'mended' WHERE order_id = 1")

    undo = world.publication(backup, RANGE, action=Action.ROLLBACK, before=after(staged), after=before)
    receipt = world.warehouse.replace_partitions(world.target, undo)

    assert (receipt.action, receipt.deleted, receipt.inserted) == (Action.ROLLBACK, 5, 5)
    assert [entry.action for entry in world.warehouse.receipts(world.target)] == [Action.PUBLISH, Action.ROLLBACK]
    assert world.fingerprint(*RANGE) == before
    restored = {row[0]: row for row in world.contents()}
    assert {key for key, row in restored.items() if row not in original} == {1, 60}
    assert len(restored) == len(original) + 1


def test_a_rollback_over_a_changed_range_is_refused(world: World) -> None:
    backup, before = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")
    staged = world.stage_corrected(*RANGE)
    world.warehouse.replace_partitions(world.target, world.publication(staged, RANGE))
    world.engine.execute("UPDATE analytics.orders SET note = 'a fix' WHERE order_id = 6")
    contents = world.contents()

    undo = world.publication(backup, RANGE, action=Action.ROLLBACK, before=after(staged), after=before)
    with pytest.raises(TargetMoved) as refused:
        world.warehouse.replace_partitions(world.target, undo)

    assert refused.value.moved == {"2024-01-03": (2, 2)}
    assert world.contents() == contents
    assert [receipt.action for receipt in world.warehouse.receipts(world.target)] == [Action.PUBLISH]


def test_a_backup_that_is_not_what_the_range_was_is_refused(world: World) -> None:
    _, before = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="before")
    world.engine.execute("DELETE FROM analytics.orders WHERE order_id = 6")
    other, _ = world.warehouse.back_up(world.target, "b1", days(*RANGE), label="other")
    contents = world.contents()

    undo = world.publication(other, RANGE, action=Action.ROLLBACK, after=before)
    with pytest.raises(PublishRefused):
        world.warehouse.replace_partitions(world.target, undo)

    assert world.contents() == contents


def test_an_empty_partition_is_restored_to_empty(world: World) -> None:
    backup, before = world.warehouse.back_up(world.target, "b1", days(EMPTY_DAY), label="before")
    staged = world.stage_rows({EMPTY_DAY: [(90, EMPTY_DAY, "x", None, None, f"{EMPTY_DAY} 01:00:00")]})
    world.warehouse.replace_partitions(world.target, world.publication(staged, [EMPTY_DAY]))
    assert world.fingerprint(EMPTY_DAY)[EMPTY_DAY].rows == 1

    undo = world.publication(backup, [EMPTY_DAY], action=Action.ROLLBACK, before=after(staged), after=before)
    world.warehouse.replace_partitions(world.target, undo)

    assert world.warehouse.fingerprint(world.target, backup, [day(EMPTY_DAY)]) == world.fingerprint(EMPTY_DAY)
    assert world.fingerprint(EMPTY_DAY)[EMPTY_DAY].rows == 0
