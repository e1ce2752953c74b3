from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from contract_engines import Engine
from contract_world import EMPTY_DAY, KEYS, RANGE, World, after, day, days, only, row_sql, rows_sql
from stage_writing import write_one

from airflow_backfill_provider.errors import (
    BackfillError,
    LockTimeout,
    PublishRefused,
    StageChanged,
    TargetMoved,
    WarehouseError,
)
from airflow_backfill_provider.warehouses.base import Action, Fingerprint, Published, Staged
from airflow_backfill_provider.windows import Partition, Window


def test_publishing_replaces_exactly_the_range(world: World) -> None:
    outside = world.outside()
    neighbours = world.fingerprint("2024-01-01", "2024-01-05")
    staged = world.stage_corrected(*RANGE)

    world.warehouse.replace_partitions(world.target, world.publication(staged, RANGE))

    assert world.fingerprint(*RANGE) == after(staged)
    assert world.fingerprint("2024-01-01", "2024-01-05") == neighbours
    assert world.outside() == outside
    amounts = [row[3] for row in world.contents("order_id BETWEEN 3 AND 7")]
    assert amounts == [Decimal("31.00"), Decimal("1.10"), None, Decimal("-4.25"), Decimal("1.20")]


def test_the_receipt_says_what_was_done(world: World) -> None:
    staged = world.stage_rows({DAY: [(3, DAY, "x", None, None, f"{DAY} 01:00:00")] for DAY in RANGE[:1]})

    publication = world.publication(staged, RANGE[:1], backfill_id="b7", plan_hash="p7")
    receipt = world.warehouse.replace_partitions(world.target, publication)

    assert (receipt.backfill_id, receipt.action, receipt.plan_hash) == ("b7", Action.PUBLISH, "p7")
    assert (receipt.keys, receipt.deleted, receipt.inserted) == (RANGE[:1], 3, 1)
    assert receipt.committed_at.utcoffset() == timedelta(0)
    assert world.warehouse.receipts(world.target) == (receipt,)


def test_rows_that_belong_to_no_day_are_not_touched(world: World) -> None:
    lost = world.contents(f"{world.partition_by} IS NULL")
    staged = world.stage_corrected(*KEYS)

    world.warehouse.replace_partitions(world.target, world.publication(staged, KEYS))

    assert len(lost) == 2
    assert world.contents(f"{world.partition_by} IS NULL") == lost


def test_days_between_the_partitions_stay(world: World) -> None:
    ends = ("2024-01-01", "2024-01-03", "2024-01-05")
    holes = world.fingerprint("2024-01-02", "2024-01-04")
    staged = world.stage_corrected(*ends)

    world.warehouse.replace_partitions(world.target, world.publication(staged, ends))

    assert world.fingerprint(*ends) == after(staged)
    assert world.fingerprint("2024-01-02", "2024-01-04") == holes


def test_more_days_apart_than_bounds_are_written_for_are_replaced_and_those_between_them_stay(world: World) -> None:
    march = [f"2024-03-{number:02}" for number in range(1, 25)]
    rows = [(100 + number, key, "x", "1.00", "n", f"{key} 10:00:00") for number, key in enumerate(march)]
    world.engine.execute(f"INSERT INTO analytics.orders {rows_sql(rows)}")
    ends, holes, lost = march[::2], march[1::2], world.contents(f"{world.partition_by} IS NULL")
    between = world.fingerprint(*holes)
    staged = world.stage_corrected(*ends)

    world.warehouse.replace_partitions(world.target, world.publication(staged, ends))

    assert world.fingerprint(*ends) == after(staged)
    assert world.fingerprint(*holes) == between
    assert world.contents(f"{world.partition_by} IS NULL") == lost


def test_an_empty_stage_replaces_the_old_rows(world: World) -> None:
    staged = world.stage_rows({"2024-01-02": [], "2024-01-03": []})

    receipt = world.warehouse.replace_partitions(world.target, world.publication(staged, RANGE[:2]))

    assert (receipt.deleted, receipt.inserted) == (5, 0)
    assert [fingerprint.rows for fingerprint in world.fingerprint(*KEYS).values()] == [2, 0, 0, 0, 1]


