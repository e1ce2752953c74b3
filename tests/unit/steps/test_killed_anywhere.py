"""SIGKILL before every single statement: what is left is all old or all new, and running again converges."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from contract_engines import DuckDB
from killed_step import THREE_DAYS, kill
from steps_world import DAYS, World, fill

from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse


def open_world(folder: Path) -> World:
    engine = DuckDB()
    engine.path = folder / "warehouse.duckdb"
    warehouse = DuckDBWarehouse(engine.path, staging_dir=folder / "staging")
    return World(engine, warehouse, Ledger(f"sqlite:///{folder / 'ledger.db'}"))


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A folder with everything validated and nothing published."""
    folder = tmp_path / "prepared"
    folder.mkdir()
    engine = DuckDB()
    warehouse = engine.create(folder)
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        ledger.upgrade()
        fill(engine)
        World(engine, warehouse, ledger).prepare()
    warehouse.close()
    return folder


def copies(prepared: Path) -> list[Path]:
    """A fresh copy of the folder for each kill point."""
    return [prepared.with_name(f"copy {number}") for number in range(200)]


@pytest.mark.timeout(600)
def test_publish_killed_before_any_statement_leaves_old_or_new_and_converges(prepared: Path) -> None:
    world = open_world(prepared)
    old, outside = world.published(), world.outside()
    seen = set()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "publish", survived)
        world = open_world(folder)
        left = world.published()
        new = [row for row in left if row[2] is None]
        assert left == old or len(new) == len(DAYS), f"a mixture after statement {survived}"
        assert world.outside() == outside
        seen.add("old" if left == old else "new")
        scoped = world.scope()
        world.stage(scoped)
        world.validate(scoped)
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED, survived
        assert len([row for row in world.published() if row[2] is None]) == len(DAYS)
        assert world.outside() == outside
        assert len(world.warehouse.receipts(scoped.plan.target)) == 1
        assert set(world.ledger.counts(world.id)) == {PartitionState.PUBLISHED}
        world.ledger.close()
        shutil.rmtree(folder)
        if ended:
            break
    assert ended
    assert survived > 15
    assert seen == {"old", "new"}


@pytest.mark.timeout(600)
def test_rollback_killed_before_any_statement_leaves_old_or_new_and_converges(prepared: Path) -> None:
    world = open_world(prepared)
    old = world.published()
    world.publish()
    conclude(world.work())
    new = world.published()
    world.ledger.close()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "rollback", survived)
        world = open_world(folder)
        assert world.published() in (old, new), f"a mixture after statement {survived}"
        world.rollback()
        assert world.published() == old
        assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK
        assert not world.rollback().restored
        world.ledger.close()
        shutil.rmtree(folder)
        if ended:
            break
    assert ended
    assert survived > 10


@pytest.mark.timeout(600)
def test_staging_killed_before_any_statement_keeps_whole_partitions_and_converges(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    engine = DuckDB()
    engine.create(prepared).close()
    fill(engine)
    with Ledger(f"sqlite:///{prepared / 'ledger.db'}") as ledger:
        ledger.upgrade()
        before = engine.rows("SELECT * FROM analytics.orders ORDER BY ALL")
    most_reused = 0
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "stage", survived)
        world = open_world(folder)
        assert world.engine.rows("SELECT * FROM analytics.orders ORDER BY ALL") == before
        scoped = world.scope(**THREE_DAYS)
        results = world.stage(scoped)
        most_reused = max(most_reused, results[0].reused)
        world.validate(scoped)
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED, survived
        world.ledger.close()
        shutil.rmtree(folder)
        if ended:
            break
    assert ended
    assert most_reused == 3


@pytest.mark.timeout(600)
def test_a_trial_killed_before_any_write_leaves_the_table_alone_and_the_next_one_passes(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    engine = DuckDB()
    engine.create(prepared).close()
    fill(engine)
    with Ledger(f"sqlite:///{prepared / 'ledger.db'}") as ledger:
        ledger.upgrade()
    before = open_world(prepared).published()
    left_behind: set[str] = set()
    for survived, folder in enumerate(copies(prepared)):
        shutil.copytree(prepared, folder)
        ended = kill(folder, "trial", survived)
        world = open_world(folder)
        assert world.published() == before
        left = [item for item in world.warehouse.storage() if item.backfill_id == world.id]
        left_behind |= {item.kind for item in left}
        assert len(left) <= 3, "a stage, a copy and its backup"
        scoped = world.scope(**THREE_DAYS)
        assert world.try_one().tried is not ended, survived
        assert world.published() == before
        assert world.warehouse.receipts(scoped.plan.target) == ()
        for item in left:
            if item.kind == "shadow":
                world.warehouse.drop(item.location)
        assert not [item for item in world.warehouse.storage() if item.kind == "shadow"]
        if not ended:
            world.ledger.close()
            shutil.rmtree(folder)
            continue
        world.stage(scoped)
        world.validate(scoped)
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
        break
    assert ended
    assert survived > 15
    assert left_behind == {"stage", "shadow", "backup"}
