"""A view that is pointed to a new version of its table: the guards of a replacement, and the ways back."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from contract_engines import Engine
from contract_world import KEYS, RANGE, World, after, create_orders, day, days, row_sql

from airflow_backfill_provider.errors import (
    BackfillError,
    LockTimeout,
    PublishRefused,
    SpecError,
    StageChanged,
    TargetMoved,
    WarehouseError,
)
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Receipt, StorageItem, Warehouse

FIRST = "analytics.orders__v1"
LATE = (60, "2024-01-05", "late", None, None, "2024-01-05 00:00:00")


@pytest.fixture(params=["order_date", "seen_at"])
def shown(request: pytest.FixtureRequest, engine: Engine, warehouse: Warehouse) -> World:
    """The published rows behind a view, by day on a DATE and on a TIMESTAMP column."""
    return behind_view(engine, warehouse, request.param)


@pytest.fixture
def view(engine: Engine, warehouse: Warehouse) -> World:
    """The published rows behind a view, by day on a DATE column."""
    return behind_view(engine, warehouse, "order_date")


def behind_view(engine: Engine, warehouse: Warehouse, partition_by: str) -> World:
    if "view_swap" not in warehouse.capabilities.mechanisms:
        pytest.skip("the engine does not swap views")
    return World.behind_view(engine, warehouse, partition_by)


def table_of(world: World) -> str:
    """The table that the view shows."""
    version = world.warehouse.describe("analytics.orders", world.partition_by, ["order_id"]).version
    assert version is not None
    return version.table


def table_rows(world: World, table: str) -> list[tuple[Any, ...]]:
    return world.engine.rows(f"SELECT * FROM {table} ORDER BY order_id, note, amount")


def publish(world: World, *keys: str, backfill_id: str = "b1") -> tuple[Receipt, Backup, dict[str, Fingerprint]]:
    """Back up, raise every amount of the days by one, publish."""
    backup, marks = world.warehouse.back_up(world.target, backfill_id, days(*keys), label="publish")
    staged = world.stage_corrected(*keys, backfill_id=backfill_id)
    receipt = world.warehouse.swap_view(world.target, world.publication(staged, keys, backfill_id=backfill_id))
    return receipt, backup, marks


def undo(world: World, backup: Backup, marks: dict[str, Fingerprint], backfill_id: str = "b1") -> Receipt:
    return world.warehouse.swap_view(world.target, undoing(world, backup, marks, backfill_id))


def undoing(world: World, backup: Backup, marks: dict[str, Fingerprint], backfill_id: str = "b1") -> Any:
    return world.publication(backup, marks, action=Action.ROLLBACK, after=marks, backfill_id=backfill_id)


def versions(world: World) -> list[StorageItem]:
    return [item for item in world.warehouse.storage() if item.kind == "version"]


def test_a_view_is_described_as_the_table_that_it_shows(view: World) -> None:
    table = view.warehouse.describe(FIRST, "order_date", ["order_id"])

    assert view.target.table == "analytics.orders"
    assert view.target.columns == table.columns
    assert view.target.version is not None
    assert (view.target.version.table, view.target.version.rows, view.target.version.not_carried) == (FIRST, 10, ())
    assert table.version is None


def test_another_view_of_the_table_is_named_because_it_stays_behind(view: World) -> None:
    view.engine.execute(f"CREATE VIEW analytics.recent AS SELECT * FROM {FIRST} WHERE order_id > 5")

    described = view.warehouse.describe("analytics.orders", "order_date", ["order_id"])

    assert described.version is not None
    (sentence,) = described.version.not_carried
    assert "analytics.recent" in sentence
    assert FIRST in sentence


@pytest.mark.parametrize(
    ("select", "found"),
    [
        (f"SELECT * FROM {FIRST} WHERE order_id > 3", "order_id > 3"),
        (f"SELECT order_id, order_date FROM {FIRST}", "order_id, order_date"),
        (f"SELECT * FROM {FIRST} UNION ALL SELECT * FROM {FIRST}", "UNION ALL"),
        (f"SELECT DISTINCT * FROM {FIRST}", "DISTINCT"),
    ],
)
def test_a_view_of_anything_but_one_whole_table_is_refused_naming_what_it_shows(
    view: World, select: str, found: str
) -> None:
    view.engine.execute(f"CREATE VIEW analytics.seen AS {select}")

    with pytest.raises(SpecError, match="view") as refused:
        view.warehouse.describe("analytics.seen", "order_date", ["order_id"])

    assert found in str(refused.value)


def test_a_view_of_a_view_is_refused(view: World) -> None:
    view.engine.execute("CREATE VIEW analytics.again AS SELECT * FROM analytics.orders")

    with pytest.raises(SpecError, match=r"analytics\.again is a view of analytics\.orders, which is no table"):
        view.warehouse.describe("analytics.again", "order_date", ["order_id"])


def test_a_swap_changes_exactly_the_range_of_what_readers_see_and_leaves_the_old_table_alone(shown: World) -> None:
    old, outside = table_rows(shown, FIRST), shown.outside()
    staged = shown.stage_corrected(*RANGE)

    receipt = shown.warehouse.swap_view(shown.target, shown.publication(staged, RANGE))

    assert shown.fingerprint(*RANGE) == after(staged)
    assert shown.outside() == outside
    assert len(shown.contents(f"{shown.partition_by} IS NULL")) == 2
    assert table_rows(shown, FIRST) == old
    assert table_of(shown) != FIRST
    assert table_rows(shown, table_of(shown)) == shown.contents()
    assert (receipt.action, receipt.keys, receipt.deleted, receipt.inserted) == (Action.PUBLISH, RANGE, 5, 5)
    assert shown.warehouse.receipts(shown.target) == (receipt,)


def test_the_new_version_is_named_after_the_view_and_the_backfill_beside_the_old_one(view: World) -> None:
    publish(view, *RANGE, backfill_id="0123456789ab")
    assert table_of(view) == "analytics.orders__0123456789ab"


def test_a_name_that_would_be_too_long_is_cut_and_still_ends_in_the_backfill(engine: Engine, view: World) -> None:
    name = "orders_" + 56 * "x"
    engine.execute(
        create_orders(engine, "analytics.long__v1"),
        f"INSERT INTO analytics.long__v1 {row_sql(LATE)}",
        f"CREATE VIEW analytics.{name} AS SELECT * FROM analytics.long__v1",
    )
    long = World(engine, view.warehouse, view.warehouse.describe(f"analytics.{name}", "order_date", ["order_id"]))

    publish(long, "2024-01-02", backfill_id="0123456789ab")

    version = view.warehouse.describe(f"analytics.{name}", "order_date", ["order_id"]).version
    assert version is not None
    assert version.table.endswith("__0123456789ab")
    assert len(version.table.removeprefix("analytics.")) == 63


def test_a_second_backfill_builds_on_the_version_of_the_first(view: World) -> None:
    publish(view, "2024-01-02", backfill_id="b1")
    publish(view, "2024-01-03", backfill_id="b2")

    assert [int(row[3]) for row in view.contents("order_id IN (3, 6)")] == [31, -4]
    assert [receipt.backfill_id for receipt in view.warehouse.receipts(view.target)] == ["b1", "b2"]


def test_a_table_of_the_name_that_the_new_version_would_have_is_not_touched(view: World) -> None:
    view.engine.execute(create_orders(view.engine, "analytics.orders__b1"))
    publication = view.publication(view.stage_corrected(*RANGE), RANGE)

    refused = view.refuses(view.warehouse.swap_view, publication)

    assert "analytics.orders__b1" in str(refused)
    assert table_of(view) == FIRST


def test_a_table_is_not_swapped_and_a_view_is_not_replaced(engine: Engine, view: World) -> None:
    publication = view.publication(view.stage_corrected(*RANGE), RANGE)
    table = view.warehouse.describe(FIRST, "order_date", ["order_id"])

    view.refuses(view.warehouse.replace_partitions, publication)
    view.refuses(view.warehouse.merge, publication)
    with pytest.raises(PublishRefused, match="is a table"):
        view.warehouse.swap_view(table, publication)


def test_a_range_that_moved_is_not_swapped(shown: World) -> None:
    publication = shown.publication(shown.stage_corrected(*RANGE), RANGE)
    shown.engine.execute(f"UPDATE {FIRST} SET note = 'changed' WHERE order_id = 6")

    refused = shown.refuses(shown.warehouse.swap_view, publication, TargetMoved)

    assert isinstance(refused, TargetMoved)
    assert refused.moved == {"2024-01-03": (2, 2)}
    assert table_of(shown) == FIRST


def test_rows_that_were_not_validated_are_not_shown(view: World) -> None:
    publication = view.publication(view.stage_corrected("2024-01-02"), ["2024-01-02"])
    wrong = {"2024-01-02": replace(publication.after["2024-01-02"], rows=2)}

    view.refuses(view.warehouse.swap_view, replace(publication, after=wrong), StageChanged)

    assert table_of(view) == FIRST


def test_a_key_that_stands_outside_the_range_is_not_shown_twice(view: World) -> None:
    staged = view.stage_rows({"2024-01-02": [(1, "2024-01-02", "x", "1.00", None, "2024-01-02 10:00:00")]})
    view.refuses(view.warehouse.swap_view, view.publication(staged, ["2024-01-02"]))


def test_a_caller_that_lost_its_right_meanwhile_shows_nothing(view: World) -> None:
    def lost() -> None:
        raise PublishRefused("someone took it over")

    staged = view.stage_corrected(*RANGE)
    view.refuses(view.warehouse.swap_view, view.publication(staged, RANGE, confirm=lost))
    assert table_of(view) == FIRST


def test_no_partition_is_refused(view: World) -> None:
    view.refuses(view.warehouse.swap_view, view.publication(view.stage({}), []))


def test_a_row_written_outside_the_range_before_the_swap_is_in_the_new_version(shown: World) -> None:
    publication = shown.publication(shown.stage_corrected(*RANGE), RANGE)
    shown.engine.execute(f"INSERT INTO {FIRST} {row_sql(LATE)}", f"DELETE FROM {FIRST} WHERE order_id IN (1, 9)")
    outside = shown.outside()

    shown.warehouse.swap_view(shown.target, publication)

    assert shown.outside() == outside
    assert {row[0] for row in outside} == {2, 8, 10, 60}


def test_a_constraint_of_the_table_holds_for_the_new_version_too(engine: Engine, view: World) -> None:
    if "constraint" in engine.lacks:
        pytest.skip("the engine has no constraint")
    engine.execute(
        "CREATE TABLE analytics.kept__v1 (id BIGINT NOT NULL, d DATE, CONSTRAINT ids UNIQUE (id))",
        "INSERT INTO analytics.kept__v1 VALUES (1, DATE '2024-01-01'), (2, DATE '2024-01-02')",
        "CREATE VIEW analytics.kept AS SELECT * FROM analytics.kept__v1",
    )
    target = view.warehouse.describe("analytics.kept", "d", ["id"])
    kept = World(engine, view.warehouse, target)
    staged = kept.stage({"2024-01-02": "SELECT 3 AS id, DATE '2024-01-02' AS d"})

    view.warehouse.swap_view(target, kept.publication(staged, ["2024-01-02"]))

    described = view.warehouse.describe("analytics.kept", "d", ["id"])
    assert [(one.kind, one.columns) for one in described.constraints] == [
        (one.kind, one.columns) for one in target.constraints
    ]
    assert described.columns == target.columns
    twice = kept.stage({"2024-01-02": "SELECT 1 AS id, DATE '2024-01-02' AS d"}, backfill_id="b2")
    with pytest.raises(PublishRefused):
        view.warehouse.swap_view(
            target, kept.publication(twice, ["2024-01-02"], backfill_id="b2", keys_may_repeat=True)
        )
    assert engine.rows("SELECT id FROM analytics.kept ORDER BY id") == [(1,), (3,)]


def test_a_view_that_shows_something_else_by_now_is_refused(view: World) -> None:
    publication = view.publication(view.stage_corrected(*RANGE), RANGE)
    view.engine.execute(f"CREATE OR REPLACE VIEW analytics.orders AS SELECT * FROM {FIRST} WHERE order_id < 100")

    with pytest.raises(BackfillError, match="more than show one table"):
        view.warehouse.swap_view(view.target, publication)


def test_a_rollback_points_the_view_back(shown: World) -> None:
    before = shown.contents()
    _, backup, marks = publish(shown, *RANGE)

    receipt = undo(shown, backup, marks)

    assert table_of(shown) == FIRST
    assert shown.contents() == before
    assert (receipt.action, receipt.keys, receipt.deleted, receipt.inserted) == (Action.ROLLBACK, RANGE, 5, 5)
    assert shown.warehouse.receipts(shown.target)[-1] == receipt


def test_rows_written_outside_the_range_since_survive_a_rollback_which_then_restores_the_range_alone(
    shown: World,
) -> None:
    before = shown.fingerprint(*RANGE)
    _, backup, marks = publish(shown, *RANGE)
    version = table_of(shown)
    shown.engine.execute(f"INSERT INTO {version} {row_sql(LATE)}")
    outside = shown.outside()

    undo(shown, backup, marks)

    assert table_of(shown) == version
    assert shown.fingerprint(*RANGE) == before
    assert shown.outside() == outside
    assert len(shown.contents("order_id = 60")) == 1


@pytest.mark.parametrize(
    "change",
    [
        f"INSERT INTO {FIRST} {row_sql(LATE)}",
        f"UPDATE {FIRST} SET note = 'since' WHERE order_id = 6",
        f"UPDATE {FIRST} SET note = 'since' WHERE order_id = 9",
        f"DELETE FROM {FIRST} WHERE order_id = 10",
    ],
    ids=["a row more", "the range changed", "a row of no day changed", "a row of no day gone"],
)
def test_an_old_version_that_was_written_since_is_not_shown_again(view: World, change: str) -> None:
    before = view.contents()
    _, backup, marks = publish(view, *RANGE)
    version = table_of(view)
    view.engine.execute(change)

    undo(view, backup, marks)

    assert table_of(view) == version
    assert view.contents() == before


def test_a_rollback_without_the_old_version_restores_the_range_alone(view: World) -> None:
    before = view.contents()
    _, backup, marks = publish(view, *RANGE)
    version = table_of(view)
    (old,) = versions(view)
    view.warehouse.drop(old.location)

    undo(view, backup, marks)

    assert table_of(view) == version
    assert view.contents() == before


def test_a_rollback_is_refused_while_a_newer_version_stands_and_possible_once_that_is_undone(view: World) -> None:
    before = view.contents()
    _, first, first_marks = publish(view, "2024-01-02", backfill_id="b1")
    _, second, second_marks = publish(view, "2024-01-03", backfill_id="b2")

    refused = view.refuses(view.warehouse.swap_view, undoing(view, first, first_marks, "b1"))

    assert "b2" in str(refused)
    undo(view, second, second_marks, "b2")
    undo(view, first, first_marks, "b1")
    assert table_of(view) == FIRST
    assert view.contents() == before


def test_a_newer_version_whose_range_alone_was_restored_bars_no_rollback(view: World) -> None:
    before = view.contents()
    _, first, first_marks = publish(view, "2024-01-02", backfill_id="b1")
    _, second, second_marks = publish(view, "2024-01-03", backfill_id="b2")
    view.engine.execute(f"INSERT INTO {table_of(view)} {row_sql(LATE)}")

    undo(view, second, second_marks, "b2")
    undo(view, first, first_marks, "b1")

    assert view.contents("order_id <> 60") == before
    assert len(view.contents("order_id = 60")) == 1


def test_a_rollback_of_a_range_that_moved_is_refused(view: World) -> None:
    _, backup, marks = publish(view, *RANGE)
    publication = undoing(view, backup, marks)
    view.engine.execute(f"UPDATE {table_of(view)} SET note = 'since' WHERE order_id = 6")

    view.refuses(view.warehouse.swap_view, publication, TargetMoved)


def test_old_versions_are_listed_with_the_backfill_that_replaced_them_and_the_shown_one_is_not(view: World) -> None:
    first, *_ = publish(view, "2024-01-02", backfill_id="b1")
    assert [item.backfill_id for item in versions(view)] == ["b1"]

    second, backup, marks = publish(view, "2024-01-03", backfill_id="b2")
    assert [(item.backfill_id, item.modified_at) for item in versions(view)] == [
        ("b1", first.committed_at),
        ("b2", second.committed_at),
    ]

    undo(view, backup, marks, "b2")
    assert [item.backfill_id for item in versions(view)] == ["b1", "b2"]
    assert all("orders__" in item.location and item.bytes > 0 for item in versions(view))
    assert not any("orders__b1" in item.location for item in versions(view))


def test_an_old_version_can_be_dropped_and_the_view_goes_on(view: World) -> None:
    publish(view, *RANGE)
    contents = view.contents()
    (old,) = versions(view)

    for _ in range(2):
        view.warehouse.drop(old.location)

    assert versions(view) == []
    assert FIRST not in view.engine.tables()
    assert view.contents() == contents


def test_a_version_that_a_view_reads_is_never_dropped(view: World) -> None:
    _, backup, marks = publish(view, *RANGE)
    (old,) = versions(view)
    undo(view, backup, marks)
    contents = view.contents()

    try:
        view.warehouse.drop(old.location)
    except WarehouseError:
        pass  # a refusal is as good as silence

    assert view.contents() == contents
    (new,) = versions(view)
    view.engine.execute("CREATE VIEW analytics.recent AS SELECT * FROM analytics.orders__b1 WHERE order_id > 5")
    with pytest.raises(WarehouseError, match=r"analytics\.recent"):
        view.warehouse.drop(new.location)
    assert "analytics.orders__b1" in view.engine.tables()


@pytest.mark.parametrize("name", ["analytics.orders", "analytics.orders__v1", "analytics.other", '"analytics"."other"'])
def test_a_table_that_no_view_was_pointed_away_from_is_never_dropped(view: World, name: str) -> None:
    view.engine.execute(create_orders(view.engine, "analytics.other"))
    tables = view.engine.tables()

    view.warehouse.drop(f"version:{name}")

    assert view.engine.tables() == tables


def test_of_two_swaps_at_once_exactly_one_wins_and_a_later_one_builds_on_it(view: World) -> None:
    publications = [
        view.publication(view.stage_corrected("2024-01-02", backfill_id=name), ["2024-01-02"], backfill_id=name)
        for name in ("b1", "b2")
    ]
    answers: list[Any] = [None, None]
    start = threading.Barrier(2)

    def swap(number: int) -> None:
        start.wait()
        try:
            answers[number] = view.warehouse.swap_view(view.target, publications[number])
        except (TargetMoved, LockTimeout) as error:
            answers[number] = error

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    winners = [number for number, answer in enumerate(answers) if isinstance(answer, Receipt)]
    assert len(winners) == 1, answers
    assert table_of(view) == f"analytics.orders__b{winners[0] + 1}"
    assert len(view.warehouse.receipts(view.target)) == 1


def test_everything_can_be_asked_of_a_view_as_of_a_table(view: World) -> None:
    backup, marks = view.warehouse.back_up(view.target, "b1", days(*KEYS), label="publish")

    assert marks == view.fingerprint(*KEYS)
    assert view.warehouse.outside_rows(view.target).null_partition == 2
    staged = view.stage_corrected("2024-01-02")
    diff = view.warehouse.compare(view.target, backup, staged, [day("2024-01-02")])["2024-01-02"]
    assert (diff.identical, diff.changed) == (1, 2)
    assert view.warehouse.key_conflicts(view.target, staged).outside == 0
