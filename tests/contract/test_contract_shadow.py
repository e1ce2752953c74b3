from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from contract_engines import Engine
from contract_world import COLUMNS, KEYS, RANGE, World, after, days

from airflow_backfill_provider.errors import PublishRefused, TargetMoved
from airflow_backfill_provider.warehouses.base import (
    Action,
    Publication,
    Published,
    Recompute,
    Shadow,
    Staged,
    Warehouse,
)

DAYS = days(*KEYS[:3])
MIDDLE = days(KEYS[1])


@contextmanager
def shadowed(world: World) -> Iterator[Shadow]:
    with world.warehouse.open_shadow(world.target, "b1", DAYS) as shadow:
        yield shadow


def publication(shadow: Shadow, staged: Staged) -> Publication:
    return Publication(
        backfill_id="b1",
        action=Action.PUBLISH,
        plan_hash="p1",
        partitions=MIDDLE,
        rows=staged,
        before=shadow.warehouse.fingerprint(shadow.target, Published(), MIDDLE),
        after=after(staged),
    )


def test_a_shadow_holds_its_partitions_as_they_are_published_and_nothing_else(world: World) -> None:
    with shadowed(world) as shadow:
        assert shadow.warehouse.fingerprint(shadow.target, Published(), DAYS) == world.fingerprint(*KEYS[:3])
        assert shadow.warehouse.fingerprint(shadow.target, Published(), days(*KEYS[3:]))[KEYS[4]].rows == 0
        assert shadow.warehouse.outside_rows(shadow.target).null_partition == 0
        assert shadow.warehouse.receipts(shadow.target) == ()


def test_what_is_published_into_a_shadow_and_rolled_back_leaves_it_as_it_was_and_never_shows(world: World) -> None:
    staged = world.stage_corrected(KEYS[1])
    contents, tables = world.contents(), world.engine.tables()
    with shadowed(world) as shadow:
        warehouse, target = shadow.warehouse, shadow.target
        original = warehouse.fingerprint(target, Published(), DAYS)
        backup, marks = warehouse.back_up(target, "b1", MIDDLE, label="trial")
        forth = publication(shadow, staged)

        warehouse.replace_partitions(target, forth)
        published = {**original, **after(staged)}
        assert warehouse.fingerprint(target, Published(), DAYS) == published
        assert [receipt.keys for receipt in warehouse.receipts(target)] == [(KEYS[1],)]
        assert world.contents() == contents
        assert world.engine.tables() == tables

        with pytest.raises(TargetMoved):
            warehouse.replace_partitions(target, forth)
        assert warehouse.fingerprint(target, Published(), DAYS) == published

        back = Publication(
            backfill_id="b1",
            action=Action.ROLLBACK,
            plan_hash="p1",
            partitions=MIDDLE,
            rows=backup,
            before=after(staged),
            after=marks,
        )
        warehouse.replace_partitions(target, back)
        assert warehouse.fingerprint(target, Published(), DAYS) == original
        warehouse.drop(backup.location)
    assert world.contents() == contents
    assert world.engine.tables() == tables
    assert world.warehouse.receipts(world.target) == ()
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]


def test_a_merge_goes_into_a_shadow_as_into_the_target(world: World) -> None:
    if "merge" not in world.warehouse.capabilities.mechanisms:
        pytest.skip("no merge here")
    staged = world.stage_corrected(KEYS[1])
    with shadowed(world) as shadow:
        shadow.warehouse.merge(shadow.target, publication(shadow, staged))
        assert shadow.warehouse.fingerprint(shadow.target, Published(), MIDDLE) == after(staged)
    assert world.warehouse.receipts(world.target) == ()


def test_a_view_is_swapped_in_a_shadow_and_back(engine: Engine, warehouse: Warehouse) -> None:
    if "view_swap" not in warehouse.capabilities.mechanisms:
        pytest.skip("no views are swapped here")
    world = World.behind_view(engine, warehouse, "order_date")
    contents, tables = world.contents(), engine.tables()
    staged = world.stage_corrected(KEYS[1])
    with shadowed(world) as shadow:
        original = shadow.warehouse.fingerprint(shadow.target, Published(), DAYS)
        backup, marks = shadow.warehouse.back_up(shadow.target, "b1", MIDDLE, label="trial")
        shadow.warehouse.swap_view(shadow.target, publication(shadow, staged))
        assert shadow.warehouse.fingerprint(shadow.target, Published(), DAYS) == {**original, **after(staged)}
        shadow.warehouse.swap_view(
            shadow.target, Publication("b1", Action.ROLLBACK, "p1", MIDDLE, backup, after(staged), marks)
        )
        assert shadow.warehouse.fingerprint(shadow.target, Published(), DAYS) == original
        shadow.warehouse.drop(backup.location)
    assert (world.contents(), engine.tables()) == (contents, tables)
    assert [item.kind for item in warehouse.storage()] == ["stage"]


