"""The partition that is still being written: recomputed last, under the lock of the runs that write it, and no row is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import postgres_server
import pytest
from contract_engines import Postgres
from ledger_file import new_ledger
from sqlalchemy import delete
from steps_world import DAYS, PER_DAY, World, fill, make_spec

from airflow_backfill_provider.errors import LockTimeout, RangeLocked, TargetMoved, Throttled, ValidationFailed
from airflow_backfill_provider.ledger.records import LiveRun
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.tables import RangeLockRow
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.spec.request import Mode
from airflow_backfill_provider.steps import guard, live
from airflow_backfill_provider.steps.publish import publish
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.validate import validate_batch, validate_range
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.windows import Window

*SETTLED, LIVE = DAYS
DAY_ONE = datetime(2024, 3, 1, tzinfo=UTC)
NOON = datetime(2024, 3, 10, 12, tzinfo=UTC)
LIVE_DAY = Window(datetime(2024, 3, 10, tzinfo=UTC), datetime(2024, 3, 11, tzinfo=UTC))
HOURLY = LiveRun("f" * 12, "hourly", "hour 12", "append", 1)


@pytest.fixture
def live_world(world: World) -> World:
    world.now = NOON
    return world


def append(world: World, order: int) -> None:
    """What the scheduled pipeline does: a row arrives, and is published by its rule."""
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES ({order}, DATE '{LIVE}', {order + 10}, 'live', FALSE)",
        f"INSERT INTO analytics.orders VALUES ({order}, DATE '{LIVE}', {order + 10}, 'live')",
    )


def right(world: World) -> list[tuple[int, int | None]]:
    return sorted(
        world.engine.rows(
            f"SELECT order_id, CASE WHEN refunded THEN NULL ELSE amount END FROM raw.orders WHERE order_date = DATE '{LIVE}'"
        )
    )


def published(world: World) -> list[tuple[int, int | None]]:
    return sorted(world.engine.rows(f"SELECT order_id, amount FROM analytics.orders WHERE order_date = DATE '{LIVE}'"))


def attempts(world: World) -> list[int]:
    return [record.attempt for record in world.ledger.partitions(world.id).values()]


class Appender(threading.Thread):
    """A guarded live run after the other, each of which publishes one row."""

    def __init__(self, world: World, ledger: str) -> None:
        super().__init__()
        self.world, self.url = world, ledger
        self.appended: list[int] = []
        self.refused = 0
        self.over = threading.Event()

    def run(self) -> None:
        with Ledger(self.url) as ledger:
            while not self.over.wait(0.05):
                order = 950_000 + len(self.appended)
                run = LiveRun(f"{order:012d}", "hourly", f"run {order}", "append", 1)
                try:
                    ledger.claim_live(run, "analytics.orders", [LIVE_DAY])
                except RangeLocked:
                    self.refused += 1
                    continue
                append(self.world, order)
                self.appended.append(order)
                ledger.release_live(run.claim_id)

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not what():
            assert self.is_alive(), "the appender died"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def wait_for_more(self) -> None:
        seen = len(self.appended)
        self.wait_for(lambda: len(self.appended) > seen + 1)


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Appender]]:
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.NEEDS)
    monkeypatch.setattr(guard, "ASK_EVERY", 0.03)
    monkeypatch.setattr(live, "PATIENCE", timedelta(seconds=120))
    engine = Postgres()
    warehouse = engine.create(tmp_path)
    url = new_ledger(tmp_path)
    with Ledger(url) as ledger:
        fill(engine)
        world = World(engine, warehouse, ledger, now=NOON)
        appender = Appender(world, url)
        appender.start()
        yield world, appender
        appender.over.set()
        appender.join()
    warehouse.close()


def test_beside_a_running_appender_no_row_is_lost_and_it_waits_only_from_the_last_stage_to_the_publish(
    busy: tuple[World, Appender],
) -> None:
    world, appender = busy
    appender.wait_for_more()
    scoped = world.scope(start_date=DAYS[0], end_date=LIVE, include_live=True)
    appender.wait_for_more()
    world.stage(scoped)
    appender.wait_for_more()
    assert appender.refused == 0
    world.validate(scoped)
    before, refused = len(appender.appended), appender.refused
    appender.wait_for(lambda: appender.refused > refused)
    world.publish()
    assert published(world) == right(world)
    assert len(right(world)) == PER_DAY + before
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    appender.wait_for_more()
    appender.over.set()
    appender.join()
    assert published(world) == right(world)
    assert len(right(world)) == PER_DAY + len(appender.appended)
    assert [world.amounts(day)[number * 100] for number, day in enumerate(SETTLED)] == [None] * len(SETTLED)


def test_the_live_partition_is_staged_after_all_others_from_what_it_is_by_then(live_world: World) -> None:
    world = live_world
    scoped = world.scope(include_live=True)
    assert [key for batch in scoped.batches for key in batch.keys] == SETTLED
    assert f"  live        {LIVE}: staged last" in preview(scoped.plan)
    append(world, 950_001)
    world.stage(scoped)
    assert attempts(world) == [1] * len(SETTLED) + [0]
    world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    world.ledger.release_live(HOURLY.claim_id)
    world.validate(scoped)
    assert attempts(world) == [1] * len(DAYS)
    with pytest.raises(RangeLocked, match="which the run 'hour 12'"):
        world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    plan = world.work().plan()
    assert (scoped.plan.baseline[LIVE].rows, plan.baseline[LIVE].rows) == (PER_DAY, PER_DAY + 1)
    assert plan.plan_hash == scoped.plan.plan_hash, (
        "an approval holds for the plan without the facts of the live partition"
    )
    world.publish()
    assert published(world) == right(world)


def test_what_is_written_past_the_lock_stops_the_publish_and_a_rebase_takes_it_in(live_world: World) -> None:
    world = live_world
    world.prepare(include_live=True)
    append(world, 950_001)
    with pytest.raises(TargetMoved, match=f"{LIVE} had {PER_DAY} rows, has {PER_DAY + 1}"):
        world.publish()
    assert (950_001, 950_011) in published(world)
    scoped = world.scope(backfill_id=world.id, rebase=True)
    assert world.ledger.backfill(world.id).revision == 2
    world.stage(scoped)
    world.validate(scoped)
    assert attempts(world) == [1] * len(SETTLED) + [2]
    world.publish()
    assert published(world) == right(world)


def test_a_live_run_that_does_not_end_is_named_and_the_task_may_be_tried_again(
    live_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE", timedelta())
    world = live_world
    world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    scoped = world.scope(include_live=True)
    world.stage(scoped)
    with pytest.raises(LockTimeout, match=r"The run 'hour 12' of DAG 'hourly'.* is writing"):
        world.validate(scoped)
    assert attempts(world)[-1] == 0
    world.ledger.release_live(HOURLY.claim_id)
    world.validate(scoped)
    assert world.ledger.backfill(world.id).state is BackfillState.VALIDATED


def test_a_range_of_nothing_but_the_live_partition_is_dealt_out(live_world: World) -> None:
    world = live_world
    scoped = world.scope(partitions=[LIVE], include_live=True)
    assert [batch.keys for batch in scoped.batches] == [(LIVE,)]
    append(world, 950_001)
    assert world.try_one().tried
    append(world, 950_002)  # past the lock that the trial took
    world.stage(scoped)
    with pytest.raises(TargetMoved):
        world.validate(scoped)
    scoped = world.scope(backfill_id=world.id, rebase=True)
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    assert published(world) == right(world)


def test_two_backfills_of_one_live_partition_exclude_each_other_from_the_start(live_world: World) -> None:
    world = live_world
    world.scope(include_live=True)
    first, world.run_id = world.id, "run 2"
    with pytest.raises(RangeLocked, match=f"Backfill '{first}' owns"):
        world.scope(start_date=SETTLED[-1], end_date=LIVE, include_live=True)
    stage_batch(world.work(first), SETTLED)


def test_the_day_after_nobody_else_gets_the_partition_that_a_backfill_will_claim(live_world: World) -> None:
    world = live_world
    scoped = world.scope(include_live=True)
    first, world.run_id = world.id, "run 2"
    with pytest.raises(RangeLocked, match=f"Backfill '{first}' owns"):
        world.scope(partitions=[LIVE], include_live=True)
    world.now = NOON + timedelta(days=1)
    with pytest.raises(RangeLocked, match=f"Backfill '{first}' owns"):
        world.scope(partitions=[LIVE])
    world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    world.ledger.release_live(HOURLY.claim_id)
    world.run_id = "run 1"
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    conclude(world.work())
    world.run_id = "run 2"
    assert world.scope(partitions=[LIVE]).batches


def test_a_run_that_ends_without_a_publish_lets_the_scheduled_pipeline_on_and_another_reads_anew(
    live_world: World,
) -> None:
    world = live_world
    world.prepare(include_live=True, mode="stage")
    with pytest.raises(RangeLocked):
        world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    assert conclude(world.work()).reached(Mode.STAGE)
    world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    append(world, 950_001)
    world.ledger.release_live(HOURLY.claim_id)
    world.publish()
    assert attempts(world) == [1] * len(SETTLED) + [2]
    assert published(world) == right(world)
    assert (950_001, 950_011) in published(world)


def test_a_rejected_live_partition_is_let_go_and_staged_again_when_its_task_is_cleared(live_world: World) -> None:
    world = live_world
    world.spec = make_spec(checks=[{"not_null": {"column": "note"}}])
    world.engine.execute(f"INSERT INTO raw.orders VALUES (950001, DATE '{LIVE}', 950011, NULL, FALSE)")
    world.engine.execute(f"INSERT INTO analytics.orders VALUES (950001, DATE '{LIVE}', 950011, 'live')")
    scoped = world.scope(include_live=True)
    world.stage(scoped)
    with pytest.raises(ValidationFailed):
        world.validate(scoped)
    assert conclude(world.work()).counts["rejected"] == 1
    world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    world.engine.execute("UPDATE raw.orders SET note = 'live' WHERE order_id = 950001")
    append(world, 950_002)
    world.ledger.release_live(HOURLY.claim_id)
    validate_range(world.work())
    world.publish()
    assert published(world) == right(world)
    assert attempts(world) == [1] * len(SETTLED) + [2]


def test_a_backfill_that_waits_for_others_lets_the_live_partition_go_meanwhile(live_world: World) -> None:
    world = live_world
    scoped = world.scope(include_live=True)
    world.stage(scoped)
    validate_batch(world.work(), SETTLED)

    def the_pipeline_lags() -> None:
        if world.ledger.holds_range(world.id, [LIVE_DAY]):
            raise Throttled("it waits for the partition, and is waited for", NOON)

    def go_on_beside(order: int) -> None:
        world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
        append(world, order)
        world.ledger.release_live(HOURLY.claim_id)

    def waiting() -> Work:
        return replace(world.work(), check_throttle=the_pipeline_lags)

    with pytest.raises(Throttled):  # while it is staged
        validate_range(waiting())
    go_on_beside(950_001)
    validate_range(world.work())
    with pytest.raises(Throttled):
        publish(waiting())
    assert world.ledger.holds_range(world.id, [Window(DAY_ONE, LIVE_DAY.start)])
    go_on_beside(950_002)
    world.publish()
    assert published(world) == right(world)
    assert {(950_001, 950_011), (950_002, 950_012)} <= set(published(world))


@pytest.mark.parametrize("step", ["its scope is cleared", "it is claimed"])
def test_a_plan_from_before_reservations_gets_its_own_by_the_next_step(live_world: World, step: str) -> None:
    world = live_world
    scoped = world.scope(include_live=True)
    with world.ledger._engine.write() as connection:
        connection.execute(delete(RangeLockRow).where(RangeLockRow.reserved.is_(True)))
    if step == "its scope is cleared":
        world.scope(include_live=True)
    else:
        world.stage(scoped)
        world.validate(scoped)
        world.work().let_live_go()
    world.ledger.claim_live(HOURLY, "analytics.orders", [LIVE_DAY])
    world.ledger.release_live(HOURLY.claim_id)
    first, world.run_id = world.id, "run 2"
    with pytest.raises(RangeLocked, match=f"Backfill '{first}' owns"):
        world.scope(partitions=[LIVE], include_live=True)


def test_with_a_cutoff_the_live_partition_takes_in_what_arrived_until_it_was_claimed(live_world: World) -> None:
    world = live_world
    world.engine.execute(
        "ALTER TABLE raw.orders ADD COLUMN ingested_at TIMESTAMP DEFAULT TIMESTAMP '2024-03-10 11:00:00'"
    )
    world.spec = make_spec(
        source={"table": "raw.orders", "partition_by": "order_date", "cutoff": {"column": "ingested_at"}}
    )
    scoped = world.scope(include_live=True)
    arrived = "FALSE, TIMESTAMP '2024-03-10 12:30:00'"
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES (950001, DATE '{LIVE}', 950011, 'live', {arrived}), (950002, DATE '{SETTLED[0]}', 1, 'late', {arrived})",
        f"INSERT INTO analytics.orders VALUES (950001, DATE '{LIVE}', 950011, 'live')",
    )
    world.stage(scoped)
    world.now = NOON + timedelta(hours=1)
    world.validate(scoped)
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES (950003, DATE '{LIVE}', 1, 'live', FALSE, TIMESTAMP '2024-03-10 13:30:00')"
    )
    world.publish()
    assert [order for order, _ in published(world) if order > 950_000] == [950_001]
    assert 950_002 not in world.amounts(SETTLED[0])
