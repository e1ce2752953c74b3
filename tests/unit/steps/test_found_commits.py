"""A commit that happened: recorded as what it is, whatever became of the worker and of the backfill meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from contract_engines import Memory
from killed_step import BY_WEEK
from late_commit import Killed, die, once_confirmed
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import PublishRefused, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps.ending import accept, give_up
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.retention import retention
from airflow_backfill_provider.steps.stale import find_stale

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])


def state(world: World) -> BackfillState:
    return world.ledger.backfill(world.id).state


def test_a_range_that_something_else_changed_is_never_completed_when_the_worker_dies_while_it_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare()
    late = "INSERT INTO analytics.orders VALUES (9700, DATE '2024-03-10', 1, 'late')"
    once_confirmed(world, lambda: None, monkeypatch, after=lambda: world.engine.execute(late))
    move = world.ledger.move

    def move_and_die(found: str, to: BackfillState, **named: Any) -> None:
        move(found, to, **named)
        if to is not BackfillState.PUBLISHING:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger, "move", move_and_die)
        with pytest.raises(Killed):
            world.publish()

    with pytest.raises(PublishRefused, match="do not hold what was staged"):
        world.publish()
    assert conclude(world.work()).backfill.state is BackfillState.PUBLISHED_UNVERIFIED
    accept(world.work(), "the late row is right")
    kept = retention(world.ledger, world.id)
    assert kept is not None
    assert kept.published_at is not None


def restage(world: World) -> None:
    """Another run stages everything again, by SQL that was mended since."""
    world.run_id, first = "run 2", world.id
    world.spec = make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "-1")})
    world.scope(backfill_id=first, restage=True)
    world.run_id = "run 1"


def restage_after_a_refusal(world: World) -> None:
    """The statement runs on in the warehouse; its task was cleared, and that publish was refused."""
    world.ledger.move(world.id, BackfillState.VALIDATED, by="the cleared task", reason="refused")
    restage(world)


@pytest.mark.parametrize("conf", ["restage", "rebase", "other checks"])
def test_what_publishes_is_not_planned_anew(world: World, monkeypatch: pytest.MonkeyPatch, conf: str) -> None:
    world.prepare()
    revisions = world.ledger.backfill(world.id)

    def try_it() -> None:
        if conf == "other checks":
            world.spec = make_spec(checks=[])
        found, world.run_id = world.id, "run 2"
        with pytest.raises(PublishRefused, match=r"its commit may still happen\. Nothing was changed") as refused:
            world.scope(backfill_id=found, **{conf: True} if conf != "other checks" else {})
        assert "--publish-is-dead" in str(refused.value)
        world.run_id, world.spec = "run 1", make_spec()

    once_confirmed(world, try_it, monkeypatch)
    assert world.publish().published
    now = world.ledger.backfill(world.id)
    assert (now.revision, now.run_id) == (revisions.revision, revisions.run_id)


@pytest.mark.parametrize("again", ["publish", "rollback", "scope", "give_up"])
def test_a_commit_that_lands_after_a_restage_is_found_and_can_be_undone(
    world: World, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    before = world.published()
    world.prepare()
    once_confirmed(world, lambda: restage_after_a_refusal(world), monkeypatch, after=die)
    with pytest.raises(Killed):
        world.publish()
    assert world.published() != before

    match again:
        case "publish":
            with pytest.raises(PublishRefused, match="do not hold what was staged"):
                world.publish()
            stale = find_stale(world.ledger, "orders", lambda _: world.warehouse).stale
            assert {one.overwritten.partition(":")[0] for one in stale} == {"not shown to be what was published"}
        case "rollback":
            with pytest.raises(PublishRefused, match=r"nothing shows whether .* changed since"):
                world.rollback()
        case "scope":
            with pytest.raises(PublishRefused, match="what it published is not staged again"):
                world.scope(backfill_id=world.id, rebase=True)
        case "give_up":
            with pytest.raises(PublishRefused, match="rows of it are published"):
                give_up(world.work(), "its way is lost")
    assert state(world) is BackfillState.PUBLISHED_UNVERIFIED
    assert world.ledger.counts(world.id) == {PartitionState.PUBLISHED: len(DAYS)}
    assert world.rollback(force=True).restored
    assert world.published() == before
    assert state(world) is BackfillState.ROLLED_BACK


def test_a_unit_that_lands_after_a_restage_is_not_taken_for_one_of_the_new_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = make_spec(**BY_WEEK)
    before = world.published()
    world.prepare()
    first = world.id

    def begin_anew() -> None:
        world.ledger.move(first, BackfillState.VALIDATED, by="the cleared task", reason="refused")
        world.spec = make_spec(**BY_WEEK, transform={"sql": world.spec.transform.sql.replace("NULL", "-1")})
        scoped = world.scope(backfill_id=first, restage=True)
        world.stage(scoped)
        world.validate(scoped)

    once_confirmed(world, begin_anew, monkeypatch, after=die)
    with pytest.raises(Killed):
        world.publish()

    with pytest.raises(PublishRefused, match="do not hold what was staged"):
        world.publish()
    assert state(world) is BackfillState.PUBLISHED_UNVERIFIED
    with pytest.raises(TargetMoved, match="force"):
        world.rollback()
    assert world.rollback(force=True).partitions == 3
    assert world.published() == before