def test_an_empty_partition_is_filled(world: World) -> None:
    staged = world.stage_rows({EMPTY_DAY: [(90, EMPTY_DAY, "x", None, None, f"{EMPTY_DAY} 00:00:00")]})

    receipt = world.warehouse.replace_partitions(world.target, world.publication(staged, [EMPTY_DAY]))

    assert (receipt.deleted, receipt.inserted) == (0, 1)
    assert world.fingerprint(EMPTY_DAY) == after(staged)


def test_rows_on_the_edges_of_a_day_are_replaced_once(events: World) -> None:
    staged = events.stage_corrected("2024-01-02")

    receipt = events.warehouse.replace_partitions(events.target, events.publication(staged, ["2024-01-02"]))

    assert (receipt.deleted, receipt.inserted) == (3, 3)
    assert [row[0] for row in events.contents()] == list(range(1, 11))


def test_rows_land_by_name_whatever_the_order_of_the_transform_s_columns(orders: World) -> None:
    orders.engine.execute("CREATE TABLE analytics.pairs (a BIGINT, b BIGINT, id BIGINT, d DATE)")
    target = orders.warehouse.describe("analytics.pairs", "d", ["id"])
    with orders.warehouse.open_stage(target, "b1", "batch-1") as writer:
        staged = Staged(
            (write_one(writer, day("2024-01-02"), "SELECT DATE '2024-01-02' AS d, 2 AS b, 7 AS id, 1 AS a"),)
        )
    before = orders.warehouse.fingerprint(target, Published(), days("2024-01-02"))

    orders.warehouse.replace_partitions(target, orders.publication(staged, ["2024-01-02"], before=before))

    assert orders.engine.rows("SELECT a, b, id FROM analytics.pairs") == [(1, 2, 7)]


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ("UPDATE analytics.orders SET note = 'changed' WHERE order_id = 6", {"2024-01-03": (2, 2)}),
        ("DELETE FROM analytics.orders WHERE order_id = 3", {"2024-01-02": (3, 2)}),
        (
            f"INSERT INTO analytics.orders {row_sql([60, EMPTY_DAY, 'late', None, None, EMPTY_DAY + ' 00:00:00'])}",
            {"2024-01-04": (0, 1)},
        ),
        ("UPDATE analytics.orders SET note = NULL WHERE order_id = 6", {"2024-01-03": (2, 2)}),
        ("UPDATE analytics.orders SET order_id = order_id + 100 WHERE order_id IN (3, 6)", {"2024-01-02": (3, 3), "2024-01-03": (2, 2)}),
        ("DELETE FROM analytics.orders", {"2024-01-02": (3, 0), "2024-01-03": (2, 0)}),
    ],
    ids=["changed", "removed", "added", "set to NULL", "two partitions", "emptied"],
)  # fmt: skip
def test_a_range_that_moved_is_refused_with_counts(
    world: World, change: str, moved: dict[str, tuple[int, int]]
) -> None:
    publication = world.publication(world.stage_corrected(*RANGE), RANGE)
    world.engine.execute(change)

    refused = world.refuses(world.warehouse.replace_partitions, publication, TargetMoved)

    assert isinstance(refused, TargetMoved)
    assert refused.moved == moved
    assert all(key in str(refused) for key in moved)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE analytics.orders SET note = 'elsewhere' WHERE order_id IN (2, 8)",
        "DELETE FROM analytics.orders WHERE order_id IN (1, 9)",
        f"INSERT INTO analytics.orders {row_sql([60, '2024-01-05', 'late', None, None, '2024-01-05 00:00:00'])}",
    ],
)
def test_a_change_outside_the_range_is_no_obstacle_and_stays(world: World, change: str) -> None:
    staged = world.stage_corrected(*RANGE)
    publication = world.publication(staged, RANGE)
    world.engine.execute(change)
    outside = world.outside()

    world.warehouse.replace_partitions(world.target, publication)

    assert world.fingerprint(*RANGE) == after(staged)
    assert world.outside() == outside


