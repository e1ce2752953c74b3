"""The whole life of a backfill of Delta tables in S3, as a simulator of it answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from deltalake import write_deltalake
from ledger_file import new_ledger
from object_store import DeltaInObjectStorage, simulator
from steps_world import DAYS, World, fill

from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with simulator() as address:
        yield address


@pytest.fixture
def engine(address: str, tmp_path: Path) -> DeltaInObjectStorage:
    return DeltaInObjectStorage(address, tmp_path.name)


@pytest.fixture
def world(engine: DeltaInObjectStorage, tmp_path: Path) -> Iterator[World]:
    with Ledger(new_ledger(tmp_path)) as ledger:
        warehouse = engine.create(tmp_path)
        fill(engine)
        yield World(engine, warehouse, ledger)
        warehouse.close()


def test_it_is_tried_published_and_undone_as_on_a_disk(engine: DeltaInObjectStorage, world: World) -> None:
    old = world.published()
    scoped = world.scope()
    world.try_one()
    world.stage(scoped)
    world.validate(scoped)

    published = world.publish()

    assert (published.deleted, published.inserted) == (60, 60)
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    assert len([row for row in world.published() if row[2] is None]) == len(DAYS)
    assert {item.kind for item in world.warehouse.storage()} == {"stage", "backup"}

    undone = world.rollback()

    assert (undone.deleted, undone.inserted) == (60, 60)
    assert world.published() == old
    for item in world.warehouse.storage():
        world.warehouse.drop(item.location)
    assert engine.files("_safe_backfill") == []


def test_a_live_writer_beside_the_publish_loses_no_row_and_stops_nothing(
    engine: DeltaInObjectStorage, world: World
) -> None:
    world.prepare()
    late = duckdb.sql("SELECT 9100 AS order_id, DATE '2024-03-11' AS order_date, 1 AS amount, 'live' AS note")
    rows = late.to_arrow_table()

    def append() -> None:
        for _ in range(8):
            write_deltalake(f"{engine.uri}/analytics/orders", rows, mode="append", storage_options=engine.options)

    with ThreadPoolExecutor(1) as live:
        appended = live.submit(append)
        published = world.publish()
        appended.result()

    assert (published.deleted, published.inserted) == (60, 60)
    found = world.published()
    assert len([row for row in found if row[0] == 9100]) == 8
    assert len([row for row in found if row[2] is None]) == len(DAYS)
