"""Everybody at once on one table: two backfills, a scheduled run under the guard, a live appender and a reader.

Each is a process of its own and goes round and round. The backfills publish and undo a half of the range each, the scheduled
run replaces the last day, the appender adds rows beside the range, the reader looks at all of it in one statement.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from contract_faults import RIGS, InterruptedDuckDB, InterruptedPostgres, Rig
from killed_step import Place
from killing import forks
from lives import LONG_AFTER
from steps_world import DAYS, PER_DAY, World

from airflow_backfill_provider.errors import ConnectionLost, LockTimeout, RangeLocked, TargetMoved
from airflow_backfill_provider.ledger.records import LiveRun
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.cleanup import clean_up
from airflow_backfill_provider.steps.guard import hold
from airflow_backfill_provider.steps.leftovers import leftovers
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.validate import validate_batch, validate_range
from airflow_backfill_provider.windows import Grain, merge, parse_key

GROUNDS = [rig for rig in RIGS if rig in (InterruptedDuckDB, InterruptedPostgres)]
"""Engines on which others write the same table by statements of their own."""
HALVES = {"first": DAYS[:5], "second": DAYS[5:]}
CAP = 3
"""Slots for the tasks of both backfills, each of which would take two."""
PATIENCE = 300.0
"""Seconds in which something must come off on the busiest machine."""
FIRST_LIVE = 20_000
LIVE_DAY = "2024-03-12"
SETTINGS: dict[str, Any] = {
    "publish": {"lock_timeout": "10s"},
    "compute": {"conn_id": "warehouse", "partitions_per_task": 3},
}


@dataclass(frozen=True)
class Ground:
    """What everybody knows."""

    place: Place
    folder: Path
    seconds: float
    """How long rounds may begin; everybody goes at least one."""
    ready: Any
    """Where everybody waits for the others before the first."""
    slots: Any
    appended: Any
    """The number of the last row whose commit the appender saw."""

    def rounds(self) -> Iterator[int]:
        """Numbers of rounds."""
        self.ready.wait(PATIENCE)
        number, over = 0, time.monotonic() + self.seconds
        while number == 0 or time.monotonic() < over:
            yield number
            number += 1

    def say(self, who: str, **did: Any) -> None:
        """Leave word of what one did."""
        (self.folder / f"{who}.json").write_text(json.dumps(did))


@dataclass(frozen=True)
class Together:
    """What it came to."""

    published: int
    scheduled: int
    appended: int
    reads: int
    rebased: int
    """Publishes that found the scheduled run's rows, wrote nothing, and went on from them."""
    sessions: int | None
    """Most sessions of both backfills that the warehouse saw at work at once; None where it has no sessions."""

    def __str__(self) -> str:
        cap = "" if self.sessions is None else f"; at most {self.sessions} of {CAP} sessions at work"
        return (
            f"{self.published} publishes and as many rollbacks ({self.rebased} after a rebase), {self.scheduled} scheduled runs, "
            f"{self.appended} appends, {self.reads} reads: no mixed read, no lost append{cap}"
        )


def beside(rig: type[Rig], folder: Path, seconds: float) -> Together:
    """Let them all go round for so long.

    :raises AssertionError: a read was mixed, an append was lost, the cap was exceeded, or somebody broke.
    """
    place = Place.create(rig(), folder, **SETTINGS)
    context = forks()
    everybody = {name: partial(_backfill, name) for name in HALVES} | {
        "scheduled": _scheduled,
        "appender": _append,
        "reader": _read,
    }
    ground = Ground(
        place,
        folder,
        seconds,
        context.Barrier(len(everybody)),
        context.BoundedSemaphore(CAP),
        context.Value("q", FIRST_LIVE - 1),
    )
    processes = {name: context.Process(target=call, args=(ground,)) for name, call in everybody.items()}
    for process in processes.values():
        process.start()
    sessions = _watch(place.rig, lambda: any(process.is_alive() for process in processes.values()))
    broken = [name for name, process in processes.items() if process.exitcode]
    assert not broken, f"{', '.join(broken)} broke; see above"
    did = {name: json.loads((folder / f"{name}.json").read_text()) for name in everybody}
    _require_kept(ground, did["appender"]["rows"])
    assert sessions is None or sessions <= CAP, f"{sessions} sessions at work at once, and {CAP} slots"
    together = Together(
        published=sum(did[name]["published"] for name in HALVES),
        scheduled=did["scheduled"]["runs"],
        appended=did["appender"]["rows"],
        reads=did["reader"]["reads"],
        rebased=sum(did[name]["rebased"] for name in HALVES),
        sessions=sessions,
    )
    place.close()
    return together


def _watch(rig: Rig, going_on: Callable[[], bool]) -> int | None:
    """Look from the warehouse's side until all is over; the most sessions of backfills that worked at once."""
    most = None
    while going_on():
        if isinstance(rig, InterruptedPostgres):
            most = max(most or 0, len(rig.rows(rig.busy)))
        time.sleep(0.02)
    return most


def _require_kept(ground: Ground, appended: int) -> None:
    """Every appended row is there once, every backfill is over, and whatever lies aside is listed and can go."""
    live = [number for number, *_ in _look(ground.place.rig) if number >= FIRST_LIVE]
    assert sorted(live) == list(range(FIRST_LIVE, FIRST_LIVE + appended)), "an append was lost, or is there twice"
    world = ground.place.open()
    states = {backfill.state for backfill in world.ledger.backfills(limit=10_000)}
    assert states == {BackfillState.ROLLED_BACK}, states
    listed = {one.item.location for one in leftovers(world.ledger, world.warehouse, "warehouse")}
    assert ground.place.rig.stored() <= listed
    clean_up(world.ledger, world.warehouse, "warehouse", now=datetime.now(UTC) + LONG_AFTER, by="cleaner")
    assert not world.warehouse.storage()
    world.warehouse.close()
    world.ledger.close()


