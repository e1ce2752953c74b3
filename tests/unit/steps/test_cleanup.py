"""What backfills leave aside: dropped on the date that the spec states, never before, and never while it may be needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from contract_engines import ENGINES, Engine, Memory, Postgres
from ledger_file import new_ledger
from sqlalchemy import update
from steps_world import DAYS, World, fill, make_spec

from airflow_backfill_provider.errors import LedgerError, PlanUnreadable, PublishRefused, RequestError, WarehouseError
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.tables import PlanRow
from airflow_backfill_provider.reporting.documents import documents
from airflow_backfill_provider.steps.cleanup import DROPPED_EVENT, DROPPING_EVENT, CleanUp, clean_up
from airflow_backfill_provider.steps.ending import give_up
from airflow_backfill_provider.steps.leftovers import leftovers
from airflow_backfill_provider.steps.report import Summary, conclude, summarise
from airflow_backfill_provider.steps.retention import keep, retention

# Most of it is the ledger's affair, so the quickest engine will do; what each engine drops is asked of each.
on_memory = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
STAGES, BACKUP = timedelta(days=7), timedelta(days=45)
EVER = timedelta(days=10_000)
A_MINUTE = timedelta(minutes=1)


def clean(world: World, after: timedelta, warehouse: Any = None) -> CleanUp:
    """A clean-up that long from now."""
    now = datetime.now(UTC) + after
    return clean_up(world.ledger, warehouse or world.warehouse, "warehouse", now=now, by="cleaner")


def run(world: World) -> Summary:
    """The whole life of a backfill of two days, which is as good as ten here."""
    return world.run(start_date=DAYS[0], end_date=DAYS[1])


def kinds(world: World) -> list[str]:
    return sorted({item.kind for item in world.warehouse.storage()})


class Beside:
    """The warehouse, with something else done just before calls of one name."""

    def __init__(self, warehouse: Any, name: str, before: Callable[..., object]) -> None:
        self._warehouse, self._name, self._before = warehouse, name, before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._warehouse, name)
        if name != self._name:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(*args, **kwargs)
            return found(*args, **kwargs)

        return call


@pytest.mark.parametrize(
    "world", [engine for engine in ENGINES if engine.name != "memory"], indirect=True, ids=lambda engine: engine.name
)
def test_stages_then_the_backup_go_on_their_dates_and_with_it_the_way_back(world: World) -> None:
    run(world)
    published = world.published()

    assert clean(world, STAGES - A_MINUTE).dropped == ()
    assert {one.item.kind for one in clean(world, STAGES + A_MINUTE).dropped} == {"stage"}
    assert clean(world, BACKUP - A_MINUTE).dropped == ()
    assert world.ledger.backfill(world.id).state is BackfillState.COMPLETED
    (backup,) = clean(world, BACKUP + A_MINUTE).dropped

    assert world.warehouse.storage() == ()
    assert world.ledger.backfill(world.id).state is BackfillState.EXPIRED
    assert world.published() == published
    (stages, last) = world.ledger.events(world.id, DROPPED_EVENT)
    assert [item["location"] for item in last.detail["items"]] == [backup.item.location]
    assert {item["kind"] for item in stages.detail["items"]} == {"stage"}
    with pytest.raises(PublishRefused, match=r"way back of backfill .* has ended: its backup was kept for 45d"):
        world.rollback()
    assert world.published() == published


@on_memory
def test_a_rollback_works_up_to_the_last_minute(world: World) -> None:
    before = world.published()
    run(world)
    clean(world, BACKUP - A_MINUTE)

    assert world.rollback().restored

    assert world.published() == before


@on_memory
def test_the_dates_are_the_specs(world: World) -> None:
    world.spec = make_spec(rollback={"keep_for": "2d"}, compute={"conn_id": "warehouse", "keep_stages_for": "3d"})
    run(world)
    clean(world, timedelta(days=2) + A_MINUTE)
    assert kinds(world) == ["stage"]
    clean(world, timedelta(days=3) + A_MINUTE)
    assert kinds(world) == []


@on_memory
def test_what_was_tried_after_the_end_is_refused_in_words_that_help(world: World) -> None:
    run(world)
    clean(world, EVER)

    with pytest.raises(PublishRefused, match="its way back has ended"):
        world.scope()
    with pytest.raises(PublishRefused, match="needs a new backfill"):
        world.publish()
    assert "undo        none any more" in "\n".join(summarise(world.ledger, world.id).lines())
    assert conclude(world.work()).backfill.state is BackfillState.EXPIRED
    page = documents(world.ledger, world.id)["report.html"].decode()
    assert "There is none any more" in page
    assert "every partition of the range holds exactly the rows that were checked" in page
    world.run_id = "run 2"
    assert run(world).backfill.state is BackfillState.COMPLETED


@on_memory
@pytest.mark.parametrize("state", [BackfillState.VALIDATED, BackfillState.HALTED, BackfillState.FAILED])
def test_what_may_go_on_keeps_its_stages_for_ever(world: World, state: BackfillState) -> None:
    world.prepare(start_date=DAYS[0], end_date=DAYS[1])
    world.ledger.move(world.id, state, by="tester")
    stored = world.warehouse.storage()

    assert clean(world, EVER).dropped == ()

    assert world.warehouse.storage() == stored
    (line, *_) = [one.line(datetime.now(UTC)) for one in leftovers(world.ledger, world.warehouse, "warehouse")]
    assert line.endswith(f"needed: it is {state}")
    assert "orders" in line
    assert "for ann" in line
    world.publish()


@on_memory
def test_one_that_was_given_up_keeps_its_stages_for_as_long_as_the_spec_says(world: World) -> None:
    world.prepare(start_date=DAYS[0], end_date=DAYS[1])
    give_up(world.work(), "wrong rule")

    assert clean(world, STAGES - A_MINUTE).dropped == ()
    assert {one.item.kind for one in clean(world, STAGES + A_MINUTE).dropped} == {"stage"}


@on_memory
def test_what_the_ledger_does_not_know_is_listed_and_never_dropped(world: World, tmp_path: Path) -> None:
    run(world)
    with Ledger(f"sqlite:///{tmp_path / 'another.db'}") as ledger:
        ledger.upgrade()
        another = replace(world, ledger=ledger)

        assert clean(another, EVER).dropped == ()

        lines = [one.line(datetime.now(UTC)) for one in leftovers(ledger, world.warehouse, "warehouse")]
        assert len(lines) == len(world.warehouse.storage())
        assert all(f"{world.id}  unknown to this ledger" in line for line in lines)


@on_memory
def test_an_extension_is_recorded_and_kept_to_and_never_shortens(world: World) -> None:
    run(world)
    now = datetime.now(UTC)
    keep(world.ledger, world.id, now + timedelta(days=90), now=now, by="ann", reason="an audit")

    assert clean(world, timedelta(days=89)).dropped == ()
    assert "somebody asked for more than the 45d" in documents(world.ledger, world.id)["report.html"].decode()
    assert world.rollback().restored
    (event,) = world.ledger.events(world.id, "storage.kept")
    assert (event.by, event.detail["reason"]) == ("ann", "an audit")
    with pytest.raises(RequestError, match="never shortened"):
        keep(world.ledger, world.id, now + timedelta(days=60), now=now, by="ann", reason="less")
    with pytest.raises(RequestError, match="is over"):
        keep(world.ledger, world.id, now, now=now, by="ann", reason="none")


@on_memory
def test_an_extension_comes_too_late_once_the_way_back_has_ended(world: World) -> None:
    run(world)
    clean(world, EVER)
    now = datetime.now(UTC)
    with pytest.raises(LedgerError, match="is 'expired' by now"):
        keep(world.ledger, world.id, now + EVER, now=now, by="ann", reason="an audit")


@on_memory
def test_an_extension_while_it_is_cleaned_up_keeps_everything(world: World) -> None:
    run(world)
    now = datetime.now(UTC)

    def extend() -> None:
        keep(world.ledger, world.id, now + EVER + EVER, now=now, by="ann", reason="an audit")

    stored = world.warehouse.storage()
    found = clean_up(world.ledger, world.warehouse, "warehouse", now=now + EVER, by="cleaner", check_stop=extend)
    assert found.dropped == ()
    assert world.warehouse.storage() == stored
    assert world.rollback().restored


@on_memory
def test_a_cleanup_that_is_killed_is_finished_by_the_next_one(world: World) -> None:
    run(world)
    drops: list[str] = []

    def die(location: str) -> None:
        if drops:
            raise KeyboardInterrupt
        drops.append(location)

    with pytest.raises(KeyboardInterrupt):
        clean(world, EVER, Beside(world.warehouse, "drop", die))

    left = {item.location for item in world.warehouse.storage()}
    assert left
    (announced,) = world.ledger.events(world.id, DROPPING_EVENT)
    assert {item["location"] for item in announced.detail["items"]} == left | set(drops)
    assert world.ledger.backfill(world.id).state is BackfillState.EXPIRED
    with pytest.raises(PublishRefused, match="has ended"):
        world.rollback()
    assert {one.item.location for one in clean(world, EVER).dropped} == left
    assert world.warehouse.storage() == ()


@on_memory
def test_a_second_cleanup_finds_nothing_and_records_nothing(world: World) -> None:
    run(world)
    clean(world, EVER)
    events = world.ledger.events(world.id)

    assert clean(world, EVER) == CleanUp()

    assert world.ledger.events(world.id) == events


@on_memory
def test_of_two_cleanups_at_once_one_decides(world: World) -> None:
    run(world)
    inner: list[CleanUp] = []
    count = len(world.warehouse.storage())

    def beside(*_: Any) -> None:
        inner.append(clean(world, EVER))

    outer = clean_up(
        world.ledger, world.warehouse, "warehouse", now=datetime.now(UTC) + EVER, by="cleaner", check_stop=beside
    )
    assert [len(one.dropped) for one in inner] == [count]
    assert outer.dropped == ()
    assert len(world.ledger.events(world.id, DROPPED_EVENT)) == 1


@on_memory
def test_one_thing_that_cannot_be_dropped_does_not_keep_the_others(world: World) -> None:
    run(world)
    backup = world.ledger.backfill(world.id).backup_location

    def refuse(location: str) -> None:
        if location == backup:
            raise WarehouseError("somebody reads it")

    done = clean(world, EVER, Beside(world.warehouse, "drop", refuse))

    assert kinds(world) == ["backup"]
    assert done.failed == (f"{backup} of backfill {world.id} was not dropped: somebody reads it",)
    assert [one.item.kind for one in clean(world, EVER).dropped] == ["backup"]


@on_memory
def test_a_cleanup_during_a_publish_drops_nothing(world: World) -> None:
    world.prepare(start_date=DAYS[0], end_date=DAYS[1])
    plain, found = world.warehouse, []
    world.warehouse = Beside(plain, "replace_partitions", lambda *_: found.append(clean(world, EVER, plain)))
    world.publish()
    assert [one.dropped for one in found] == [()]
    world.warehouse = plain
    assert world.rollback().restored


@on_memory
def test_a_cleanup_during_a_rollback_drops_nothing(world: World) -> None:
    before = world.published()
    run(world)
    plain, found = world.warehouse, []
    world.warehouse = Beside(plain, "replace_partitions", lambda *_: found.append(clean(world, EVER, plain)))

    assert world.rollback().restored

    assert [one.dropped for one in found] == [()]
    assert world.published() == before
    assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK


@on_memory
def test_a_rollback_that_was_killed_keeps_the_backup_until_it_is_over(world: World) -> None:
    before = world.published()
    run(world)

    plan = world.work().stored_plan()
    world.ledger.begin_way_back(world.id, [partition.span for partition in plan.partitions], by="killed")
    backfill = world.ledger.backfill(world.id)

    assert clean(world, EVER).dropped == ()
    found = retention(world.ledger, world.id)
    assert found is not None
    assert found.needed_by == "its rollback is under way"
    assert world.ledger.backfill(world.id) == backfill
    assert world.rollback().restored
    assert world.published() == before


@on_memory
def test_a_rollback_that_comes_a_moment_after_the_end_writes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(world)
    published = world.published()
    begin = world.ledger.begin_way_back

    def too_late(*args: Any, **kwargs: Any) -> None:
        clean(world, EVER)
        begin(*args, **kwargs)

    monkeypatch.setattr(world.ledger, "begin_way_back", too_late)
    with pytest.raises(LedgerError, match="has expired, so it claims no range"):
        world.rollback()
    assert world.published() == published


@on_memory
def test_what_a_forced_rollback_overwrote_is_kept_from_the_rollback_on(world: World) -> None:
    run(world)
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-01', 1, 'a fix')")
    world.rollback(force=True)
    clean(world, BACKUP - A_MINUTE)
    assert [item.kind for item in world.warehouse.storage()] == ["backup", "backup"]
    clean(world, BACKUP + A_MINUTE)
    assert world.warehouse.storage() == ()
    assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK


@on_memory
def test_the_shadow_of_a_killed_trial_goes_with_the_stages(world: World) -> None:
    scoped = world.scope(start_date=DAYS[0], end_date=DAYS[1])
    shadow = world.warehouse.open_shadow(scoped.plan.target, world.id, scoped.plan.partitions[:1])
    shadow.__enter__()
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    conclude(world.work())
    assert "shadow" in kinds(world)
    clean(world, STAGES + A_MINUTE)
    assert kinds(world) == ["backup"]


@pytest.fixture
def partitioned(tmp_path: Path) -> Iterator[World]:
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.NEEDS)
    engine: Engine = Postgres()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        engine.execute(
            "ALTER TABLE analytics.orders RENAME TO plain",
            "CREATE TABLE analytics.orders (LIKE analytics.plain) PARTITION BY RANGE (order_date)",
            "CREATE TABLE analytics.march PARTITION OF analytics.orders FOR VALUES FROM ('2024-03-01') TO ('2024-03-11')",
            "CREATE TABLE analytics.rest PARTITION OF analytics.orders DEFAULT",
            "INSERT INTO analytics.orders SELECT * FROM analytics.plain",
        )
        yield World(engine, warehouse, ledger, make_spec(publish={"swap": True, "lock_timeout": "5s"}))
    warehouse.close()


def test_partitions_that_were_exchanged_are_the_backup_and_go_on_its_date(partitioned: World) -> None:
    before = partitioned.published()
    partitioned.run()
    clean(partitioned, BACKUP - A_MINUTE)
    assert kinds(partitioned) == ["backup"]
    assert partitioned.rollback().restored
    assert partitioned.published() == before
    assert kinds(partitioned) == ["spare"]
    clean(partitioned, STAGES + A_MINUTE)
    assert kinds(partitioned) == []
    assert partitioned.published() == before

    partitioned.run_id = "run 2"
    partitioned.run()
    after = partitioned.published()
    clean(partitioned, EVER)
    assert kinds(partitioned) == []
    assert partitioned.published() == after
    assert len([row for row in after if row[2] is None]) == len(DAYS)


@on_memory
def test_a_plan_that_cannot_be_read_keeps_what_is_its_own_and_nothing_else(world: World) -> None:
    run(world)
    unreadable = world.id
    world.run_id = "run 2"
    run(world)
    with world.ledger._engine.write() as connection:
        connection.execute(
            update(PlanRow)
            .where(PlanRow.backfill_id == unreadable)
            .values(document={"backfill_id": unreadable, "of": "another version"})
        )

    done = clean(world, EVER)

    assert {one.item.backfill_id for one in done.dropped} == {world.id}
    left = leftovers(world.ledger, world.warehouse, "warehouse")
    assert {one.item.backfill_id for one in left} == {unreadable}
    assert all(
        f"The plan of backfill '{unreadable}' in the ledger cannot be read" in one.line(datetime.now(UTC))
        for one in left
    )
    with pytest.raises(PlanUnreadable):
        summarise(world.ledger, unreadable)
