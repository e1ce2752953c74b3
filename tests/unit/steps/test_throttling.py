"""Waiting for others: any one condition is enough, what cannot be read means wait, and every wait ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from contract_engines import Memory
from report_reading import Report
from steps_world import DAYS, NOW, World, make_spec

from airflow_backfill_provider.errors import Stopped, Throttled
from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.spec.throttle import Throttle
from airflow_backfill_provider.steps.asking import Person, answer, ask
from airflow_backfill_provider.steps.live_lag import LiveLag, live_lags
from airflow_backfill_provider.steps.metrics import THROTTLED_SECONDS, Untold
from airflow_backfill_provider.steps.publish import publish
from airflow_backfill_provider.steps.rollback import rollback
from airflow_backfill_provider.steps.scope import Run, scope
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.throttle import RELEASED_EVENT, THROTTLED_EVENT, Throttling, waiting_for
from airflow_backfill_provider.steps.way_on import published_so_far
from airflow_backfill_provider.steps.work import Work

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
LAG = {"name": "live_lag", "sql": "SELECT 1", "conn_id": "live", "max": 30, "every": "60s", "give_up_after": "1h"}
CREDITS = {"name": "credits", "callable": "shop.spending:today", "max": 100}


class Clock:
    """A clock that somebody else turns, or that goes on by itself at every look."""

    def __init__(self, step: timedelta = timedelta()) -> None:
        self.now, self.step = NOW, step

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now


class Told(Untold):
    def __init__(self) -> None:
        self.durations: list[tuple[str, float]] = []

    def duration(self, name: str, seconds: float) -> None:
        self.durations.append((name, seconds))


def work_of(world: World, probe: Callable[[Throttle], object], clock: Clock, *throttles: Any, told: Any = None) -> Work:
    """The work as one task of a throttled backfill has it."""
    world.ledger._now = clock
    found = [Throttle.model_validate(one) for one in throttles or [LAG]]
    work = world.work()
    here = (work.run_id, work.clear_number)
    check = Throttling(world.ledger, world.id, found, probe, clock, "tester", told or Untold(), *here)
    return replace(work, check_throttle=check, measure_lag=check.measure_lag)


def beside(work: Work, world: World, probe: Callable[[Throttle], object], clock: Clock) -> Work:
    """Another task of the same try of the run."""
    world.clears = work.clear_number - 1
    return work_of(world, probe, clock)


def in_turn(*values: object) -> Callable[[Throttle], object]:
    """A probe that finds these values, the last one for ever."""
    left = list(values)

    def probe(_: Throttle) -> object:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return probe


def state(world: World) -> BackfillState:
    return world.ledger.backfill(world.id).state


def test_a_number_above_its_limit_stops_between_partitions_and_what_is_staged_is_reused(world: World) -> None:
    scoped = world.scope()
    clock = Clock(timedelta(seconds=61))
    with pytest.raises(Throttled, match=r"live_lag is 42, above 30\. Looking again at") as waits:
        stage_batch(work_of(world, in_turn(0, 0, 42), clock), DAYS)

    assert waits.value.again_at <= clock.now + timedelta(seconds=60)
    assert state(world) is BackfillState.RUNNING
    staged = world.ledger.counts(world.id)[PartitionState.STAGED]
    assert 1 <= staged < len(DAYS)
    waiting = waiting_for(world.ledger, world.id)
    assert waiting is not None
    assert (waiting.detail["name"], waiting.detail["value"], waiting.detail["limit"]) == ("live_lag", 42, 30)

    told = Told()
    result = stage_batch(work_of(world, in_turn(30), Clock(), told=told), DAYS)
    assert (result.staged, result.reused) == (len(DAYS) - staged, staged)
    assert waiting_for(world.ledger, world.id) is None
    assert [name for name, _ in told.durations] == [THROTTLED_SECONDS]
    world.validate(scoped)
    assert world.publish().published


def test_no_question_to_people_is_held_back_and_their_answer_lets_nothing_begin_before_it_is_over(world: World) -> None:
    world.spec = make_spec(approval={"required": "always"})
    world.scope()
    clock = Clock()
    work = work_of(world, in_turn(42), clock)
    question = ask(work, Gate.PLAN, "ann")
    assert question is not None
    clock.now += timedelta(hours=5)
    assert answer(work, question, Person("ben", "ben"), yes=True) == ""
    assert ask(work, Gate.PLAN, "ann") is None
    assert waiting_for(world.ledger, world.id) is None, "people were asked, and nothing else was waited for"
    with pytest.raises(Throttled, match="live_lag is 42, above 30"):
        stage_batch(work, DAYS)
    assert world.ledger.counts(world.id)[PartitionState.PENDING] == len(DAYS)


@pytest.mark.parametrize("found", [None, True, float("nan"), "many", RuntimeError("no route to host")], ids=repr)
def test_what_cannot_be_read_means_wait_and_then_stop(world: World, found: object) -> None:
    world.scope()
    clock = Clock()
    work = work_of(world, in_turn(found), clock)
    for _ in range(2):
        with pytest.raises(Throttled, match="live_lag cannot be read, which means wait"):
            stage_batch(work, DAYS)
    assert len(world.ledger.events(world.id, THROTTLED_EVENT)) == 1
    clock.now += timedelta(hours=1, seconds=1)
    with pytest.raises(Stopped, match="longer than its give_up_after of 1h"):
        stage_batch(work, DAYS)
    assert state(world) is BackfillState.HALTED
    assert world.ledger.counts(world.id)[PartitionState.STAGED] == 0
    assert waiting_for(world.ledger, world.id) is None


def test_after_giving_up_a_person_who_clears_gets_the_same_wait_again(world: World) -> None:
    world.scope()
    clock = Clock()
    work = work_of(world, in_turn(31), clock)
    with pytest.raises(Throttled):
        stage_batch(work, DAYS)
    clock.now += timedelta(hours=2)
    with pytest.raises(Stopped):
        stage_batch(work, DAYS)
    with pytest.raises(Throttled, match="Waiting since 2024-06-01T14:00:00Z"):
        stage_batch(work_of(world, in_turn(31), clock), DAYS)
    (end,) = world.ledger.events(world.id, RELEASED_EVENT)
    assert end.detail["gave_up"].startswith("live_lag is 31, above 30, since ")


def test_once_a_task_gave_up_the_others_of_the_run_stop_at_once_and_the_backfill_stays_halted(world: World) -> None:
    world.scope()
    clock = Clock()
    first = work_of(world, in_turn(31), clock)
    second = beside(first, world, in_turn(31, 0), clock)
    third = beside(first, world, in_turn(0), clock)
    for work in (first, second):
        with pytest.raises(Throttled):
            stage_batch(work, DAYS)
    clock.now += timedelta(hours=1, seconds=1)
    with pytest.raises(Stopped, match="Nothing was published, and what is staged is kept"):
        stage_batch(first, DAYS)
    for work in (second, third):
        with pytest.raises(
            Stopped, match=r"live_lag is 31, above 30, since 2024.* longer than its give_up_after of 1h"
        ):
            stage_batch(work, DAYS)
    assert state(world) is BackfillState.HALTED
    assert world.ledger.counts(world.id)[PartitionState.STAGED] == 0
    assert stage_batch(work_of(world, in_turn(0), clock), DAYS).staged == len(DAYS)


def test_two_conditions_that_take_turns_give_up_all_the_same_and_quiet_hours_do_not_count(world: World) -> None:
    world.scope()
    clock = Clock()
    clock.now = datetime.fromisoformat("2024-06-03T07:30:00Z")
    found = {"live_lag": 31, "credits": 150}
    night = {"name": "night", "quiet_hours": "08:00-18:00"}
    work = work_of(world, lambda one: found[one.name], clock, night, LAG, CREDITS | {"give_up_after": "1h"})

    def waits(at: str, lag: int, match: str) -> None:
        clock.now, found["live_lag"] = datetime.fromisoformat(f"2024-06-03T{at}Z"), lag
        with pytest.raises(Throttled, match=match):
            stage_batch(work, DAYS)

    waits("07:30:00", 31, "Waiting since 2024-06-03T07:30:00Z: live_lag")
    waits("07:45:00", 0, "Waiting since 2024-06-03T07:45:00Z: credits")
    waits("08:00:00", 0, "night: quiet hours")
    waits("18:00:00", 31, "Waiting since 2024-06-03T07:30:00Z: live_lag")
    waits("18:25:00", 0, "Waiting since 2024-06-03T07:45:00Z: credits")
    clock.now, found["live_lag"] = clock.now + timedelta(minutes=6), 31
    with pytest.raises(Stopped, match="live_lag is 31, above 30, since 2024-06-03T07:30:00Z"):
        stage_batch(work, DAYS)


def test_a_stop_says_which_units_were_published_before(world: World) -> None:
    world.prepare()
    assert published_so_far(world.ledger, world.id) == "Nothing was published"
    world.ledger.move_partitions(world.id, DAYS[:3], PartitionState.PUBLISHED, by="tester")
    assert published_so_far(world.ledger, world.id).startswith("3 of 10 partitions were published before and stay so")


def test_any_one_is_enough_and_the_first_is_named(world: World) -> None:
    world.scope()

    def probe(one: Throttle) -> object:
        return {"live_lag": 3, "credits": 150}[one.name]

    with pytest.raises(Throttled, match="credits is 150, above 100"):
        stage_batch(work_of(world, probe, Clock(), LAG, CREDITS), DAYS)
    with pytest.raises(Throttled, match="live_lag is 99, above 30"):
        stage_batch(work_of(world, in_turn(99), Clock(), LAG, CREDITS), DAYS)
    assert [event.detail["name"] for event in world.ledger.events(world.id, THROTTLED_EVENT)] == ["credits", "live_lag"]


def test_quiet_hours_wait_for_their_end_and_never_give_up(world: World) -> None:
    world.scope()
    clock = Clock()
    clock.now = datetime.fromisoformat("2024-06-03T07:00:00Z")  # a Monday
    office = {"name": "office", "quiet_hours": "08:00-18:00", "timezone": "Europe/Zurich", "give_up_after": "10s"}
    work = work_of(world, in_turn(0), clock, office)
    for hour in (7, 15):
        clock.now = clock.now.replace(hour=hour)
        with pytest.raises(Throttled, match="office: quiet hours 08:00-18:00 in Europe/Zurich") as waits:
            stage_batch(work, DAYS)
        assert waits.value.again_at == datetime.fromisoformat("2024-06-03T16:00:00Z")
    clock.now = waits.value.again_at
    assert stage_batch(work, DAYS).staged == len(DAYS)


def test_a_publish_waits_as_well_with_nothing_written_and_a_rollback_does_not(world: World) -> None:
    world.prepare()
    before = world.published()
    clock = Clock()
    with pytest.raises(Throttled):
        publish(work_of(world, in_turn(31), clock))
    assert world.published() == before
    assert state(world) is BackfillState.VALIDATED
    assert publish(work_of(world, in_turn(0), clock)).published
    assert rollback(work_of(world, in_turn(31), clock)).restored
    assert world.published() == before


def test_a_number_within_its_limit_is_believed_for_as_long_as_it_says(world: World) -> None:
    world.scope()
    clock, looks = Clock(), []
    work = work_of(world, lambda one: looks.append(one.name) or 0, clock)
    work.check_throttle()
    work.check_throttle()
    assert len(looks) == 1
    clock.now += timedelta(seconds=60)
    work.check_throttle()
    assert len(looks) == 2


def test_a_live_lag_is_reported_as_it_was_before_while_and_after_the_backfill(world: World) -> None:
    lag, clock = LAG | {"live_lag": True}, Clock(timedelta(seconds=61))
    world.spec = make_spec(throttle=[lag, CREDITS])

    def work(*values: object) -> Work:
        return work_of(world, in_turn(*values), clock, lag)

    request = Request.from_conf({"start_date": DAYS[0], "end_date": DAYS[-1]})
    scoped = scope(work(12), request, Run("backfill__orders", world.run_id, "ann"))
    with pytest.raises(Throttled):
        stage_batch(work(20, 42), DAYS)
    with pytest.raises(Throttled):
        stage_batch(work(None), DAYS)
    stage_batch(work(29), DAYS)
    world.validate(scoped)
    publish(work(3, RuntimeError("no route to host")))
    publish(work(5))  # a cleared task, long after

    (found,) = live_lags(world.ledger.events(world.id), world.spec.throttle)
    assert (found.before, found.highest, found.above, found.unread, found.after) == (12, 42, 1, 1, None)
    assert found.held is None
    shown = Report(world).text
    assert "Live lag" in shown
    assert "not known: it was not measured, or could not be read" in shown


@pytest.mark.parametrize(
    ("before", "unread", "above", "after", "held", "said"),
    [
        (12, 0, 0, 15, True, "within its limit throughout"),
        (12, 0, 3, 15, True, "above it for a while, and the backfill waited"),
        (12, 4, 0, 15, True, "within its limit after the publish; 4 of 5 looks in between could not be read"),
        (31, 0, 0, 15, True, "within its limit after the publish; above it before"),
        (12, 0, 0, 31, False, "above its limit after the publish, and was not before"),
        (31, 0, 1, 31, False, "as it was before"),
        (None, 0, 0, 15, None, "not known"),
        (12, 5, 0, 15, None, "not known"),
    ],
)
def test_a_live_lag_held_only_when_all_three_are_known(
    world: World, before: float | None, unread: int, above: int, after: float, held: bool | None, said: str
) -> None:
    lag = LiveLag("live_lag", 30, before, looks=5, unread=unread, above=above, highest=50, after=after)
    assert lag.held is held
    assert said in lag.verdict
