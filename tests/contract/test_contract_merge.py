"""Merging: the same rows and the same guards as a replacement, with only the rows that differ written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from contract_world import EMPTY_DAY, RANGE, ROWS, World, after, day, row_sql, rows_sql

from airflow_backfill_provider.errors import PublishRefused, StageChanged, TargetMoved
from airflow_backfill_provider.warehouses.base import Published, Recompute, Staged, Warehouse

DAY = "2024-01-02"
OLD = [row for row in ROWS if row[1] == DAY]
CHANGED = (3, DAY, "paid", "31.00", "b", f"{DAY} 00:00:00")
NEW = (20, DAY, "x", "1.00", None, f"{DAY} 10:00:00")


@pytest.fixture(autouse=True)
def _merges(warehouse: Warehouse) -> None:
    if "merge" not in warehouse.capabilities.mechanisms:
        pytest.skip("the engine does not merge")


def _insert(world: World, row: tuple[Any, ...]) -> None:
    world.engine.execute(f"INSERT INTO analytics.orders {row_sql(row)}")


def test_a_merge_leaves_what_a_replacement_leaves_and_counts_what_it_wrote(world: World) -> None:
    outside = world.outside()
    staged = world.stage_rows({DAY: [CHANGED, OLD[1], NEW]})

    receipt = world.warehouse.merge(world.target, world.publication(staged, [DAY]))

    assert world.fingerprint(DAY) == after(staged)
    assert world.outside() == outside
    assert (receipt.deleted, receipt.inserted) == (2, 2)
    assert world.warehouse.receipts(world.target) == (receipt,)


def test_a_merge_of_what_is_there_writes_no_row(world: World) -> None:
    staged = world.stage({key: world.select(key) for key in RANGE})
    receipt = world.warehouse.merge(world.target, world.publication(staged, RANGE))
    assert (receipt.deleted, receipt.inserted) == (0, 0)
    assert world.fingerprint(*RANGE) == after(staged)


def test_a_merge_empties_a_day_and_fills_an_empty_one(world: World) -> None:
    late = (21, EMPTY_DAY, "x", "1.00", None, f"{EMPTY_DAY} 10:00:00")
    staged = world.stage_rows({DAY: [], EMPTY_DAY: [late]})

    receipt = world.warehouse.merge(world.target, world.publication(staged, [DAY, EMPTY_DAY]))

    assert (receipt.deleted, receipt.inserted) == (3, 1)
    assert world.fingerprint(DAY, EMPTY_DAY) == after(staged)


def test_a_null_that_becomes_a_value_and_a_value_that_becomes_null_are_changes(world: World) -> None:
    staged = world.stage_rows({DAY: [OLD[0], (4, DAY, None, "0.10", "now", OLD[1][5]), OLD[2]]})
    receipt = world.warehouse.merge(world.target, world.publication(staged, [DAY]))
    assert (receipt.deleted, receipt.inserted) == (1, 1)
    assert world.fingerprint(DAY) == after(staged)


def test_a_merge_is_refused_when_published_rows_share_a_key(world: World) -> None:
    _insert(world, OLD[0])
    staged = world.stage_rows({DAY: OLD})
    error = world.refuses(world.warehouse.merge, world.publication(staged, [DAY]), PublishRefused)
    assert "share" in str(error)


def test_a_merge_is_refused_when_the_range_moved(world: World) -> None:
    staged = world.stage_rows({DAY: [CHANGED]})
    publication = world.publication(staged, [DAY])
    _insert(world, NEW)
    assert world.refuses(world.warehouse.merge, publication, TargetMoved).moved.keys() == {DAY}  # type: ignore[attr-defined]


def test_a_merge_is_refused_when_the_stage_is_not_what_was_validated(world: World) -> None:
    staged = world.stage_rows({DAY: [CHANGED]})
    publication = world.publication(staged, [DAY])
    wrong = {DAY: replace(publication.after[DAY], rows=2)}
    world.refuses(world.warehouse.merge, replace(publication, after=wrong), StageChanged)


def test_a_merge_is_refused_when_a_key_stands_outside_the_range(world: World) -> None:
    staged = world.stage_rows({DAY: [(1, DAY, "x", "1.00", None, f"{DAY} 10:00:00")]})
    world.refuses(world.warehouse.merge, world.publication(staged, [DAY]), PublishRefused)


def test_a_row_outside_the_range_is_never_matched(world: World) -> None:
    outside = world.outside()
    staged = world.stage_rows({DAY: [(1, DAY, "x", "1.00", None, f"{DAY} 10:00:00")]})

    world.warehouse.merge(world.target, world.publication(staged, [DAY], keys_may_repeat=True))

    assert world.outside() == outside
    assert world.fingerprint(DAY) == after(staged)


def test_rows_that_were_not_recomputed_can_be_kept(world: World) -> None:
    with world.warehouse.open_stage(world.target, "b1", "x") as writer:
        staged = writer.write(Recompute((day(DAY),), rows_sql([CHANGED, NEW]), keep_unmatched=True))

    assert world.warehouse.compare(world.target, Published(), Staged(staged), [day(DAY)])[DAY].removed == 0
    receipt = world.warehouse.merge(world.target, world.publication(Staged(staged), [DAY]))

    assert (receipt.deleted, receipt.inserted) == (1, 2)
    assert sorted(row[0] for row in world.contents("order_id IN (3, 4, 5, 20)")) == [3, 4, 5, 20]
