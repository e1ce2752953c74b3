"""``transform.dag``: a run elsewhere fills the stage, is waited for, gone on with after a kill, ended by a stop, and watched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb_outside
import postgres_server
import pytest
from contract_faults import InterruptedDuckDB, InterruptedPostgres
from killed_step import Place
from killing import die, survives
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.errors import (
    CodeFailed,
    ConnectionLost,
    LedgerUnavailable,
    RunLeftOpen,
    SpecError,
    Stopped,
    StrayWrite,
    TargetMoved,
    TransformRefused,
)
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.recompute import Progress
from airflow_backfill_provider.spec.load import load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.steps.control_period import hold_control
from airflow_backfill_provider.steps.drill import DAMAGED_EVENT
from airflow_backfill_provider.steps.open_runs import BEGUN_EVENT, OVER_EVENT, open_run_lines
from airflow_backfill_provider.steps.scope import Run
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.trial import try_partition
from airflow_backfill_provider.steps.validate import validate_range
from airflow_backfill_provider.steps.whole_drill import drill
from airflow_backfill_provider.steps.work import Work, utc_now

RIGS: list[Any] = [InterruptedDuckDB]
if postgres_server.is_installed():
    RIGS.append(InterruptedPostgres)
TWO = {"start_date": DAYS[0], "end_date": DAYS[1]}
ONE = {"start_date": DAYS[0], "end_date": DAYS[0]}


def by_dag(**dag: Any) -> BackfillSpec:
    return make_spec(
        transform={"dag": {"dag_id": "orders_of_a_day", "conf": {"region": "eu"}, "poll_every": "1s"} | dag}
    )


def right(day: str) -> str:
    """The rows of the day, as SQL that reads no table."""
    first = DAYS.index(day) * 100
    rows = [
        f"({first + place}, DATE '{day}', {'CAST(NULL AS INTEGER)' if place == 0 else first + place + 10}, 'note {first + place}')"
        for place in range(PER_DAY)
    ]
    return f"SELECT * FROM (VALUES {', '.join(rows)}) AS t(order_id, order_date, amount, note)"


@dataclass
class Team:
    """The team's runs: each is over when it was looked at so many times, and then has written what it should."""

    world: World
    looks: int = 1
    fails: bool = False
    writes: bool = True
    beside: Callable[[], None] = lambda: None
    is_in_reach: bool = True
    """Whether a run can be ended."""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def submit(self, name: str, told: Mapping[str, Any]) -> str:
        self.asked.append(name)
        self.runs.setdefault(name, {**told, "looks": 0})
        return name

    def find(self, name: str) -> str | None:
        return name if name in self.runs else None

    def look(self, handle: str) -> Progress:
        if handle in self.cancelled:
            return Progress(is_over=True, failure="it was cancelled.")
        run = self.runs[handle]
        run["looks"] += 1
        if run["looks"] <= self.looks:
            return Progress(is_over=False)
        if self.fails:
            return Progress(is_over=True, failure="the disk is full.")
        self.beside()
        if self.writes:
            self.write(handle)
        return Progress(is_over=True)

    def write(self, handle: str) -> None:
        told = self.runs[handle]
        rows = right(told["partition_key"])
        if "staging_file" in told:
            with duckdb_outside.empty() as connection:
                connection.execute(f"COPY ({rows}) TO '{told['staging_file']}' (FORMAT parquet)")
        else:
            self.world.engine.execute(
                f"INSERT INTO {told['staging_table']} (order_id, order_date, amount, note) {rows}"
            )

    def cancel(self, handle: str) -> None:
        if not self.is_in_reach:
            raise CodeFailed("nobody answers.")
        self.cancelled.append(handle)

    def work(self, **changes: Any) -> Work:
        parts: dict[str, Any] = {"elsewhere": lambda spec: self, "pause": lambda seconds: None}
        return replace(self.world.work(), **parts | changes)