def test_a_shadow_is_listed_while_it_is_there_and_gone_after_an_error_too(world: World) -> None:
    with shadowed(world):
        (item,) = world.warehouse.storage()
    assert (item.kind, item.backfill_id) == ("shadow", "b1")
    assert item.bytes > 0
    with pytest.raises(TargetMoved), shadowed(world):
        raise TargetMoved("as a publish may", {})
    assert world.warehouse.storage() == ()


def test_a_shadow_that_was_left_behind_is_dropped_by_its_location(world: World) -> None:
    left = shadowed(world)
    shadow = left.__enter__()
    shadow.warehouse.replace_partitions(shadow.target, publication(shadow, world.stage_corrected(KEYS[1])))
    (location,) = [item.location for item in world.warehouse.storage() if item.kind == "shadow"]

    world.warehouse.drop(location)

    assert [item.kind for item in world.warehouse.storage()] == ["stage"]
    left.__exit__(None, None, None)
    world.warehouse.drop(location)


def test_two_shadows_of_one_backfill_do_not_meet(world: World) -> None:
    staged = world.stage_corrected(KEYS[1])
    with shadowed(world) as one, shadowed(world) as other:
        one.warehouse.replace_partitions(one.target, publication(one, staged))
        assert one.warehouse.fingerprint(one.target, Published(), MIDDLE) == after(staged)
        assert other.warehouse.fingerprint(other.target, Published(), MIDDLE) == world.fingerprint(KEYS[1])
        assert other.warehouse.receipts(other.target) == ()


def test_a_shadow_refuses_what_the_constraints_of_the_target_refuse(engine: Engine, warehouse: Warehouse) -> None:
    kinds = engine.types
    columns = f"order_id {kinds['integer']} NOT NULL, order_date {kinds['date']}, amount {kinds['integer']}"
    engine.execute(
        f"CREATE TABLE analytics.orders ({columns}, CONSTRAINT positive CHECK (amount >= 0))",
        "INSERT INTO analytics.orders VALUES (1, DATE '2024-01-01', 5), (2, DATE '2024-01-02', 6)",
    )
    target = warehouse.describe("analytics.orders", "order_date", ["order_id"])
    with warehouse.open_stage(target, "b1", "x") as writer:
        select = "SELECT CAST(2 AS BIGINT) AS order_id, DATE '2024-01-02' AS order_date, CAST(-6 AS BIGINT) AS amount"
        staged = Staged(writer.write(Recompute(MIDDLE, select)))
    with warehouse.open_shadow(target, "b1", DAYS) as shadow:
        assert {one.name for one in shadow.target.constraints} == {one.name for one in target.constraints}
        before = shadow.warehouse.fingerprint(shadow.target, Published(), DAYS)
        with pytest.raises(PublishRefused):
            shadow.warehouse.replace_partitions(shadow.target, publication(shadow, staged))
        assert shadow.warehouse.fingerprint(shadow.target, Published(), DAYS) == before


def test_the_columns_of_a_shadow_are_those_of_the_target(world: World) -> None:
    with shadowed(world) as shadow:
        assert shadow.target.column_names == COLUMNS == world.target.column_names
        assert (shadow.target.key, shadow.target.clock) == (world.target.key, world.target.clock)


def test_an_empty_partition_has_a_shadow_too(world: World) -> None:
    staged = world.stage_rows({RANGE[2]: [(77, RANGE[2], "paid", "1.00", None, f"{RANGE[2]} 00:00:00")]})
    empty = days(RANGE[2])
    with world.warehouse.open_shadow(world.target, "b1", empty) as shadow:
        before = shadow.warehouse.fingerprint(shadow.target, Published(), empty)
        assert before[RANGE[2]].rows == 0
        forth = Publication("b1", Action.PUBLISH, "p1", empty, staged, before, after(staged))
        assert shadow.warehouse.replace_partitions(shadow.target, forth).inserted == 1
