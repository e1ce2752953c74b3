"""SIGKILL before statements on either database: what is left is all old or all new, and running again converges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_faults import RIGS, Rig
from killed_step import READS, THREE_DAYS, Place, killed
from killing import die, survives
from steps_world import DAYS, World

from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import RECEIPT_EVENT
from airflow_backfill_provider.steps.report import conclude

EVERY = {"duckdb": 1 if "BACKFILL_EVERY_FAULT" in os.environ else 5, "delta": 7, "postgres": 29}
"""Each engine's own statements are all met by the contract suite; here it is the ledger beside them that matters."""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(params=RIGS, ids=lambda rig: rig.name)
def rig(request: pytest.FixtureRequest) -> Rig:
    return request.param()


@pytest.fixture
def place(rig: Rig, tmp_path: Path) -> Iterator[Place]:
    """Ten days published under the wrong rule."""
    place = Place.create(rig, tmp_path)
    yield place
    place.close()


@pytest.fixture
def prepared(place: Place) -> Place:
    """Everything validated and nothing published."""
    world = place.open()
    world.prepare()
    _leave(world)
    return place


def _leave(world: World) -> None:
    world.warehouse.close()
    world.ledger.close()


def _require_listed(world: World) -> None:
    listed = {item.location for item in world.warehouse.storage()}
    assert world.engine.stored() <= listed, "something is left that nobody lists"  # type: ignore[attr-defined]


def test_publish_killed_before_any_statement_leaves_old_or_new_and_converges(prepared: Place) -> None:
    world = prepared.open()
    old, outside = world.published(), world.outside()
    _leave(world)
    seen = []
    for world in killed(prepared, "publish", every=EVERY[prepared.rig.name]):
        left = world.published()
        new = [row for row in left if row[2] is None]
        assert left == old or len(new) == len(DAYS), f"a mixture after kill {len(seen)}"
        assert world.outside() == outside
        _require_listed(world)
        seen.append("old" if left == old else "new")
        scoped = world.scope()
        world.stage(scoped)
        world.validate(scoped)
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED, len(seen)
        assert len([row for row in world.published() if row[2] is None]) == len(DAYS)
        assert world.outside() == outside
        assert len(world.warehouse.receipts(scoped.plan.target)) == 1
        assert set(world.ledger.counts(world.id)) == {PartitionState.PUBLISHED}
    assert len(seen) > 3
    assert set(seen) == {"old", "new"}


def publish_and_die_before_saying_so(place: Place, commit: str) -> None:
    world = place.open()
    original = getattr(world.warehouse, commit)
    setattr(world.warehouse, commit, lambda *given: (original(*given), die()))
    world.publish()


def test_killed_between_its_commit_and_the_ledgers_record_a_publish_is_found_by_its_receipt_and_not_repeated(
    prepared: Place,
) -> None:
    assert not survives(publish_and_die_before_saying_so, (prepared, "replace_partitions"))
    world = prepared.open()
    target = world.work().stored_plan().target
    rows, receipts, stored = world.published(), world.warehouse.receipts(target), world.warehouse.storage()
    assert len([row for row in rows if row[2] is None]) == len(DAYS)
    assert world.ledger.backfill(world.id).state is BackfillState.PUBLISHING
    assert PartitionState.PUBLISHED not in world.ledger.counts(world.id)

    result = world.publish()

    assert (result.published, result.note) == (True, "published in one commit")
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    assert world.published() == rows
    assert (world.warehouse.receipts(target), world.warehouse.storage()) == (receipts, stored)
    assert [event.detail["sequence"] for event in world.ledger.events(world.id, RECEIPT_EVENT)] == [
        receipts[0].sequence
    ]
    assert world.rollback().restored
    _leave(world)


def test_rollback_killed_before_any_statement_leaves_old_or_new_and_converges(prepared: Place) -> None:
    world = prepared.open()
    old = world.published()
    world.publish()
    conclude(world.work())
    new = world.published()
    _leave(world)
    seen = []
    for world in killed(prepared, "rollback", every=EVERY[prepared.rig.name]):
        seen.append(world.published())
        assert seen[-1] in (old, new), f"a mixture after kill {len(seen)}"
        _require_listed(world)
        world.rollback()
        assert world.published() == old
        assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK
        assert not world.rollback().restored
    assert len(seen) > 3
    assert new in seen
    assert old in seen


def test_staging_killed_before_any_statement_keeps_whole_partitions_and_converges(place: Place) -> None:
    world = place.open()
    before = world.published()
    _leave(world)
    reused = []
    for world in killed(place, "stage", every=EVERY[place.rig.name]):
        assert world.published() == before
        _require_listed(world)
        scoped = world.scope(**THREE_DAYS)
        results = world.stage(scoped)
        reused.append(results[0].reused)
        world.validate(scoped)
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED, len(reused)
    assert reused[0] == 0
    assert reused[-1] == 3


def test_a_trial_killed_before_any_write_leaves_the_table_alone_and_the_next_one_passes(place: Place) -> None:
    world = place.open()
    before = world.published()
    _leave(world)
    tried, left_behind = [], set()
    for world in killed(place, "trial", every=EVERY[place.rig.name], spared=READS):
        assert world.published() == before
        _require_listed(world)
        left = [item for item in world.warehouse.storage() if item.backfill_id == world.id]
        left_behind |= {item.kind for item in left}
        assert len(left) <= 3, "a stage, a copy and its backup"
        scoped = world.scope(**THREE_DAYS)
        tried.append(world.try_one().tried)
        assert world.published() == before
        assert world.warehouse.receipts(scoped.plan.target) == ()
        for item in left:
            if item.kind == "shadow":
                world.warehouse.drop(item.location)
        assert not [item for item in world.warehouse.storage() if item.kind == "shadow"]
    assert len(tried) > 3
    assert tried == [True] * (len(tried) - 1) + [False]
    assert left_behind == {"stage", "shadow", "backup"} or place.rig.name != "duckdb"
