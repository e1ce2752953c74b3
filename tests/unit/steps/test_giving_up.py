"""Giving a backfill up, also beside a publish that only looks dead: what is committed keeps its way back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract_engines import Memory
from killed_step import BY_WEEK
from late_commit import Killed, die, once_confirmed
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.reporting.documents import documents
from airflow_backfill_provider.spec.request import Mode
from airflow_backfill_provider.steps.cleanup import clean_up
from airflow_backfill_provider.steps.ending import accept, give_up
from airflow_backfill_provider.steps.report import conclude, summarise
from airflow_backfill_provider.steps.retention import retention

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
A_MONTH = timedelta(days=30)


def state(world: World) -> BackfillState:
    return world.ledger.backfill(world.id).state


def give_up_dead(world: World) -> None:
    give_up(world.work(), "its worker is gone", publish_is_dead=True)


def clean(world: World, after: timedelta) -> list[str]:
    done = clean_up(world.ledger, world.warehouse, "warehouse", now=datetime.now(UTC) + after, by="cleaner")
    return sorted({one.item.kind for one in done.dropped})


def undo(world: World) -> str:
    (line,) = [line for line in summarise(world.ledger, world.id).lines() if line.startswith("  undo")]
    return line


def test_a_backfill_that_publishes_is_not_given_up_unless_its_task_is_said_to_be_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare()
    said: list[str] = []

    def try_it() -> None:
        with pytest.raises(PublishRefused) as refused:
            give_up(world.work(), "it hangs")
        said.append(str(refused.value))
        assert state(world) is BackfillState.PUBLISHING

    once_confirmed(world, try_it, monkeypatch)
    assert world.publish().published
    (words,) = said
    assert "A publish of it is under way" in words
    assert "--publish-is-dead" in words


def test_a_publish_that_died_before_its_commit_is_given_up_on_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.published()
    world.prepare()
    once_confirmed(world, die, monkeypatch)
    with pytest.raises(Killed):
        world.publish()

    give_up_dead(world)

    assert state(world) is BackfillState.EXPIRED
    assert world.published() == before
    assert "nothing of it is published" in undo(world)
    assert "backup" not in clean(world, A_MONTH), "a commit that comes late needs it"
    assert clean(world, 2 * A_MONTH) == ["backup"]


def test_a_commit_that_came_after_it_was_given_up_is_recorded_and_can_be_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.published()
    world.prepare()
    once_confirmed(world, lambda: give_up_dead(world), monkeypatch)

    assert world.publish().published

    assert state(world) is BackfillState.PUBLISHED
    moves = [event.detail for event in world.ledger.events(world.id, "backfill.moved")]
    assert "given up" in moves[-1]["reason"]
    summary = conclude(world.work())
    assert (summary.backfill.state, summary.reached(Mode.PUBLISH)) == (BackfillState.COMPLETED, True)
    assert "rollback__orders" in undo(world)
    page = documents(world.ledger, world.id)["report.html"].decode()
    assert "This undoes it" in page
    assert "The old rows are to be kept until" in page
    assert clean(world, A_MONTH) == ["stage"]
    assert world.rollback().restored
    assert world.published() == before


@pytest.mark.parametrize("again", ["rollback", "publish", "give_up"])
def test_a_commit_that_came_after_it_was_given_up_and_that_nobody_recorded_is_found_by_the_next_step(
    world: World, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    before = world.published()
    world.prepare()
    once_confirmed(world, lambda: give_up_dead(world), monkeypatch, after=die)
    with pytest.raises(Killed):
        world.publish()
    assert state(world) is BackfillState.EXPIRED
    assert not summarise(world.ledger, world.id).reached(Mode.PUBLISH)
    assert clean(world, A_MONTH) == ["stage"]

    if again == "publish":
        assert world.publish().published
    elif again == "give_up":
        with pytest.raises(PublishRefused, match="rows of it are published"):
            give_up(world.work(), "once more")
    assert world.rollback().restored

    assert world.published() == before
    assert state(world) is BackfillState.ROLLED_BACK


def test_what_the_ledger_knows_to_be_published_and_never_completed_is_kept_and_can_be_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.published()
    world.prepare()
    once_confirmed(world, lambda: give_up_dead(world), monkeypatch)
    record = world.ledger.move_partitions

    def record_and_die(*args: Any, **kwargs: Any) -> None:
        record(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger, "move_partitions", record_and_die)
        with pytest.raises(Killed):
            world.publish()

    assert state(world) is BackfillState.EXPIRED
    assert clean(world, 4 * A_MONTH) == []
    found = retention(world.ledger, world.id)
    assert found is not None
    assert found.needed_by == "it was given up, and rows of it are published"
    assert not summarise(world.ledger, world.id).reached(Mode.PUBLISH)
    assert "rollback__orders" in undo(world)
    assert world.rollback().restored
    assert world.published() == before


def test_a_unit_that_was_committed_after_it_was_given_up_waits_for_a_person_and_can_be_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = make_spec(**BY_WEEK)
    before = world.published()
    world.prepare()
    once_confirmed(world, lambda: give_up_dead(world), monkeypatch)

    with pytest.raises(PublishRefused, match="someone took it over"):
        world.publish()

    assert state(world) is BackfillState.PUBLISHED_UNVERIFIED
    assert world.ledger.counts(world.id)[PartitionState.PUBLISHED] == 3
    with pytest.raises(PublishRefused, match="do not hold what was staged"):
        world.publish()
    assert clean(world, 4 * A_MONTH) == []
    assert world.rollback().partitions == 3
    assert world.published() == before


def test_a_unit_that_was_committed_late_can_be_accepted_and_keeps_its_way_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = make_spec(**BY_WEEK)
    before = world.published()
    world.prepare()
    once_confirmed(world, lambda: give_up_dead(world), monkeypatch)
    with pytest.raises(PublishRefused):
        world.publish()

    accept(world.work(), "the first week is right")

    assert state(world) is BackfillState.COMPLETED
    assert clean(world, A_MONTH) == ["stage"]
    assert world.rollback().restored
    assert world.published() == before


def test_a_late_commit_beside_a_newer_backfill_of_the_range_is_never_rolled_back_under_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up_and_begin_anew() -> None:
        give_up_dead(world)
        world.run_id = "run 2"
        world.scope(start_date=DAYS[0], end_date=DAYS[1])
        world.run_id = "run 1"

    world.prepare(start_date=DAYS[0], end_date=DAYS[1])
    first = world.id
    once_confirmed(world, give_up_and_begin_anew, monkeypatch)
    world.publish()

    with pytest.raises(PublishRefused, match="owns"):
        world.rollback(first)