@pytest.fixture(params=RIGS, ids=lambda rig: rig.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place.create(request.param(), tmp_path)
    yield place
    place.close()


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    world = place.open()
    world.spec = by_dag()
    yield world
    world.warehouse.close()
    world.ledger.close()


@pytest.fixture
def on_duckdb(tmp_path: Path) -> Iterator[World]:
    """For what no engine has a part in."""
    place = Place.create(InterruptedDuckDB(), tmp_path)
    world = place.open()
    world.spec = by_dag()
    yield world
    world.warehouse.close()
    world.ledger.close()
    place.close()


def test_the_whole_life_of_a_backfill_by_runs_elsewhere(world: World) -> None:
    team, old = Team(world), world.published()
    scoped = world.scope(**TWO)
    try_partition(team.work())
    stage_batch(team.work(), scoped.batches[0].keys)
    assert len(team.runs) == 3, "the trial runs its partition twice, and its rows are those that are staged"
    world.validate(scoped)
    assert world.published() == old
    world.publish()
    assert [row[1].isoformat() for row in world.published() if row[2] is None] == list(DAYS[:2])

    names, told = zip(*team.runs.items(), strict=True)
    assert re.fullmatch(f"safe_backfill__{world.id}__{DAYS[0]}__1_[0-9a-f]{{6}}", names[0])
    assert told[0]["partition_start"] == f"{DAYS[0]}T00:00:00+00:00"
    assert told[0]["partition_end"] == f"{DAYS[1]}T00:00:00+00:00"
    assert (told[0]["region"], told[0]["backfill_id"]) == ("eu", world.id)
    assert {item.kind for item in world.warehouse.storage()} == {"stage", "backup"}
    world.rollback()
    assert world.published() == old


def test_a_drill_damages_what_one_run_elsewhere_gave(world: World) -> None:
    team, before = Team(world), world.published()
    world.run_id = "drill 1"
    request = Request.from_conf(ONE | {"drill": True})
    end = drill(team.work(), request, Run("backfill__orders", world.run_id, "ann"))
    assert end.passed, end.found
    assert end.damaged == DAYS[0]
    (damaged,) = world.ledger.events(world.id, DAMAGED_EVENT)
    assert (damaged.detail["rows"], damaged.detail["damaged_rows"]) == (PER_DAY, 2 * PER_DAY)
    assert len(team.runs) == 3, "two of the trial, and one for the damage"
    assert world.published() == before


def test_its_failure_is_ours_and_what_it_gives_later_is_not_taken(world: World) -> None:
    team = Team(world, fails=True)
    keys = world.scope(**ONE).batches[0].keys
    with pytest.raises(CodeFailed, match="the disk is full"):
        stage_batch(team.work(), keys)

    team.fails = False
    assert stage_batch(team.work(), keys).rows == PER_DAY
    late, mine = team.runs
    addresses = [{key: run[key] for key in run if key.startswith("staging_")} for run in team.runs.values()]
    assert [name.rpartition("_")[0][-1] for name in (late, mine)] == ["1", "2"]
    assert addresses[0] != addresses[1]


def test_a_file_that_comes_late_is_a_leftover_that_can_be_dropped(on_duckdb: World) -> None:
    team, warehouse = Team(on_duckdb, fails=True), on_duckdb.warehouse
    with pytest.raises(CodeFailed):
        stage_batch(team.work(), on_duckdb.scope(**ONE).batches[0].keys)
    assert warehouse.storage() == ()
    team.write(next(iter(team.runs)))
    (late,) = warehouse.storage()
    assert (late.backfill_id, late.kind) == (on_duckdb.id, "stage")
    warehouse.drop(late.location)
    assert warehouse.storage() == ()


def test_a_stop_ends_the_run(on_duckdb: World) -> None:
    team = Team(on_duckdb, looks=100)
    keys = on_duckdb.scope(**ONE).batches[0].keys
    stops = iter([False, False, False])

    def check() -> None:
        if next(stops, True):
            raise Stopped("Stopped: the switch.")

    with pytest.raises(Stopped):
        stage_batch(team.work(check_stop=check), keys)
    assert team.cancelled == list(team.runs)
    assert on_duckdb.ledger.backfill(on_duckdb.id).state is BackfillState.HALTED
    team.looks = 0
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.runs) == 2, "a run that was ended is not gone on with"


@dataclass
class Unheard(Team):
    """So many looks are not answered."""

    silent: int = 2

    def look(self, handle: str) -> Progress:
        if self.silent:
            self.silent -= 1
            raise ConnectionLost("503 Service Unavailable.")
        return super().look(handle)


def test_a_look_that_nobody_answers_ends_no_run(world: World) -> None:
    team = Unheard(world, silent=2)
    assert stage_batch(team.work(), world.scope(**ONE).batches[0].keys).rows == PER_DAY
    assert (len(team.asked), team.silent, team.cancelled) == (1, 0, [])


