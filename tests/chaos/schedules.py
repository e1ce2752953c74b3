"""Seeded schedules of strikes, and what must hold after each strike and at the end, whatever was struck."""

from __future__ import annotations

import atexit
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from killed_step import Place
from killing import survives
from lives import LIVES, Life, start_over, take
from steps_world import DAYS, World
from strikes import Point, Strike, points_of, struck

from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, REVISED_EVENT, WRITE_BLOCK_EVENT
from airflow_backfill_provider.steps.cleanup import DROPPED_EVENT, DROPPING_EVENT
from airflow_backfill_provider.steps.leftovers import leftovers

MOST_STRIKES = 3
MAY_BE_LOST = frozenset({WRITE_BLOCK_EVENT, DROPPED_EVENT})
"""How long a commit kept others out dies with who measured it; a drop that was announced may be seen to have happened."""

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Ending:
    """What a life comes to, told by the table, its receipts and the ledger."""

    rows: Rows
    state: BackfillState
    partitions: Mapping[str, PartitionState]
    receipts: Sequence[tuple[str, tuple[str, ...]]]
    left: frozenset[str]


@dataclass(frozen=True)
class Undisturbed:
    """A life that nothing struck."""

    place: Place
    """Before its first step."""
    points: Mapping[str, Sequence[Point]]
    before: Mapping[str, Rows]
    after: Mapping[str, Rows]
    ending: Ending
    actions: frozenset[str]
    """Every kind of line in its audit trail."""


@cache
def undisturbed(life: Life) -> Undisturbed:
    """Live it once."""
    folder = TemporaryDirectory(prefix="chaos-")
    atexit.register(folder.cleanup)
    place = life.place(Path(folder.name))
    copy = place.copied(Path(folder.name, "undisturbed"))
    points, before, after = {}, {}, {}
    for step in life.steps:
        life.happens_before(step, copy.rig)
        before[step] = _published(copy)
        points[step] = points_of(copy, step)
        after[step] = _published(copy)
    with _world(copy) as world:
        ending = _ending(world)
        actions = frozenset(event.action for event in world.ledger.events(world.id))
        _require_complete(world, set())
    copy.close()
    assert before["publish"] != after["publish"]
    return Undisturbed(place, points, before, after, ending, actions)


@dataclass(frozen=True)
class Schedule:
    """What strikes one life, and when."""

    seed: int
    life: Life
    strikes: Sequence[Strike]
    starts_over: bool
    """Whether a person clears the whole run after a strike, where a publish has not begun; otherwise the task is retried."""

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.life}): {'; '.join(map(str, self.strikes))}"


