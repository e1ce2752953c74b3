"""The way back holds its range from its first look to its end: also when it breaks between two units, and beside the run itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from contract_engines import Memory
from killed_step import BY_WEEK
from late_commit import Killed, die, once_confirmed
from steps_world import DAYS, NOW, World, make_spec

from airflow_backfill_provider.errors import ConnectionLost, LockTimeout, PublishRefused, RangeLocked
from airflow_backfill_provider.ledger.records import AirflowTask
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import MOVED_EVENT
from airflow_backfill_provider.operators.at_work import nobody_is_at_work
from airflow_backfill_provider.steps.ending import accept, give_up
from airflow_backfill_provider.steps.publish import publish
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.retention import retention
from airflow_backfill_provider.steps.rollback import rollback
from airflow_backfill_provider.steps.waiting import waiting_lines
from airflow_backfill_provider.warehouses.base import Receipt
from airflow_backfill_provider.windows import merge

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
FIRST_WEEK, SECOND_WEEK = DAYS[:3], DAYS[3:]
A_FIX = "INSERT INTO analytics.orders VALUES ({}, DATE '{}', 1, 'a fix')"


@pytest.fixture
def weekly(world: World) -> World:
    world.spec = make_spec(**BY_WEEK)
    return world


def state(world: World) -> BackfillState:
    return world.ledger.backfill(world.id).state


def next_step(world: World) -> str:
    (told,) = (line for line in waiting_lines(world.ledger, world.ledger.backfill(world.id), NOW) if "  next" in line)
    return told


def holds_range(world: World) -> bool:
    return world.ledger.holds_range(world.id, merge(world.work().stored_plan().partitions))


@contextmanager
def locked(world: World, *, after: int) -> Iterator[None]:
    """The table is locked once so many units are written."""
    replace, written = world.warehouse.replace_partitions, 0

    def then_wait(*given: Any) -> Receipt:
        nonlocal written
        if written == after:
            raise LockTimeout("somebody holds the table")
        written += 1
        return replace(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.warehouse, "replace_partitions", then_wait)
        with pytest.raises(LockTimeout, match="somebody holds the table"):
            yield


def just_before_the_range_is_held(world: World, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    begin = world.ledger.begin_way_back

    def late(*given: Any, **named: Any) -> bool:
        monkeypatch.setattr(world.ledger, "begin_way_back", begin)
        act()
        return begin(*given, **named)

    monkeypatch.setattr(world.ledger, "begin_way_back", late)


def test_a_half_done_rollback_keeps_its_range_however_often_it_fails(weekly: World) -> None:
    before = weekly.published()
    weekly.run()
    with locked(weekly, after=1):
        weekly.rollback()
    for _ in range(2):
        with locked(weekly, after=0):
            weekly.rollback()

        assert holds_range(weekly)
        found = retention(weekly.ledger, weekly.id)
        assert found is not None
        assert found.needed_by == "its rollback is under way"
    now, backfill = datetime.now(UTC), weekly.ledger.backfill(weekly.id)
    assert any("way back    begun" in line for line in waiting_lines(weekly.ledger, backfill, now))
    with pytest.raises(PublishRefused, match=r"7 partitions .* are put back and 3 are not"):
        give_up(weekly.work(), "tired of it")
    first, weekly.run_id = weekly.id, "run 2"
    with pytest.raises(RangeLocked, match=f"Backfill '{first}' owns"):
        weekly.scope(partitions=[DAYS[0]])
    weekly.run_id = "run 1"
    assert weekly.rollback().partitions == 3
    assert weekly.published() == before
    assert not holds_range(weekly)


def test_a_rollback_that_breaks_before_it_writes_gives_its_range_back(world: World) -> None:
    world.run()
    with locked(world, after=0):
        world.rollback()
    assert not holds_range(world)


def test_a_rollback_that_died_before_it_wrote_is_freed_by_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    world.ledger.begin_way_back(world.id, merge(world.work().stored_plan().partitions), by="killed")
    with locked(world, after=0):
        world.rollback()
    assert holds_range(world), "the other one may be about to write"
    with pytest.raises(PublishRefused, match=r"begun by killed on .*, by tester on .*--rollback-is-dead"):
        give_up(world.work(), "it hangs")
    assert holds_range(world)
    give_up(world.work(), "the other one is dead", rollback_is_dead=True)
    assert not holds_range(world)
    ended = world.ledger.events(world.id, "way_back.ended")[-1]
    assert (ended.by, ended.detail["reason"]) == ("tester", "the other one is dead")


def test_a_report_beside_a_rollback_does_not_free_the_range(world: World) -> None:
    before = world.published()
    world.prepare()
    world.publish()
    replace, found = world.warehouse.replace_partitions, []

    def report_first(*given: Any) -> Receipt:
        found.append((conclude(world.work()).backfill.state, holds_range(world)))
        return replace(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.warehouse, "replace_partitions", report_first)
        assert world.rollback().restored
    assert found == [(BackfillState.COMPLETED, True)]
    assert world.published() == before
    assert not holds_range(world)


def test_a_rollback_that_breaks_before_the_report_leaves_the_range_to_the_report(world: World) -> None:
    world.prepare()
    world.publish()
    with locked(world, after=0):
        world.rollback()
    assert holds_range(world)
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    assert not holds_range(world)


@pytest.mark.parametrize("verb", ["rollback", "restore_overwritten"])
def test_nothing_is_put_back_over_a_backfill_that_published_until_the_range_was_held(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    world.run()
    if verb == "restore_overwritten":
        world.rollback(force=True)
    first, equal = world.id, world.amounts(DAYS[2])

    def publish_another() -> None:
        world.run_id, world.spec = "run 2", make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "-1")})
        world.run(partitions=[DAYS[2]])
        # So that no fingerprint tells.
        (refunded,) = (order for order, amount in world.amounts(DAYS[2]).items() if amount == -1)
        old = "NULL" if equal[refunded] is None else equal[refunded]
        world.engine.execute(f"UPDATE analytics.orders SET amount = {old} WHERE order_id = {refunded}")
        assert world.amounts(DAYS[2]) == equal

    just_before_the_range_is_held(world, publish_another, monkeypatch)
    work = world.work()
    with pytest.raises(PublishRefused, match=r"Backfill \w+ wrote to this range after"):
        world.rollback(first) if verb == "rollback" else world.restore_overwritten(first)
    assert world.amounts(DAYS[2]) == equal
    assert not world.ledger.is_on_way_back(work.backfill_id)


def test_a_forced_rollback_that_broke_between_two_units_is_brought_back_from_both_copies(weekly: World) -> None:
    weekly.run()
    weekly.engine.execute(A_FIX.format(9201, FIRST_WEEK[0]), A_FIX.format(9202, SECOND_WEEK[0]))
    fixed = weekly.published()
    with locked(weekly, after=1):
        weekly.rollback(force=True)
    assert weekly.rollback(force=True).partitions == len(FIRST_WEEK)
    old = weekly.published()

    with locked(weekly, after=1):
        weekly.restore_overwritten()
    assert weekly.published() not in (old, fixed)
    with locked(weekly, after=0):
        weekly.restore_overwritten()
    assert holds_range(weekly)
    with pytest.raises(PublishRefused, match=r'are not: .*"restore_overwritten": true'):
        give_up(weekly.work(), "tired of it")
    result = weekly.restore_overwritten()

    assert result.restored
    assert weekly.published() == fixed
    assert not holds_range(weekly)
    assert weekly.restore_overwritten().note == "brought back before; nothing to do"


def test_both_copies_of_a_broken_forced_rollback_are_brought_back_by_one_call(weekly: World) -> None:
    weekly.run()
    weekly.engine.execute(A_FIX.format(9201, FIRST_WEEK[0]), A_FIX.format(9202, SECOND_WEEK[0]))
    fixed = weekly.published()
    with locked(weekly, after=1):
        weekly.rollback(force=True)
    weekly.rollback(force=True)

    result = weekly.restore_overwritten()

    assert (result.partitions, result.note) == (10, "restored in one commit; restored in one commit")
    assert weekly.published() == fixed


def test_no_publish_of_it_begins_while_what_it_published_is_put_back(
    weekly: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = weekly.published()
    weekly.prepare()
    with locked(weekly, after=1):
        weekly.publish()
    replace = weekly.warehouse.replace_partitions

    def while_airflow_tries_again(*given: Any) -> Receipt:
        monkeypatch.setattr(weekly.warehouse, "replace_partitions", replace)
        with pytest.raises(PublishRefused, match="is on its way back"):
            weekly.publish()
        return replace(*given)

    monkeypatch.setattr(weekly.warehouse, "replace_partitions", while_airflow_tries_again)
    assert weekly.rollback().partitions == len(FIRST_WEEK)

    assert weekly.published() == before
    assert state(weekly) is BackfillState.ROLLED_BACK
    assert not holds_range(weekly)
    weekly.run_id = "run 2"
    weekly.scope()


@pytest.fixture
def daily(world: World) -> World:
    world.spec = make_spec(publish={"unit": "day", "lock_timeout": "2s"})
    return world


def once_unit_is_confirmed(
    world: World,
    number: int,
    act: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Let ``act`` happen when the commit of this unit, counted from 1, can no longer be held back."""
    if number == 1:
        once_confirmed(world, act, monkeypatch, after)
    else:
        once_confirmed(world, lambda: once_unit_is_confirmed(world, number - 1, act, monkeypatch, after), monkeypatch)