def test_rows_that_are_not_the_validated_ones_are_refused_with_counts(world: World) -> None:
    validated = world.stage_corrected(*RANGE)
    other = {entry.partition.key: entry for entry in world.stage_rows({"2024-01-03": []}).partitions}
    swapped = Staged(tuple(other.get(entry.partition.key, entry) for entry in validated.partitions))

    refused = world.refuses(
        world.warehouse.replace_partitions, world.publication(swapped, RANGE, after=after(validated)), StageChanged
    )

    assert isinstance(refused, StageChanged)
    assert refused.changed == {"2024-01-03": (2, 0)}
    assert "2024-01-03" in str(refused)


def test_the_rows_themselves_are_checked_and_not_what_the_caller_says_of_them(world: World) -> None:
    staged = world.stage_corrected(*RANGE)
    lie = Fingerprint(3, "0", only(world.stage_corrected("2024-01-02")).fingerprint.method)
    claimed = Staged((replace(staged.partitions[0], fingerprint=lie), *staged.partitions[1:]))

    world.refuses(world.warehouse.replace_partitions, world.publication(claimed, RANGE), StageChanged)


def test_a_range_that_moved_and_moved_back_is_the_same_range(world: World) -> None:
    staged = world.stage_corrected(*RANGE)
    publication = world.publication(staged, RANGE)
    world.engine.execute("UPDATE analytics.orders SET note = 'away' WHERE order_id = 7")
    world.engine.execute("UPDATE analytics.orders SET note = 'd' WHERE order_id = 7")

    world.warehouse.replace_partitions(world.target, publication)

    assert world.fingerprint(*RANGE) == after(staged)


def test_no_partition_is_refused(world: World) -> None:
    world.refuses(world.warehouse.replace_partitions, world.publication(Staged(()), []))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda p: replace(p, partitions=p.partitions[:-1]), id="a staged partition too many"),
        pytest.param(lambda p: replace(p, rows=Staged(p.rows.partitions[:-1])), id="a staged partition missing"),
        pytest.param(lambda p: replace(p, rows=Staged(())), id="nothing staged"),
        pytest.param(lambda p: replace(p, partitions=(*p.partitions, p.partitions[0])), id="a partition given twice"),
        pytest.param(
            lambda p: replace(p, rows=Staged((*p.rows.partitions, p.rows.partitions[0]))), id="a partition staged twice"
        ),
        pytest.param(lambda p: replace(p, before=dict(list(p.before.items())[1:])), id="a baseline missing"),
        pytest.param(lambda p: replace(p, before={}), id="no baseline"),
        pytest.param(lambda p: replace(p, after=dict(list(p.after.items())[1:])), id="a validated fingerprint missing"),
        pytest.param(lambda p: replace(p, after={}), id="nothing validated"),
    ],
)
def test_what_does_not_cover_the_range_exactly_is_refused(world: World, spoil: Callable[[Any], Any]) -> None:
    world.refuses(world.warehouse.replace_partitions, spoil(world.publication(world.stage_corrected(*RANGE), RANGE)))


def test_a_partition_staged_for_another_window_is_refused(world: World) -> None:
    """The window decides what is deleted; a wider one under the same key would take the neighbour with it."""
    staged = world.stage_corrected("2024-01-02")
    wide = Partition("2024-01-02", Window(day("2024-01-02").window.start, day("2024-01-03").window.end))
    before = world.warehouse.fingerprint(world.target, Published(), [wide])

    world.refuses(
        world.warehouse.replace_partitions, world.publication(staged, ["2024-01-02"], partitions=(wide,), before=before)
    )


def test_two_names_for_one_window_are_refused_because_its_rows_would_land_twice(world: World) -> None:
    window = day("2024-01-02").window
    partitions = (Partition("one", window), Partition("other", window))
    entries = []
    for partition in partitions:
        with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
            entries.append(write_one(writer, partition, world.select("2024-01-02")))
    before = world.warehouse.fingerprint(world.target, Published(), partitions[:1])

    world.refuses(
        world.warehouse.replace_partitions,
        world.publication(
            Staged(tuple(entries)),
            ["2024-01-02"],
            partitions=partitions,
            before={"one": before["one"], "other": before["one"]},
        ),
    )


