"""Who gets at the DuckDB file among many processes."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from duckdb_shop import SHORT, Shop, day, process
from stage_writing import write_one

from airflow_backfill_provider.errors import LockTimeout, WarehouseError
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.warehouses.duckdb.gate import Gate

STAGER = """
import random
shop = Shop.open(folder)
print('ready', flush=True)
door = shop.warehouse._door
with door.session() as session:
    while True:
        with door.reading(session):
            time.sleep(random.uniform(0.3, 2))
"""
NOBODY_WAITS = timedelta(seconds=30)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.create(tmp_path)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "w.duckdb", tmp_path)


def test_a_live_writer_that_only_retries_gets_in_between_four_stagers(shop: Shop, tmp_path: Path) -> None:
    with ExitStack() as stagers:
        for _ in range(4):
            stagers.enter_context(process(tmp_path, STAGER))
        time.sleep(2)
        started = time.monotonic()
        for _ in range(2):
            while True:
                try:
                    duckdb.connect(str(shop.path)).close()
                    break
                except duckdb.IOException:
                    assert time.monotonic() - started < 30, "the live writer is starved"
                    time.sleep(0.05)
            time.sleep(0.5)


def test_a_publisher_of_ours_gets_in_between_four_stagers(shop: Shop, tmp_path: Path) -> None:
    with ExitStack() as stagers:
        for _ in range(4):
            stagers.enter_context(process(tmp_path, STAGER))
        started = time.monotonic()
        with shop.warehouse._door.publishing():
            assert time.monotonic() - started < 15


def test_a_killed_holder_lets_go(shop: Shop, tmp_path: Path) -> None:
    body = (
        "shop = Shop.open(folder)\nwith shop.warehouse._door.publishing():\n    print('in', flush=True); time.sleep(60)"
    )
    with process(tmp_path, body) as holder:
        holder.kill()
        holder.wait()

        assert shop.warehouse.describe("analytics.orders", "day", ["id"]) == shop.target


def test_readers_share_and_a_writer_is_alone(shop: Shop, tmp_path: Path) -> None:
    body = "shop = Shop.open(folder)\ndoor = shop.warehouse._door\nwith door.session() as s, door.reading(s):\n    print('in', flush=True); time.sleep(60)"
    impatient = DuckDBWarehouse(shop.path, lock_timeout=SHORT)
    with process(tmp_path, body):
        assert impatient.describe("analytics.orders", "day", ["id"]) == shop.target
        with pytest.raises(LockTimeout, match="other backfill tasks"), impatient._door.publishing():
            pass


def test_a_reader_waits_behind_a_waiting_writer(gate: Gate) -> None:
    order: list[str] = []
    other = Gate(Path("another-process"), gate._folder)
    third = Gate(Path("a-third-process"), gate._folder)

    def write() -> None:
        with other.exclusive(NOBODY_WAITS):
            order.append("writer")
            time.sleep(0.1)

    def read() -> None:
        with third.shared(NOBODY_WAITS):
            order.append("reader")

    with gate.shared(NOBODY_WAITS):
        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(0.2)
        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.2)
        assert order == []
    writer.join()
    reader.join()

    assert order == ["writer", "reader"]


def test_threads_of_one_process_hold_the_file_one_at_a_time(gate: Gate) -> None:
    with gate.shared(NOBODY_WAITS), pytest.raises(LockTimeout), Gate(Path(gate._warehouse), gate._folder).shared(SHORT):
        pass


def test_a_reader_alone_never_sleeps(tmp_path: Path) -> None:
    slept: list[float] = []
    gate = Gate(tmp_path / "w.duckdb", tmp_path, pause=slept.append)
    for _ in range(3):
        with gate.shared(NOBODY_WAITS):
            time.sleep(0.01)

    assert slept == []


def test_readers_in_a_row_leave_a_gap_about_every_two_seconds(tmp_path: Path) -> None:
    slept: list[float] = []
    gate = Gate(tmp_path / "w.duckdb", tmp_path, pause=slept.append)
    started = time.monotonic()
    while time.monotonic() - started < 4.5:
        with gate.shared(NOBODY_WAITS):
            time.sleep(0.01)

    assert slept == [0.1, 0.1]


def test_a_cancelled_wait_ends_at_once(shop: Shop, tmp_path: Path) -> None:
    with process(
        tmp_path, "c = duckdb.connect(str(folder / 'shop.duckdb')); print('held', flush=True); time.sleep(60)"
    ):
        threading.Timer(0.5, shop.warehouse.cancel).start()
        started = time.monotonic()
        with pytest.raises(WarehouseError, match="cancelled"):
            shop.warehouse.describe("analytics.orders", "day", ["id"])
        assert time.monotonic() - started < 10


def test_a_cancelled_statement_ends_and_the_next_one_runs(shop: Shop) -> None:
    slow = "SELECT id, day, sum(hash(a.i, b.i)) AS amount, note FROM analytics.orders, range(1000000) a(i), range(1000000) b(i) GROUP BY ALL"
    threading.Timer(1, shop.warehouse.cancel).start()
    with pytest.raises(WarehouseError, match="cancelled"), shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        write_one(stage, day(2), slow)

    assert shop.warehouse.storage() == ()
    assert len(shop.stage(day(2)).partitions) == 1