def test_a_run_of_which_nobody_tells_for_long_is_left_open_and_the_next_attempt_takes_its_rows(world: World) -> None:
    world.spec = by_dag(poll_every="5m")
    team, clock = Unheard(world, silent=100), [utc_now()]

    def pause(seconds: float) -> None:
        clock[0] += timedelta(seconds=seconds)

    keys = world.scope(**ONE).batches[0].keys
    with pytest.raises(RunLeftOpen, match=r"503.*It was not ended; the next attempt"):
        stage_batch(team.work(pause=pause, now=lambda: clock[0]), keys)
    assert (100 - team.silent, team.cancelled) == (3, [])

    (name,) = team.runs
    team.write(name)  # while nobody waits
    team.silent, team.looks, team.writes = 0, 0, False
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert (team.asked, team.cancelled) == ([name], [])


@pytest.fixture
def left_open(on_duckdb: World) -> tuple[Unheard, tuple[str, ...]]:
    """A run of the first day that nobody tells of for long, and the keys of its task."""
    on_duckdb.spec = by_dag(poll_every="5m")
    team, clock = Unheard(on_duckdb, silent=100), [utc_now()]

    def pause(seconds: float) -> None:
        clock[0] += timedelta(seconds=seconds)

    keys = on_duckdb.scope(**ONE).batches[0].keys
    with pytest.raises(RunLeftOpen):
        stage_batch(team.work(pause=pause, now=lambda: clock[0]), keys)
    team.silent, team.looks = 0, 0
    return team, keys


@pytest.mark.parametrize("day", ["2024-02-29", DAYS[0]], ids=["beside", "inside"])
def test_what_a_run_that_was_left_open_writes_to_the_published_table_meanwhile_is_told(
    left_open: tuple[Unheard, tuple[str, ...]], day: str
) -> None:
    team, keys = left_open
    team.world.engine.execute(f"UPDATE analytics.orders SET amount = 0 WHERE order_date = DATE '{day}'")
    for _ in range(2):
        with pytest.raises(StrayWrite, match=f"in an attempt before.*{day} had"):
            stage_batch(team.work(), keys)
    assert team.world.ledger.counts(team.world.id)[PartitionState.STAGED] == 0


def test_a_stop_that_the_next_attempt_meets_ends_the_run_that_was_left_open(
    left_open: tuple[Unheard, tuple[str, ...]],
) -> None:
    def stop() -> None:
        raise Stopped("Stopped: the switch.")

    team, keys = left_open
    (name,) = team.runs
    team.looks = 100
    assert [line.partition(" of ")[0] for line in open_run_lines(team.work())] == [f"May still run: {name}"]
    with pytest.raises(Stopped, match="the switch"):
        stage_batch(team.work(check_stop=stop), keys)
    assert team.cancelled == [name]
    assert open_run_lines(team.work()) == []
    team.looks = 0
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.runs) == 2, "a run that was ended is not gone on with"


def stop_after(times: int) -> Callable[[], None]:
    """A stop signal that is set once it was looked at so many times."""
    looks = iter([False] * times)

    def check() -> None:
        if next(looks, True):
            raise Stopped("Stopped: the switch.")

    return check


@pytest.fixture
def out_of_reach(on_duckdb: World) -> tuple[Team, tuple[str, ...]]:
    """A run of the first day that a stop was to end and could not, and the keys of its task; it can be ended by now."""
    team = Team(on_duckdb, looks=100, is_in_reach=False)
    keys = on_duckdb.scope(**ONE).batches[0].keys
    with pytest.raises(Stopped):
        stage_batch(team.work(check_stop=stop_after(3)), keys)
    assert team.cancelled == []
    team.is_in_reach = True
    return team, keys


def test_a_run_that_a_stop_could_not_end_is_told_of_and_ended_by_the_next_stop(
    out_of_reach: tuple[Team, tuple[str, ...]],
) -> None:
    team, keys = out_of_reach
    (name,) = team.runs
    (line,) = open_run_lines(team.work())
    assert line.startswith(f"May still run: {name} of ")
    with pytest.raises(Stopped):
        stage_batch(team.work(check_stop=stop_after(0)), keys)
    assert team.cancelled == [name]
    assert open_run_lines(team.work()) == []