def test_publishing_the_same_again_is_refused_because_the_range_moved(world: World) -> None:
    publication = world.publication(world.stage_corrected(*RANGE), RANGE)
    world.warehouse.replace_partitions(world.target, publication)

    refused = world.refuses(world.warehouse.replace_partitions, publication, TargetMoved)

    assert isinstance(refused, TargetMoved)
    assert refused.moved == {"2024-01-02": (3, 3), "2024-01-03": (2, 2)}


def test_publishing_identical_rows_twice_changes_nothing_either_time(world: World) -> None:
    contents = world.contents()
    publication = world.publication(world.stage({key: world.select(key) for key in RANGE}), RANGE)

    for _ in range(2):
        world.warehouse.replace_partitions(world.target, publication)
        assert world.contents() == contents


def test_a_stage_is_still_there_after_it_was_published(world: World) -> None:
    staged = world.stage_corrected(*RANGE)
    world.warehouse.replace_partitions(world.target, world.publication(staged, RANGE))

    assert world.warehouse.fingerprint(world.target, staged, days(*RANGE)) == world.fingerprint(*RANGE)


def test_of_two_attempts_only_the_named_one_is_published(world: World) -> None:
    stale = world.stage_corrected(*RANGE, label="one")
    fresh = only(world.stage_rows({"2024-01-02": [(3, "2024-01-02", "fresh", None, None, "2024-01-02 05:00:00")]}))
    named = Staged((fresh, *stale.partitions[1:]))

    world.warehouse.replace_partitions(world.target, world.publication(named, RANGE))

    assert world.fingerprint(*RANGE) == after(named)
    assert [row[2] for row in world.contents("order_id BETWEEN 3 AND 5")] == ["fresh"]


def test_a_stage_that_is_gone_is_an_error_and_nothing_is_written(world: World) -> None:
    staged = world.stage_corrected(*RANGE)
    publication = world.publication(staged, RANGE)
    world.warehouse.drop(staged.partitions[0].location)

    world.refuses(world.warehouse.replace_partitions, publication, BackfillError)


@pytest.mark.parametrize(
    "change", ["ALTER TABLE analytics.orders ADD COLUMN surprise BIGINT", "DROP AND CREATE WITH A TYPE CHANGED"]
)
def test_a_table_whose_columns_changed_since_it_was_described_is_refused(world: World, change: str) -> None:
    publication = world.publication(world.stage_corrected(*RANGE), RANGE)
    if change.startswith("ALTER"):
        world.engine.execute(change)
    else:
        kept = world.contents()
        world.engine.execute(
            "DROP TABLE analytics.orders",
            'CREATE TABLE analytics.orders (order_id INTEGER, order_date DATE, "Status" VARCHAR, amount DECIMAL(12,2), '
            "note VARCHAR, seen_at TIMESTAMP)",
            f"INSERT INTO analytics.orders {rows_sql(kept)}",
        )

    world.refuses(world.warehouse.replace_partitions, publication)


def test_a_failure_while_the_new_rows_are_written_leaves_the_old_ones(engine: Engine, orders: World) -> None:
    if "constraint" in engine.lacks:
        pytest.skip("the engine has no constraint that could fail")
    engine.execute(
        "CREATE TABLE analytics.keyed (id BIGINT PRIMARY KEY, d DATE, amount BIGINT CHECK (amount > 0))",
        "INSERT INTO analytics.keyed VALUES (1, DATE '2024-01-01', 1), (2, DATE '2024-01-02', 2)",
    )
    contents = engine.rows("SELECT * FROM analytics.keyed ORDER BY id")
    target = orders.warehouse.describe("analytics.keyed", "d", ["id"])
    before = orders.warehouse.fingerprint(target, Published(), days("2024-01-02"))

    with orders.warehouse.open_stage(target, "b1", "batch-1") as writer:
        staged = Staged((write_one(writer, day("2024-01-02"), "SELECT 1 AS id, DATE '2024-01-02' AS d, 5 AS amount"),))
    with pytest.raises((WarehouseError, PublishRefused)):
        orders.warehouse.replace_partitions(target, orders.publication(staged, ["2024-01-02"], before=before))

    assert engine.rows("SELECT * FROM analytics.keyed ORDER BY id") == contents
    assert orders.warehouse.receipts(target) == ()