def _backfill(name: str, ground: Ground) -> None:
    days, rebased = HALVES[name], 0
    with _opened(ground) as world, ThreadPoolExecutor(2) as workers:
        for number in ground.rounds():
            world.run_id = f"{name} {number}"
            world.clears = 0
            asked = {"start_date": days[0], "end_date": days[-1]}
            while True:
                _task(ground, lambda: world.scope(**asked))  # noqa: B023
                keys = [batch.keys for batch in world.work().stored_plan().batches()]
                list(workers.map(partial(_computed, ground, world.run_id), keys))
                _task(ground, lambda: validate_range(world.work()))
                try:
                    assert _task(ground, world.publish).published
                    break
                except TargetMoved:  # the scheduled run wrote between the plan's look and its claim
                    rebased += 1
                    asked = {"backfill_id": world.id, "rebase": True}
            _task(ground, lambda: conclude(world.work()))
            assert _task(ground, world.rollback).restored
    ground.say(name, published=number + 1, rebased=rebased)


def _computed(ground: Ground, run_id: str, keys: tuple[str, ...]) -> None:
    """One mapped task: a process of its own would open warehouse and ledger as well."""
    with _opened(ground) as world:
        world.run_id = run_id
        _task(ground, lambda: stage_batch(world.work(), keys))
        _task(ground, lambda: validate_batch(world.work(), keys))


def _scheduled(ground: Ground) -> None:
    """The pipeline of every day, which replaces the last day of the range by a DELETE and an INSERT."""
    day = DAYS[-1]
    spans = merge([parse_key(day, Grain.DAY)])
    with _opened(ground) as world:
        for number in ground.rounds():
            run = LiveRun(f"{number:012x}", "orders", f"scheduled {number}", "load", 1)
            hold(world.ledger, run, "analytics.orders", spans, patience=timedelta(seconds=PATIENCE), sleep=_briefly)
            _write(
                ground.place.rig,
                f"DELETE FROM analytics.orders WHERE order_date = DATE '{day}'",
                "INSERT INTO analytics.orders SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END, note "
                f"FROM raw.orders WHERE order_date = DATE '{day}'",
            )
            assert world.ledger.release_live(run.claim_id)
            time.sleep(0.05)
    ground.say("scheduled", runs=number + 1)


def _append(ground: Ground) -> None:
    for number in ground.rounds():
        row = FIRST_LIVE + number
        _write(ground.place.rig, f"INSERT INTO analytics.orders VALUES ({row}, DATE '{LIVE_DAY}', 1, 'live')")
        ground.appended.value = row
        time.sleep(0.02)
    ground.say("appender", rows=number + 1)


def _read(ground: Ground) -> None:
    reads = 0
    for _ in ground.rounds():
        appended = ground.appended.value
        rows = _look(ground.place.rig)
        assert {row for row, *_ in rows} >= set(range(FIRST_LIVE, appended + 1)), "an appended row was not seen"
        amounts: dict[str, dict[int, int | None]] = {day: {} for day in DAYS}
        for order, day, amount in rows:
            if str(day) in amounts:
                amounts[str(day)][order] = amount
        assert [len(of_day) for of_day in amounts.values()] == [PER_DAY] * len(DAYS), "a day without its rows"
        corrected = {day: None in of_day.values() for day, of_day in amounts.items()}
        # The scheduled run writes the last day by itself.
        for half in (DAYS[:5], DAYS[5:-1]):
            assert len({corrected[day] for day in half}) == 1, f"a mixture: {corrected}"
        reads += 1
        time.sleep(0.01)
    ground.say("reader", reads=reads)


@contextmanager
def _opened(ground: Ground) -> Iterator[World]:
    world = ground.place.open()
    try:
        yield world
    finally:
        world.warehouse.close()
        world.ledger.close()


def _task(ground: Ground, call: Callable[[], Any]) -> Any:
    """Run a task in a slot of the pool; again, as Airflow would, when something was not to be had in time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with ground.slots:
            try:
                return call()
            except (RangeLocked, LockTimeout, ConnectionLost):
                if time.monotonic() > deadline:
                    raise
        _briefly(0.1)


def _briefly(seconds: float) -> None:
    time.sleep(min(seconds, 0.1))


def _write(rig: Rig, *statements: str) -> None:
    """One transaction of somebody who knows nothing of us."""
    if isinstance(rig, InterruptedPostgres):
        with rig.connect() as connection:
            for sql in statements:
                connection.execute(sql)
        return
    with _file(rig, read_only=False) as connection:
        connection.execute("BEGIN")
        for sql in statements:
            connection.execute(sql)
        connection.execute("COMMIT")


def _look(rig: Rig) -> list[tuple[Any, ...]]:
    sql = "SELECT order_id, order_date, amount FROM analytics.orders"
    if isinstance(rig, InterruptedPostgres):
        return rig.rows(sql)
    with _file(rig, read_only=True) as connection:
        return connection.execute(sql).fetchall()


@contextmanager
def _file(rig: Any, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """The file, once nobody holds it who keeps us out; which is all that a plain script can do."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = duckdb.connect(str(rig.path), read_only=read_only)
            break
        except duckdb.IOException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    with connection:
        yield connection