A_LATER_UNIT = pytest.mark.parametrize("number", [2, len(DAYS)], ids=["second", "last"])


@A_LATER_UNIT
def test_what_a_publish_may_still_add_to_is_not_rolled_back(
    daily: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    daily.prepare()
    said: list[str] = []

    def try_it() -> None:
        with pytest.raises(PublishRefused, match="its commit may still happen") as refused:
            daily.rollback()
        said.append(str(refused.value))
        assert state(daily) is BackfillState.PUBLISHING
        assert not daily.ledger.is_on_way_back(daily.id)

    once_unit_is_confirmed(daily, number, try_it, monkeypatch)

    assert daily.publish().published
    assert state(daily) is BackfillState.PUBLISHED
    assert '"publish_is_dead": true' in said[0]


def test_a_publish_of_a_run_without_a_scope_is_known_and_not_taken_for_dead(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily.prepare()
    task = AirflowTask("publish_what_is_validated", "by hand", "publish")
    states = {"run 1": {"atomic_publish": "failed"}, task.run_id: {task.task_id: "running"}}
    ti = SimpleNamespace(
        dag_id="undo",
        run_id="undo 1",
        task_id="rollback",
        get_task_states=lambda run_ids, **_: {run_id: states[run_id] for run_id in run_ids},
    )
    context: Any = {"ti": ti}

    def try_it() -> None:
        assert ("publish_what_is_validated", "by hand") in daily.ledger.runs(daily.id)
        assert daily.ledger.publishers(daily.id) == {task}
        is_dead = lambda: nobody_is_at_work(context, daily.ledger, daily.id)  # noqa: E731
        with pytest.raises(PublishRefused, match="its commit may still happen"):
            rollback(dataclasses.replace(daily.work(), publish_is_dead=is_dead))

    once_unit_is_confirmed(daily, 2, try_it, monkeypatch)

    assert publish(dataclasses.replace(daily.work(), task=task)).published
    assert state(daily) is BackfillState.PUBLISHED
    assert daily.ledger.backfill(daily.id).dag_id == "backfill__orders", "which plans anew"


@A_LATER_UNIT
def test_a_unit_that_lands_after_the_rollback_is_said_to_and_can_be_put_back_too(
    daily: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before = daily.published()
    daily.prepare()
    once_unit_is_confirmed(daily, number, lambda: daily.rollback(publish_is_dead=True), monkeypatch)

    with pytest.raises(PublishRefused, match="airflow dags trigger rollback__orders"):
        daily.publish()

    assert state(daily) is BackfillState.PUBLISHED_UNVERIFIED
    assert daily.ledger.counts(daily.id)[PartitionState.PUBLISHED] == 1
    assert "came after that" in daily.ledger.events(daily.id, MOVED_EVENT)[-1].detail["reason"]
    found = retention(daily.ledger, daily.id)
    assert found is not None
    assert found.needed_by == "it is published_unverified"
    with pytest.raises(
        PublishRefused, match=r"\d partitions .* are put back and 1 are not: .*airflow dags trigger rollback__orders"
    ):
        accept(daily.work(), "it looks right")
    assert state(daily) is BackfillState.PUBLISHED_UNVERIFIED
    assert "airflow dags trigger rollback__orders" in next_step(daily)
    assert "accept" not in next_step(daily)
    assert daily.rollback().partitions == 1
    assert daily.published() == before
    assert state(daily) is BackfillState.ROLLED_BACK
    assert not holds_range(daily)


@pytest.mark.parametrize("again", ["publish", "rollback"])
def test_a_unit_that_landed_after_the_rollback_and_that_nobody_recorded_is_found_by_the_next_step(
    daily: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, again: str
) -> None:
    before = daily.published()
    daily.prepare()
    once_unit_is_confirmed(daily, 2, lambda: daily.rollback(publish_is_dead=True), monkeypatch, after=die)
    with pytest.raises(Killed):
        daily.publish()
    assert state(daily) is BackfillState.ROLLED_BACK

    if again == "publish":
        with pytest.raises(PublishRefused, match="airflow dags trigger rollback__orders"):
            daily.publish()
        assert state(daily) is BackfillState.PUBLISHED_UNVERIFIED

    assert daily.rollback().partitions == 1
    assert daily.published() == before
    assert state(daily) is BackfillState.ROLLED_BACK
    (said,) = [one for one in caplog.records if one.levelname == "ERROR" and "came after" in one.getMessage()]
    assert "airflow dags trigger rollback__orders" in said.getMessage()


def test_a_range_that_was_rolled_back_and_to_which_the_same_commit_came_late_is_rolled_back_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.published()
    world.prepare()

    def another_publishes_and_that_is_rolled_back() -> None:
        world.publish()
        world.rollback()

    once_confirmed(world, another_publishes_and_that_is_rolled_back, monkeypatch)
    with pytest.raises(PublishRefused, match="airflow dags trigger rollback__orders"):
        world.publish()
    assert state(world) is BackfillState.PUBLISHED_UNVERIFIED
    assert world.rollback().restored
    assert world.published() == before
    assert state(world) is BackfillState.ROLLED_BACK


def test_a_publish_that_died_between_two_units_is_rolled_back_once_it_is_known_to_be_dead(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = daily.published()
    daily.prepare()
    once_unit_is_confirmed(daily, 3, die, monkeypatch)
    with pytest.raises(Killed):
        daily.publish()
    assert daily.rollback(publish_is_dead=True).partitions == 2
    assert daily.published() == before
    assert state(daily) is BackfillState.ROLLED_BACK


def test_a_publish_that_died_before_its_commit_stays_what_it_is_when_it_is_rolled_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare()
    once_confirmed(world, die, monkeypatch)
    with pytest.raises(Killed):
        world.publish()
    with pytest.raises(PublishRefused, match=r"nothing to undo: `airflow safe-backfill abandon \w+ --publish-is-dead"):
        world.rollback(publish_is_dead=True)
    assert state(world) is BackfillState.PUBLISHING


def test_a_publish_that_began_until_the_range_was_held_is_left_alone(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily.prepare()
    once_unit_is_confirmed(daily, 2, die, monkeypatch)
    with pytest.raises(Killed):
        daily.publish()
    published, answers = daily.published(), iter([True, False])
    with pytest.raises(PublishRefused, match="its commit may still happen"):
        rollback(dataclasses.replace(daily.work(), publish_is_dead=lambda: next(answers)))
    assert daily.published() == published
    assert not daily.ledger.is_on_way_back(daily.id)
    assert daily.publish().published


def test_a_forced_rollback_beside_a_publish_whose_first_unit_was_written_to_leaves_it_alone(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily.prepare()

    def write_and_roll_back() -> None:
        daily.engine.execute(A_FIX.format(9203, DAYS[0]))
        for _ in range(2):
            with pytest.raises(PublishRefused, match="its commit may still happen"):
                daily.rollback(force=True)
            assert state(daily) is BackfillState.PUBLISHING

    once_confirmed(daily, lambda: None, monkeypatch, after=write_and_roll_back)

    with pytest.raises(PublishRefused, match=f"do not hold what was staged: {DAYS[0]}"):
        daily.publish()
    assert state(daily) is BackfillState.PUBLISHED_UNVERIFIED
    assert daily.ledger.counts(daily.id)[PartitionState.PUBLISHED] == len(DAYS)


def test_what_a_dead_publish_left_is_not_taken_for_verified_after_a_rollback_looked(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily.prepare()
    once_confirmed(daily, lambda: None, monkeypatch, after=die)
    with pytest.raises(Killed):
        daily.publish()
    daily.engine.execute(A_FIX.format(9203, DAYS[0]))
    with pytest.raises(PublishRefused, match="its commit may still happen"):
        daily.rollback()
    with pytest.raises(PublishRefused, match="do not hold what was staged"):
        daily.publish()
    assert state(daily) is BackfillState.PUBLISHED_UNVERIFIED


def test_a_rollback_that_may_be_alive_is_not_called_off_unless_it_is_said_to_be_dead(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = daily.published()
    daily.prepare()
    with locked(daily, after=2):
        daily.publish()
    said: list[str] = []

    def try_it() -> None:
        with pytest.raises(PublishRefused) as refused:
            give_up(daily.work(), "it hangs")
        said.append(str(refused.value))
        with pytest.raises(PublishRefused, match="is on its way back"):
            daily.publish()

    once_confirmed(daily, try_it, monkeypatch)

    assert daily.rollback().partitions == 2
    assert daily.published() == before
    (words,) = said
    assert "begun by tester on" in words
    assert "--rollback-is-dead" in words


def test_a_rollback_that_was_called_off_in_its_last_commit_does_not_take_what_was_published_meanwhile_for_put_back(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = daily.published()
    daily.prepare()
    with locked(daily, after=1):
        daily.publish()

    def call_it_off_and_publish() -> None:
        give_up(daily.work(), "its worker is gone", rollback_is_dead=True)
        assert daily.publish().published

    once_confirmed(daily, call_it_off_and_publish, monkeypatch)

    with pytest.raises(PublishRefused, match=r"was ended meanwhile.*airflow dags trigger rollback__orders"):
        daily.rollback()

    assert state(daily) is BackfillState.PUBLISHED
    assert daily.rollback().partitions == len(DAYS) - 1
    assert daily.published() == before
    assert state(daily) is BackfillState.ROLLED_BACK


def test_what_a_rollback_put_back_until_it_was_called_off_keeps_the_publish_out(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = daily.published()
    daily.prepare()
    with locked(daily, after=2):
        daily.publish()
    replace, end = daily.warehouse.replace_partitions, daily.ledger.end_way_back
    open_commits: list[tuple[Any, Any]] = []

    def lose_the_connection(*given: Any) -> Receipt:
        open_commits.append(given)
        raise ConnectionLost("nobody knows whether it commits")

    def just_after_its_commit(*given: Any, **named: Any) -> None:
        ((target, publication),) = open_commits
        replace(target, dataclasses.replace(publication, confirm=lambda: None))
        end(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(daily.warehouse, "replace_partitions", lose_the_connection)
        with pytest.raises(ConnectionLost):
            daily.rollback()
    with monkeypatch.context() as patch:
        patch.setattr(daily.ledger, "end_way_back", just_after_its_commit)
        with pytest.raises(PublishRefused, match=r"was not dead: .*airflow dags trigger rollback__orders"):
            give_up(daily.work(), "its worker is gone", rollback_is_dead=True)

    with pytest.raises(PublishRefused, match="rolled back"):
        daily.publish()
    assert holds_range(daily)
    assert daily.ledger.is_on_way_back(daily.id)
    assert daily.rollback().partitions == 1
    assert daily.published() == before


@pytest.mark.parametrize(("bring_back", "asked"), [(False, "force"), (True, "restore_overwritten")])
def test_a_way_back_that_is_no_plain_rollback_and_was_ended_meanwhile_names_the_command_that_goes_on_with_it(
    weekly: World, monkeypatch: pytest.MonkeyPatch, bring_back: bool, asked: str
) -> None:
    old = weekly.published()
    weekly.run()
    weekly.engine.execute(A_FIX.format(9201, FIRST_WEEK[0]), A_FIX.format(9202, SECOND_WEEK[0]))
    fixed = weekly.published()
    if bring_back:
        weekly.rollback(force=True)
    go_on = weekly.restore_overwritten if bring_back else lambda: weekly.rollback(force=True)
    once_confirmed(weekly, lambda: weekly.ledger.end_way_back(weekly.id, by="another attempt"), monkeypatch)

    with pytest.raises(PublishRefused, match=rf'"{asked}": true.* --{asked.replace("_", "-")}'):
        go_on()

    assert go_on().restored
    assert weekly.published() == (fixed if bring_back else old)


def test_what_was_brought_back_and_written_to_at_once_is_looked_at_again_by_the_command_that_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    world.engine.execute(A_FIX.format(9201, DAYS[0]))
    fixed = world.published()
    world.rollback(force=True)
    late = A_FIX.format(9202, DAYS[1])
    once_confirmed(world, lambda: None, monkeypatch, after=lambda: world.engine.execute(late))

    with pytest.raises(PublishRefused, match=r"does not equal the backup.* --restore-overwritten"):
        world.restore_overwritten()

    world.engine.execute("DELETE FROM analytics.orders WHERE order_id = 9202")
    world.restore_overwritten()
    assert world.published() == fixed
    assert not holds_range(world)


def test_a_range_to_which_the_same_commit_came_after_the_rollback_is_no_mixture_and_can_be_accepted_as_status_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare()
    once_confirmed(world, lambda: (world.publish(), world.rollback()), monkeypatch)
    with pytest.raises(PublishRefused):
        world.publish()
    assert f"accept {world.id}" in next_step(world)

    accept(world.work(), "it is right")

    assert state(world) is BackfillState.COMPLETED
    assert not holds_range(world)


def test_a_unit_that_came_back_after_the_rollback_is_not_counted_as_put_back(
    daily: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily.prepare()
    once_unit_is_confirmed(daily, 2, lambda: (daily.publish(), daily.rollback()), monkeypatch)
    with pytest.raises(PublishRefused):
        daily.publish()
    with pytest.raises(PublishRefused, match=r"9 partitions .* are put back and 1 are not"):
        accept(daily.work(), "it looks right")


def test_what_is_put_back_in_part_is_not_said_to_wait_for_an_acceptance_that_is_refused(
    weekly: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    weekly.prepare()
    once_confirmed(
        weekly, lambda: None, monkeypatch, after=lambda: weekly.engine.execute(A_FIX.format(9201, FIRST_WEEK[0]))
    )
    with pytest.raises(PublishRefused, match="do not hold what was staged"):
        weekly.publish()
    with locked(weekly, after=1):
        weekly.rollback(force=True)
    with pytest.raises(PublishRefused, match=r"are put back and 3 are not"):
        accept(weekly.work(), "it looks right")
    assert "accept" not in next_step(weekly)
    assert "rollback__orders" in next_step(weekly)


def test_why_a_leftover_lock_was_released_is_recorded(world: World) -> None:
    world.run()
    world.ledger.claim_range(world.id, merge(world.work().stored_plan().partitions), by="an older version")
    give_up(world.work(), "nobody needs it")
    assert not holds_range(world)
    assert world.ledger.events(world.id, "way_back.ended")[-1].detail["reason"] == "nobody needs it"