def test_the_keys_of_the_old_rows_can_be_written_again_at_once(engine: Engine, orders: World) -> None:
    engine.execute(
        "CREATE TABLE analytics.keyed (id BIGINT, d DATE, amount BIGINT, PRIMARY KEY (id))",
        "INSERT INTO analytics.keyed VALUES (1, DATE '2024-01-02', 1), (2, DATE '2024-01-02', 2)",
    )
    target = orders.warehouse.describe("analytics.keyed", "d", ["id"])

    for amount in (5, 6):
        before = orders.warehouse.fingerprint(target, Published(), days("2024-01-02"))
        select = f"SELECT id, d, {amount} AS amount FROM analytics.keyed WHERE d = DATE '2024-01-02'"
        with orders.warehouse.open_stage(target, "b1", "batch-1") as writer:
            staged = Staged((write_one(writer, day("2024-01-02"), select),))
        orders.warehouse.replace_partitions(target, orders.publication(staged, ["2024-01-02"], before=before))

        assert engine.rows("SELECT id, amount FROM analytics.keyed ORDER BY id") == [(1, amount), (2, amount)]


def test_odd_names_are_published_and_touch_nothing_else(engine: Engine, orders: World) -> None:
    if "odd names" in engine.lacks:
        pytest.skip("the engine has no such names")
    name = 'analytics."Odd ""t""; DROP TABLE orders; --"'
    engine.execute(
        f'CREATE TABLE {name} ("Key" BIGINT, "group" TIMESTAMP, "a\'b"";--" VARCHAR, "ORDER" BIGINT)',
        f"INSERT INTO {name} VALUES (1, TIMESTAMP '2024-01-02 10:00:00', 'x', 2)",
    )
    target = orders.warehouse.describe('analytics.Odd "t"; DROP TABLE orders; --', "group", ["Key"])
    contents = orders.contents()
    before = orders.warehouse.fingerprint(target, Published(), days("2024-01-02"))
    with orders.warehouse.open_stage(target, "b1", "batch-1") as writer:
        select = f'SELECT "Key", "group", \'\'\'; DROP TABLE x; --\' AS "a\'b"";--", 3 AS "ORDER" FROM {name}'
        staged = Staged((write_one(writer, day("2024-01-02"), select),))

    publication = orders.publication(staged, ["2024-01-02"], before=before, plan_hash="'; --", backfill_id="b'1\"")
    receipt = orders.warehouse.replace_partitions(target, publication)

    assert engine.rows(f'SELECT "Key", "a\'b"";--", "ORDER" FROM {name}') == [(1, "'; DROP TABLE x; --", 3)]
    assert orders.contents() == contents
    assert (receipt.plan_hash, receipt.backfill_id) == ("'; --", "b'1\"")
    assert orders.warehouse.receipts(target) == (receipt,)


def test_of_two_publishers_at_once_exactly_one_wins(world: World) -> None:
    _publish_two_at_once(world, "2024-01-02")


def test_of_two_publishers_at_once_into_a_range_without_rows_exactly_one_wins(orders: World) -> None:
    _publish_two_at_once(orders, EMPTY_DAY)


def _publish_two_at_once(world: World, key: str) -> None:
    stages = [
        world.stage_rows({key: [(93, key, name, None, None, f"{key} 05:00:00")] * (number + 1)})
        for number, name in enumerate(("one", "two"))
    ]
    publications = [world.publication(staged, [key]) for staged in stages]
    answers: list[Any] = [None, None]
    start = threading.Barrier(2)

    def publish(number: int) -> None:
        start.wait()
        try:
            answers[number] = world.warehouse.replace_partitions(world.target, publications[number])
        except (TargetMoved, LockTimeout) as error:
            answers[number] = error

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    winners = [number for number, answer in enumerate(answers) if not isinstance(answer, Exception)]
    assert len(winners) == 1, answers
    assert world.fingerprint(key) == after(stages[winners[0]])
    assert len(world.warehouse.receipts(world.target)) == 1
