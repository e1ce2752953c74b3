"""``publish.mechanism: merge``: a whole backfill that writes only what differs, and its way back."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.spec.hashes import intent_hash

MERGE: dict[str, Any] = {"publish": {"mechanism": "merge", "lock_timeout": "2s"}}
KEEP: dict[str, Any] = {"publish": {"mechanism": "merge", "keep_unmatched": True, "lock_timeout": "2s"}}
NO_BOUNDS: dict[str, Any] = {"compare": []}


def late(world: World) -> None:
    """An order that only the published table has."""
    world.engine.execute(f"INSERT INTO analytics.orders VALUES (7777, DATE '{DAYS[2]}', 5, 'by hand')")


def receipt(world: World) -> tuple[int, int]:
    (found,) = world.warehouse.receipts(world.work().stored_plan().target)
    return found.deleted, found.inserted


def test_a_merge_writes_only_the_rows_that_differ_and_can_be_undone(world: World) -> None:
    before = world.published()
    world.spec = make_spec(**MERGE)

    assert world.run().backfill.state is BackfillState.COMPLETED

    assert receipt(world) == (len(DAYS), len(DAYS))
    assert [world.amounts(day)[number * 100] for number, day in enumerate(DAYS)] == [None] * len(DAYS)
    assert world.rollback().restored
    assert world.published() == before


def test_rows_that_the_sql_does_not_give_are_deleted(world: World) -> None:
    late(world)
    world.spec = make_spec(**MERGE, **NO_BOUNDS)
    assert world.run().backfill.state is BackfillState.COMPLETED
    assert len(world.amounts(DAYS[2])) == PER_DAY


def test_rows_that_the_sql_does_not_give_are_kept_when_the_spec_says_so(world: World) -> None:
    late(world)
    before = world.published()
    world.spec = make_spec(**KEEP, **NO_BOUNDS)

    summary = world.run()

    assert summary.backfill.state is BackfillState.COMPLETED
    assert sum(move.removed for move in summary.moved) == 0
    assert world.amounts(DAYS[2])[7777] == 5
    assert world.rollback().restored
    assert world.published() == before


def test_what_is_kept_decides_the_staged_rows_and_so_the_intent() -> None:
    assert intent_hash(make_spec(**MERGE), DAYS) == intent_hash(make_spec(), DAYS)
    assert intent_hash(make_spec(**KEEP), DAYS) != intent_hash(make_spec(**MERGE), DAYS)


def test_a_replacement_keeps_no_rows() -> None:
    with pytest.raises(ValidationError, match="keep_unmatched needs mechanism merge"):
        make_spec(publish={"keep_unmatched": True})