def test_a_run_that_a_stop_could_not_end_is_ended_by_the_next_attempt_and_not_gone_on_with(
    out_of_reach: tuple[Team, tuple[str, ...]],
) -> None:
    team, keys = out_of_reach
    (name,) = team.runs
    team.looks = 20
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.runs) == 2
    assert team.cancelled == [name]
    assert open_run_lines(team.work()) == []


@pytest.mark.parametrize("day", ["2024-02-29", DAYS[0]], ids=["beside", "inside"])
def test_what_a_run_that_could_not_be_ended_writes_to_the_published_table_later_is_told(
    out_of_reach: tuple[Team, tuple[str, ...]], day: str
) -> None:
    team, keys = out_of_reach
    team.world.engine.execute(f"UPDATE analytics.orders SET amount = 0 WHERE order_date = DATE '{day}'")
    for _ in range(2):
        with pytest.raises(StrayWrite, match=f"in an attempt before.*{day} had"):
            stage_batch(team.work(), keys)


def test_a_run_that_could_not_be_ended_holds_what_is_beside_it_also_while_another_takes_its_place(
    out_of_reach: tuple[Team, tuple[str, ...]],
) -> None:
    team, keys = out_of_reach
    team.looks, team.is_in_reach = 20, False
    assert stage_batch(team.work(), keys).rows == PER_DAY
    first, _ = team.runs
    (line,) = open_run_lines(team.work())
    assert line.startswith(f"May still run: {first} of ")

    team.world.engine.execute("UPDATE analytics.orders SET amount = 0 WHERE order_date = DATE '2024-02-29'")
    stage_again(team, keys)
    with pytest.raises(StrayWrite, match="2024-02-29 had"):
        stage_batch(team.work(), keys)


def test_a_run_that_could_not_be_ended_is_over_once_its_end_is_seen_and_what_is_beside_it_is_free(
    out_of_reach: tuple[Team, tuple[str, ...]],
) -> None:
    team, keys = out_of_reach
    team.looks, team.is_in_reach = 0, False
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.runs) == 2, "its rows are not taken although it ended well"
    assert open_run_lines(team.work()) == []
    require_free(team, keys)


def stage_again(team: Team, keys: tuple[str, ...]) -> None:
    """Have these partitions staged anew by whoever stages them next."""
    ledger = team.world.ledger
    ledger.move_partitions(team.world.id, list(keys), PartitionState.REJECTED, by="tester", reason="again")


def require_free(team: Team, keys: tuple[str, ...]) -> None:
    """Whoever writes these partitions, or beside them, is not taken for a run of ours."""
    team.world.engine.execute("UPDATE analytics.orders SET amount = 7 WHERE order_date = DATE '2024-02-29'")
    stage_again(team, keys)
    assert stage_batch(team.work(), keys).rows == PER_DAY
    team.world.engine.execute(f"UPDATE analytics.orders SET amount = 7 WHERE order_date = DATE '{keys[0]}'")
    stage_again(team, keys)
    with pytest.raises(TargetMoved, match="rebase"):
        stage_batch(team.work(), keys)


def test_a_write_beside_a_run_that_was_left_open_and_then_ended_well_is_nothing_to_stop_for(
    left_open: tuple[Unheard, tuple[str, ...]],
) -> None:
    team, keys = left_open
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.runs) == 1
    require_free(team, keys)