def schedule(seed: int) -> Schedule:
    """The same one for a seed, as long as lives and points are the same.

    Seeds in a row take the lives in turn, and each life's seeds begin with each of its steps in turn.
    """
    chance = Random(seed)
    life = LIVES[seed % len(LIVES)]
    points = undisturbed(life).points
    first = (seed // len(LIVES)) % len(life.steps)
    steps = [first, *(chance.randrange(first, len(life.steps)) for _ in range(chance.randrange(MOST_STRIKES)))]
    strikes = tuple(_strike(chance, life, life.steps[number], points) for number in sorted(steps))
    return Schedule(seed, life, strikes, starts_over=chance.random() < 0.5)


def _strike(chance: Random, life: Life, step: str, points: Mapping[str, Sequence[Point]]) -> Strike:
    numbered = list(enumerate(points[step]))
    # Most statements only read, and what they find is what the next write finds.
    writing = [(number, point) for number, point in numbered if point.writes]
    number, point = chance.choice(writing if chance.random() < 0.75 else numbered)
    return Strike(step, number, point, chance.choice(list(point.faults(undisturbed(life).place.rig))))


def survive(schedule: Schedule, folder: Path) -> list[str]:
    """Live the life under its strikes; a line for each that struck.

    :raises AssertionError: a promise was broken.
    """
    life, calm = schedule.life, undisturbed(schedule.life)
    place = calm.place.copied(folder / f"seed {schedule.seed}")
    told: list[str] = []
    aside: set[str] = set()
    attempt = 0
    for step in life.steps:
        if step == "cleanup":
            aside = _require_listed(place)
        life.happens_before(step, place.rig)
        for strike in schedule.strikes:
            if strike.step != step:
                continue
            attempt += 1
            said = folder / f"said {schedule.seed} {attempt}"
            ended = survives(struck, (place, step, strike, attempt, said))
            if said.exists():
                told.append(said.read_text())
            assert ended or said.exists()
            _require_old_or_new(place, calm, step)
            attempt += 1
            if schedule.starts_over and step in ("validate", "publish"):
                with _world(place, attempt) as world:
                    start_over(world)
                _require_old_or_new(place, calm, step)
        attempt += 1
        with _world(place, attempt) as world:
            take(world, step)
        assert _published(place) == calm.after[step], f"{step} did not converge"
        _require_listed(place)
    with _world(place) as world:
        ending = _ending(world)
        for name in ("rows", "state", "partitions", "receipts", "left"):
            found, wanted = getattr(ending, name), getattr(calm.ending, name)
            assert found == wanted, f"{name} at the end: {found}, undisturbed {wanted}"
        actions = {event.action for event in world.ledger.events(world.id)}
        assert calm.actions - MAY_BE_LOST <= actions, f"the audit trail lacks {calm.actions - actions}"
        _require_complete(world, aside)
    place.close()
    return told


@contextmanager
def _world(place: Place, attempt: int = 0) -> Iterator[World]:
    world = place.open()
    world.clears = attempt * 100
    try:
        yield world
    finally:
        world.warehouse.close()
        world.ledger.close()


def _published(place: Place) -> Rows:
    return sorted(place.rig.rows("SELECT order_id, order_date, amount, note FROM analytics.orders"), key=repr)


def _require_old_or_new(place: Place, calm: Undisturbed, step: str) -> None:
    """Every unit of the range as it was or as it is to be, no row lost, none elsewhere touched, nothing unlisted."""
    found, before, after = _published(place), calm.before[step], calm.after[step]
    assert place.rig.is_idle(), f"something of {step} goes on"
    with _world(place) as world:
        backfill = world.ledger.find_backfill(world.id)
        units = [] if backfill is None else [[one.key for one in unit] for unit in world.work().stored_plan().units()]
    for unit in units or [DAYS]:
        of_unit = _rows_of(found, unit)
        assert of_unit in (_rows_of(before, unit), _rows_of(after, unit)), f"a mixture in {unit[0]} … {unit[-1]}"
    assert _rows_elsewhere(found) == _rows_elsewhere(before), "rows beside the range changed"
    _require_listed(place)


def _rows_of(rows: Rows, days: Sequence[str]) -> Rows:
    return [row for row in rows if str(row[1]) in days]


def _rows_elsewhere(rows: Rows) -> Rows:
    return [row for row in rows if str(row[1]) not in DAYS]


def _require_listed(place: Place) -> set[str]:
    """Nothing lies aside that ``leftovers`` does not list as this backfill's; the locations."""
    with _world(place) as world:
        if world.ledger.find_backfill(world.id) is None:
            assert not place.rig.stored(), "something is left of a backfill that nobody knows"
            return set()
        listed = leftovers(world.ledger, world.warehouse, "warehouse")
        assert all(one.retention is not None for one in listed), "something is left that the ledger does not know"
        locations = {one.item.location for one in listed}
        assert place.rig.stored() <= locations, f"nobody lists {place.rig.stored() - locations}"
        return locations


def _ending(world: World) -> Ending:
    receipts = world.warehouse.receipts(world.work().stored_plan().target)
    return Ending(
        world.published(),
        world.ledger.backfill(world.id).state,
        {key: record.state for key, record in world.ledger.partitions(world.id).items()},
        [(receipt.action.value, tuple(sorted(receipt.keys))) for receipt in receipts],
        frozenset(one.item.location for one in leftovers(world.ledger, world.warehouse, "warehouse")),
    )


def _require_complete(world: World, aside: set[str]) -> None:
    """The audit trail has every move in a row, every partition's publish once, and whatever was dropped."""
    events = world.ledger.events(world.id)
    state = BackfillState.PLANNED.value
    for event in events:
        if event.action in (MOVED_EVENT, REVISED_EVENT):
            assert event.detail["from"] == state, f"the audit trail lacks a move from {state} to {event.detail['from']}"
            state = event.detail.get("to", BackfillState.PLANNED.value)  # a revised plan begins again
    assert state == world.ledger.backfill(world.id).state
    states = {record.state for record in world.ledger.partitions(world.id).values()}
    for to in {PartitionState.PUBLISHED, *states}:
        moved = Counter(key for event in _moves_to(events, to) for key in event.detail["keys"])
        assert moved == Counter(DAYS), f"the audit trail has {moved} as {to}"
    dropping = {
        item["location"]
        for event in events
        if event.action in (DROPPING_EVENT, DROPPED_EVENT)
        for item in event.detail["items"]
    }
    assert not world.warehouse.storage()
    assert aside <= dropping, f"the audit trail does not say that {aside - dropping} were dropped"


def _moves_to(events: Sequence[EventRecord], to: PartitionState) -> list[EventRecord]:
    return [event for event in events if event.action == "partitions.moved" and event.detail["to"] == to.value]
