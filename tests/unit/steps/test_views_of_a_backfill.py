"""``publish.mechanism: view_swap``: a whole backfill behind a view, its ways back, and SIGKILL anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from contract_engines import DuckDB
from contract_faults import InterruptedDuckDB
from killed_step import SAMPLED, SWAPPED, Place, killed
from ledger_file import new_ledger
from pydantic import ValidationError
from steps_world import DAYS, World, fill_behind_view, make_spec

from airflow_backfill_provider.errors import PublishRefused, SpecError, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.warehouses.base import Action

FIRST = "analytics.orders__v1"
SOME = {"start_date": DAYS[0], "end_date": DAYS[2]}
OTHERS = {"start_date": DAYS[4], "end_date": DAYS[6]}


@pytest.fixture
def viewed(tmp_path: Path) -> Iterator[World]:
    """The published orders behind a view, and a spec that swaps it."""
    engine = DuckDB()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill_behind_view(engine)
        yield World(engine, warehouse, ledger, make_spec(**SWAPPED))
    warehouse.close()


def shown(world: World) -> str:
    """The table that the view shows."""
    version = world.warehouse.describe("analytics.orders", "order_date", ["order_id"]).version
    assert version is not None
    return version.table


def versions(world: World) -> list[str]:
    return [item.location for item in world.warehouse.storage() if item.kind == "version"]


def actions(world: World) -> list[Action]:
    return [receipt.action for receipt in world.warehouse.receipts(world.work().stored_plan().target)]


def corrected(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[2] is None]


def test_a_backfill_behind_a_view_shows_a_new_version_once_and_points_back_once(viewed: World) -> None:
    before, outside = viewed.published(), viewed.outside()

    assert viewed.run().backfill.state is BackfillState.COMPLETED

    assert len(corrected(viewed.published())) == len(DAYS)
    assert viewed.outside() == outside
    assert shown(viewed) == f"analytics.orders__{viewed.id}"
    assert viewed.publish().note == "published before; nothing to publish"
    assert versions(viewed) == ['version:"analytics"."orders__v1"']

    result = viewed.rollback()

    assert (result.restored, result.partitions, result.note) == (True, 10, "restored in one commit")
    assert (shown(viewed), viewed.published()) == (FIRST, before)
    assert not viewed.rollback().restored
    assert actions(viewed) == [Action.PUBLISH, Action.ROLLBACK]
    assert versions(viewed) == [f'version:"analytics"."orders__{viewed.id}"']


def test_a_range_that_holds_the_staged_rows_already_makes_no_version(viewed: World) -> None:
    viewed.run()
    viewed.run_id = "run 2"
    assert viewed.run().backfill.state is BackfillState.COMPLETED
    assert "nothing to publish" in viewed.publish().note
    assert len(versions(viewed)) == 1


def test_the_plan_says_that_the_whole_table_is_written_and_what_stays_behind(viewed: World) -> None:
    viewed.engine.execute(f"CREATE VIEW analytics.recent AS SELECT * FROM {FIRST} WHERE order_id > 5")
    ((rows,),) = viewed.engine.rows(f"SELECT count(*) FROM {FIRST}")

    text = preview(viewed.scope(**SOME, mode="plan").plan)

    assert f"view        shows {FIRST}; all of its {rows} rows" in text
    assert f"another {rows} rows: the whole table again" in text
    assert f"costs the whole table, not the range: {FIRST} has {rows} rows" in text
    assert f"A pipeline that writes {FIRST} by name" in text
    assert f"The view analytics.recent reads {FIRST} by name" in text
    assert "points the view back to the version before" in text
    assert "mechanism   view_swap: the whole range in one commit" in text


def test_a_table_is_not_planned_for_a_swap_nor_a_view_for_anything_else(viewed: World) -> None:
    for mechanism in ("replace_partitions", "merge"):
        viewed.spec = make_spec(publish={"mechanism": mechanism})
        with pytest.raises(SpecError, match=rf"analytics\.orders is a view of {FIRST}.*{FIRST}, or use view_swap"):
            viewed.scope()
    viewed.spec = make_spec(**SWAPPED)
    viewed.engine.execute("DROP VIEW analytics.orders", f"CREATE TABLE analytics.orders AS SELECT * FROM {FIRST}")
    with pytest.raises(SpecError, match=r"analytics\.orders is a table, and publish\.mechanism view_swap needs a view"):
        viewed.scope()


@pytest.mark.parametrize(
    ("publish", "told"),
    [
        ({"unit": "month"}, "unit month would build the whole table anew for each month"),
        ({"keep_unmatched": True}, "keep_unmatched needs mechanism merge"),
    ],
)
def test_what_a_swap_cannot_do_is_refused_with_the_spec(publish: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        make_spec(publish={"mechanism": "view_swap"} | publish)


def test_a_range_that_moved_is_refused_and_a_rebase_converges(viewed: World) -> None:
    viewed.prepare()
    viewed.engine.execute(f"UPDATE {FIRST} SET note = 'moved' WHERE order_id = 201")

    with pytest.raises(TargetMoved, match=DAYS[2]):
        viewed.publish()
    assert shown(viewed) == FIRST

    scoped = viewed.scope(rebase=True)
    viewed.stage(scoped)
    viewed.validate(scoped)
    assert viewed.publish().published
    assert len(corrected(viewed.published())) == len(DAYS)


def test_two_ranges_planned_on_one_version_are_both_published(viewed: World) -> None:
    viewed.prepare(**SOME)
    first = viewed.id
    viewed.run_id = "run 2"
    viewed.prepare(**OTHERS)

    viewed.publish()
    viewed.publish(first)

    assert len(corrected(viewed.published())) == 6
    assert shown(viewed) == f"analytics.orders__{first}"


def test_a_rollback_is_refused_after_a_newer_version_and_goes_on_once_that_is_undone(viewed: World) -> None:
    before = viewed.published()
    viewed.run(**SOME)
    first = viewed.id
    viewed.run_id = "run 2"
    viewed.run(**OTHERS)
    both = viewed.published()

    with pytest.raises(PublishRefused, match=f"Backfill {viewed.id} published a newer version"):
        viewed.rollback(first)
    assert viewed.published() == both
    with pytest.raises(PublishRefused, match="newer version"):
        viewed.rollback(first, force=True)

    viewed.rollback()
    viewed.rollback(first)
    assert viewed.published() == before
    assert shown(viewed) == FIRST


def test_rows_written_outside_the_range_since_survive_the_rollback(viewed: World) -> None:
    before = viewed.published()
    viewed.run()
    viewed.engine.execute(f"INSERT INTO {shown(viewed)} VALUES (9100, DATE '2024-05-01', 7, 'live')")

    assert viewed.rollback().restored

    assert len(viewed.published()) == len(before) + 1
    assert [row for row in viewed.published() if row[0] != 9100] == before


def test_a_forced_rollback_points_back_over_a_change_in_the_range_and_keeps_a_copy(viewed: World) -> None:
    before = viewed.published()
    viewed.run()
    viewed.engine.execute(f"UPDATE {shown(viewed)} SET note = 'since' WHERE order_id = 201")
    with pytest.raises(TargetMoved, match=DAYS[2]):
        viewed.rollback()

    assert viewed.rollback(force=True).restored

    assert (shown(viewed), viewed.published()) == (FIRST, before)
    assert [item.kind for item in viewed.warehouse.storage()].count("backup") == 2


def test_the_view_shows_again_what_a_forced_rollback_overwrote(viewed: World) -> None:
    viewed.run()
    viewed.engine.execute(f"UPDATE {shown(viewed)} SET note = 'since' WHERE order_id = 201")
    since, version = viewed.published(), shown(viewed)
    viewed.rollback(force=True)

    assert viewed.restore_overwritten().restored

    assert (shown(viewed), viewed.published()) == (version, since)
    assert actions(viewed) == [Action.PUBLISH, Action.ROLLBACK, Action.RESTORE]


def test_a_rollback_works_after_the_old_version_expired(viewed: World) -> None:
    before = viewed.published()
    viewed.run()
    for location in versions(viewed):
        viewed.warehouse.drop(location)

    assert viewed.rollback().restored

    assert viewed.published() == before
    assert versions(viewed) == []


def test_readers_of_the_view_see_all_of_the_old_rows_or_all_of_the_new_ones(viewed: World) -> None:
    viewed.prepare()
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        with duckdb.connect(str(viewed.engine.path)) as connection:  # type: ignore[attr-defined]
            while not stop.is_set():
                rows = connection.execute("SELECT count(*) FROM analytics.orders WHERE amount IS NULL").fetchall()
                seen.append(rows[0][0])

    def read_on() -> None:
        count = len(seen)
        while len(seen) < count + 2:
            time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    read_on()
    viewed.publish()
    read_on()
    published = seen[-1]
    viewed.rollback()
    read_on()
    stop.set()
    reader.join()

    assert set(seen) == {0, len(DAYS)}
    assert (seen[0], published, seen[-1]) == (0, len(DAYS), 0)


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Place]:
    """Everything validated and nothing published."""
    place = Place.create(InterruptedDuckDB(), tmp_path, fill_behind_view, **SWAPPED)
    world = place.open()
    world.prepare()
    world.ledger.close()
    yield place
    place.close()


@pytest.mark.timeout(600)
def test_a_swap_killed_before_any_write_leaves_old_or_new_and_converges(prepared: Place) -> None:
    world = prepared.open()
    old, outside = world.published(), world.outside()
    world.ledger.close()
    seen = []
    # What a statement that only reads finds is what the next write finds, and behind a view there are many of them.
    for world in killed(prepared, "publish", every=SAMPLED, spared="SELECT"):
        left = world.published()
        assert left == old or len(corrected(left)) == len(DAYS), f"a mixture after kill {len(seen)}"
        assert world.outside() == outside
        assert len(versions(world)) == (left != old), "a version that no receipt tells of"
        seen.append("old" if left == old else "new")
        scoped = world.scope()
        world.stage(scoped)
        world.validate(scoped)
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED, len(seen)
        assert len(corrected(world.published())) == len(DAYS)
        assert world.outside() == outside
        assert actions(world) == [Action.PUBLISH]
        assert set(world.ledger.counts(world.id)) == {PartitionState.PUBLISHED}
    assert len(seen) > 6
    assert set(seen) == {"old", "new"}


@pytest.mark.timeout(600)
def test_a_rollback_of_a_swap_killed_before_any_statement_leaves_old_or_new_and_converges(prepared: Place) -> None:
    world = prepared.open()
    old = world.published()
    world.publish()
    conclude(world.work())
    new = world.published()
    world.ledger.close()
    seen = []
    for world in killed(prepared, "rollback", every=SAMPLED):
        left = world.published()
        assert left in (old, new), f"a mixture after kill {len(seen)}"
        assert (shown(world) == FIRST) == (left == old)
        seen.append("old" if left == old else "new")
        world.rollback()
        assert (shown(world), world.published()) == (FIRST, old)
        assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK
        assert not world.rollback().restored
    assert len(seen) > 6
    assert set(seen) == {"old", "new"}


def test_the_trial_swaps_a_view_of_its_own_and_back(viewed: World) -> None:
    scoped, tables, before = viewed.scope(**SOME), viewed.engine.tables(), viewed.published()
    assert viewed.try_one().tried
    assert (viewed.engine.tables(), viewed.published(), shown(viewed)) == (tables, before, FIRST)
    assert versions(viewed) == []
    viewed.stage(scoped)
    viewed.validate(scoped)
    assert viewed.publish().published