def begin_unrecorded(team: Team, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that submits a run, and cannot tell the ledger so."""
    record = team.world.ledger.record_event

    def away(backfill_id: str, kind: str, **named: Any) -> None:
        if kind == BEGUN_EVENT:
            raise LedgerUnavailable("The ledger cannot be used.")
        record(backfill_id, kind, **named)

    with monkeypatch.context() as patched:
        patched.setattr(team.world.ledger, "record_event", away)
        with pytest.raises(RunLeftOpen):
            stage_batch(team.work(), keys)


def test_a_run_whose_begin_was_not_recorded_is_ended_by_a_stop_that_finds_it_by_its_name(
    on_duckdb: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, keys = Team(on_duckdb, looks=100), on_duckdb.scope(**ONE).batches[0].keys
    begin_unrecorded(team, keys, monkeypatch)
    with pytest.raises(Stopped):
        stage_batch(team.work(check_stop=stop_after(0)), keys)
    assert team.cancelled == list(team.runs)
    assert open_run_lines(team.work()) == []


def test_a_run_that_can_not_be_found_by_its_name_is_told_of_when_it_may_have_begun(
    on_duckdb: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nameless(Team):
        def find(self, name: str) -> str | None:
            raise CodeFailed("There is a number, and nobody has it.")

    team, keys = Nameless(on_duckdb, looks=100), on_duckdb.scope(**ONE).batches[0].keys
    begin_unrecorded(team, keys, monkeypatch)
    with pytest.raises(Stopped):
        stage_batch(team.work(check_stop=stop_after(0)), keys)
    (name,) = team.runs
    (line,) = open_run_lines(team.work())
    assert line.startswith(f"May still run: {name} of ")
    assert team.cancelled == []


def test_a_run_that_never_began_is_nothing_to_end_or_to_tell_of(on_duckdb: World) -> None:
    class Lost(Team):
        def submit(self, name: str, told: Mapping[str, Any]) -> str:
            raise ConnectionLost("Connection refused.")

    class Refused(Team):
        def submit(self, name: str, told: Mapping[str, Any]) -> str:
            raise CodeFailed("There is no such DAG.")

        def find(self, name: str) -> str | None:
            raise AssertionError("whoever refuses has begun nothing")

    keys = on_duckdb.scope(**ONE).batches[0].keys
    with pytest.raises(RunLeftOpen):
        stage_batch(Lost(on_duckdb).work(), keys)
    team = Team(on_duckdb)
    with pytest.raises(Stopped):
        stage_batch(team.work(check_stop=stop_after(0)), keys)
    assert (team.cancelled, open_run_lines(team.work())) == ([], [])
    with pytest.raises(CodeFailed, match="no such DAG"):
        stage_batch(Refused(on_duckdb).work(), keys)
    assert open_run_lines(team.work()) == []


def test_a_run_that_was_left_open_and_failed_then_has_another_in_its_place_which_may_fail_the_task(
    left_open: tuple[Unheard, tuple[str, ...]],
) -> None:
    team, keys = left_open
    team.fails = True
    with pytest.raises(CodeFailed, match=r"__2_.* failed: the disk is full"):
        stage_batch(team.work(), keys)
    assert len(team.runs) == 2
    assert open_run_lines(team.work()) == []


@pytest.fixture
def with_control(on_duckdb: World) -> tuple[Unheard, Work]:
    """Runs that nobody answers for, of a range of two days with a third as its control period; and a work whose pauses take no time."""
    on_duckdb.spec = by_dag(poll_every="5m").model_copy(
        update={"control_period": make_spec(control_period={"partitions": [DAYS[2]]}).control_period}
    )
    team, clock = Unheard(on_duckdb, silent=100, looks=100), [utc_now()]

    def pause(seconds: float) -> None:
        clock[0] += timedelta(seconds=seconds)

    on_duckdb.scope(**TWO)
    return team, team.work(pause=pause, now=lambda: clock[0])


@pytest.mark.parametrize("step", [try_partition, hold_control, validate_range])
def test_a_stop_ends_the_runs_of_the_control_period_that_were_left_open_in_whichever_step_it_is_met(
    with_control: tuple[Unheard, Work], step: Callable[[Work], object]
) -> None:
    team, work = with_control
    with pytest.raises(RunLeftOpen):
        hold_control(work)
    with pytest.raises(Stopped):
        step(team.work(check_stop=stop_after(0)))
    assert team.cancelled == list(team.runs)
    assert open_run_lines(team.work()) == []


@pytest.mark.parametrize("step", [try_partition, hold_control, validate_range])
def test_a_stop_leaves_the_run_of_a_partition_alone_that_another_task_may_wait_for(
    with_control: tuple[Unheard, Work], step: Callable[[Work], object]
) -> None:
    team, work = with_control
    with pytest.raises(RunLeftOpen):
        stage_batch(work, [DAYS[1]])
    with pytest.raises(Stopped):
        step(team.work(check_stop=stop_after(0)))
    assert team.cancelled == []
    assert len(open_run_lines(team.work())) == 1


def test_a_stop_is_one_also_where_the_ledger_is_away_meanwhile(
    on_duckdb: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **named: Any) -> None:
        raise LedgerUnavailable("The ledger cannot be used.")

    looks = iter([False, False, False])

    def check() -> None:
        if next(looks, True):
            monkeypatch.setattr(on_duckdb.ledger, "move", away)
            monkeypatch.setattr(on_duckdb.ledger, "record_event", away)
            raise Stopped("Stopped: the switch.")

    team, keys = Team(on_duckdb, looks=100), on_duckdb.scope(**ONE).batches[0].keys
    with pytest.raises(Stopped, match="the switch"):
        stage_batch(team.work(check_stop=check), keys)
    assert set(team.cancelled) == set(team.runs)

    monkeypatch.undo()
    team.looks = 0
    assert stage_batch(team.work(), keys).rows == PER_DAY, "nothing fails of the run that the stop ended"
    assert len(team.runs) == 2


def test_a_ledger_that_is_away_when_rows_were_taken_leaves_them_to_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = world.ledger.record_event

    def away(backfill_id: str, kind: str, **named: Any) -> None:
        if kind == OVER_EVENT:
            raise LedgerUnavailable("The ledger cannot be used.")
        record(backfill_id, kind, **named)

    team, keys = Team(world), world.scope(**ONE).batches[0].keys
    monkeypatch.setattr(world.ledger, "record_event", away)
    with pytest.raises(RunLeftOpen):
        stage_batch(team.work(), keys)
    monkeypatch.undo()
    team.writes = False
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.asked) == 1


def test_a_ledger_that_is_away_when_a_run_has_begun_leaves_the_run_to_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = world.ledger.record_event

    def away(backfill_id: str, kind: str, **named: Any) -> None:
        if kind == BEGUN_EVENT:
            raise LedgerUnavailable("The ledger cannot be used.")
        record(backfill_id, kind, **named)

    team, keys = Team(world), world.scope(**ONE).batches[0].keys
    monkeypatch.setattr(world.ledger, "record_event", away)
    with pytest.raises(RunLeftOpen):
        stage_batch(team.work(), keys)
    monkeypatch.undo()
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert (len(team.runs), team.cancelled) == (1, [])


def test_a_run_whose_begin_nobody_answered_is_asked_for_again_by_its_name(world: World) -> None:
    class Lost(Team):
        def submit(self, name: str, told: Mapping[str, Any]) -> str:
            handle = super().submit(name, told)
            if len(self.asked) == 1:
                raise ConnectionLost("Read timed out.")
            return handle

    team, keys = Lost(world), world.scope(**ONE).batches[0].keys
    with pytest.raises(RunLeftOpen):
        stage_batch(team.work(), keys)
    assert stage_batch(team.work(), keys).rows == PER_DAY
    assert len(team.runs) == 1


def test_a_run_is_not_waited_for_longer_than_its_timeout_which_begins_when_it_was_asked_for(
    on_duckdb: World,
) -> None:
    on_duckdb.spec = by_dag(timeout="2m", poll_every="50s")
    team, clock = Team(on_duckdb, looks=100), [utc_now()]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += timedelta(seconds=seconds)

    keys = on_duckdb.scope(**ONE).batches[0].keys
    with pytest.raises(CodeFailed, match=r"not over after 2m.*Raise the timeout"):
        stage_batch(team.work(pause=pause, now=lambda: clock[0]), keys)
    assert [round(seconds) for seconds in pauses] == [50, 50, 20]
    assert team.cancelled == list(team.runs)


def test_a_run_that_wrote_the_published_table_stops_the_backfill(world: World) -> None:
    def publish() -> None:
        world.engine.execute(f"UPDATE analytics.orders SET amount = 0 WHERE order_date = DATE '{DAYS[0]}'")

    team = Team(world, beside=publish)
    keys = world.scope(**ONE).batches[0].keys
    with pytest.raises(StrayWrite, match=f"while DAG orders_of_a_day ran.*{DAYS[0]} had {PER_DAY} rows"):
        stage_batch(team.work(), keys)


def _killed_while_it_waits(place: Place) -> None:
    world = place.open()
    world.spec = by_dag()
    stage_batch(replace(Team(world, looks=100).work(), pause=lambda _: die()), _KEYS)


class Dying(Team):
    """A run is begun, and the worker does not live to hear of it."""

    def submit(self, name: str, told: Mapping[str, Any]) -> str:
        super().submit(name, told)
        die()


def _killed_while_it_submits(place: Place) -> None:
    world = place.open()
    world.spec = by_dag()
    stage_batch(Dying(world).work(), _KEYS)


_KEYS = (DAYS[0],)


@pytest.mark.parametrize("killed", [_killed_while_it_submits, _killed_while_it_waits])
def test_the_run_of_a_worker_that_was_killed_is_gone_on_with(place: Place, killed: Callable[[Place], None]) -> None:
    world = place.open()
    world.spec = by_dag()
    world.scope(**ONE)
    assert not survives(killed, (place,))
    (sent,) = world.ledger.events(world.id, "elsewhere.sent")
    name, address = sent.detail["name"], sent.detail["address"]

    team = Team(world, looks=0)
    known = [event.detail["handle"] for event in world.ledger.events(world.id, "elsewhere.begun")]
    if known:
        team.runs[name] = {"partition_key": DAYS[0], **address, "looks": 0}
    assert stage_batch(team.work(), _KEYS).rows == PER_DAY
    assert known == ([name] if killed is _killed_while_it_waits else [])
    assert team.asked == ([] if known else [name]), "by the same name nothing is begun twice"
    assert address.items() <= team.runs[name].items()
    assert [event.detail["reason"] for event in world.ledger.events(world.id, "elsewhere.over")] == [
        "its rows were taken"
    ]
    world.warehouse.close()
    world.ledger.close()


def test_a_run_from_before_a_restage_is_not_gone_on_with_since_its_code_may_be_another_now(place: Place) -> None:
    world = place.open()
    world.spec = by_dag()
    world.scope(**ONE)
    assert not survives(_killed_while_it_waits, (place,))
    (begun,) = world.ledger.events(world.id, "elsewhere.sent")

    world.scope(backfill_id=world.id, restage=True)
    team, name = Team(world), begun.detail["name"]
    team.runs[name] = {"looks": 0}
    assert stage_batch(team.work(), _KEYS).rows == PER_DAY
    assert len(team.asked) == 1
    assert name not in team.asked
    assert team.cancelled == [name], "and nobody is to pay for it any more"
    world.warehouse.close()
    world.ledger.close()


def test_a_run_that_ended_well_and_left_no_file_is_told(on_duckdb: World) -> None:
    team = Team(on_duckdb, writes=False)
    keys = on_duckdb.scope(**ONE).batches[0].keys
    with pytest.raises(CodeFailed, match=r"there is no file .*\.parquet"):
        stage_batch(team.work(), keys)
    team.writes = True
    assert stage_batch(team.work(), keys).rows == PER_DAY, "the next attempt has a run of its own"


def test_the_plan_shows_what_each_run_is_told(on_duckdb: World) -> None:
    text = preview(on_duckdb.scope(**ONE).plan)
    assert "Code of DAG orders_of_a_day" in text
    assert f'"partition_start": "{DAYS[0]}T00:00:00+00:00"' in text
    assert '"region": "eu"' in text


def test_a_databricks_job_for_a_table_of_another_engine_is_refused_at_plan_time(on_duckdb: World) -> None:
    on_duckdb.spec = make_spec(transform={"databricks_job": {"job_id": 7}})
    with pytest.raises(
        TransformRefused, match=r"Databricks job 7 can put its rows into a table of databricks alone.*DuckDB"
    ):
        on_duckdb.scope(**ONE)


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("{dag: {dag_id: d, conf: {partition_key: a}}}", "partition_key is what the backfill itself tells"),
        ("{dag: {dag_id: d}, scope: range}", "one partition"),
        ("{dag: {dag_id: d}, params: {a: 1}}", r"transform\.dag\.conf"),
        ("{dag: {dag_id: d}, logical_date: start}", "partition_start"),
        ("{dag: {dag_id: 'a b'}}", "dag_id"),
        ("{databricks_job: {}}", "either job_id.*or notebook"),
        ("{databricks_job: {job_id: 1, notebook: /a}}", "either job_id.*or notebook"),
        ("{databricks_job: {notebook: a}}", "notebook"),
        ("{databricks_job: {job_id: 1, existing_cluster_id: c}}", "a job has compute of its own"),
        (
            "{databricks_job: {job_id: 1, parameters: {staging_table: a}}}",
            "staging_table is what the backfill itself tells",
        ),
        ("{databricks_job: {job_id: 1}, scope: range}", "one partition"),
        ("{databricks_job: {job_id: 1}, params: {a: 1}}", r"transform\.databricks_job\.parameters"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(transform: str, told: str) -> None:
    spec = "name: a\ntarget: {table: a.b, partition_by: day, key: [day]}\ncompute: {conn_id: w}\n"
    with pytest.raises(SpecError, match=told):
        load_spec_text(f"{spec}transform: {transform}\n", "spec.yaml", lambda path: "SELECT 1")
