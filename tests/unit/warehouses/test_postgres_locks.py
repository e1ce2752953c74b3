"""A lock that cannot be had: how long it is waited for, who is named, who is held meanwhile, and what is left behind."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from postgres_shop import (
    AMOUNTS,
    RANGE,
    SHORT,
    Shop,
    after,
    beside,
    clean_server,
    pytestmark,
    raised,
    transaction,
)
from stage_writing import write_one

from airflow_backfill_provider.errors import BackfillError, LockTimeout
from airflow_backfill_provider.warehouses.base import Published

__all__ = ["clean_server", "pytestmark"]

APPEND = "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-09', 5, 'beside')"
ROW_LOCK = "SELECT * FROM analytics.orders WHERE id = 25 FOR UPDATE"
SETTINGS = (
    "TimeZone",
    "DateStyle",
    "IntervalStyle",
    "standard_conforming_strings",
    "statement_timeout",
    "lock_timeout",
    "search_path",
    "work_mem",
    "transaction_isolation",
    "transaction_read_only",
    "session_replication_role",
)


@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
@pytest.mark.parametrize("hold", [APPEND, ROW_LOCK, "LOCK TABLE analytics.orders IN ACCESS EXCLUSIVE MODE"])
def test_a_lock_that_cannot_be_had_is_refused_in_time_naming_the_process_and_works_later(
    hold: str, mechanism: str
) -> None:
    shop = Shop.create(lock_timeout=timedelta(seconds=2))
    staged = shop.stage(*RANGE)
    publication = shop.publication(staged)
    old = shop.amounts()
    publish = getattr(shop.warehouse, mechanism)

    with transaction(shop.database, hold, application_name="nightly load") as holder:
        holding = f"Process {holder.info.backend_pid} of {holder.info.user} (nightly load) holds it"
        started = time.monotonic()
        with pytest.raises(LockTimeout) as refused:
            publish(shop.target, publication)
        took = time.monotonic() - started

    assert 1.5 < took < 3.0
    for part in (holding, hold[:25], "in 3 attempts"):
        assert part in str(refused.value)
    for value in ("2024-01-09", "beside"):
        assert value not in str(refused.value)
    assert shop.amounts() == old
    assert shop.warehouse.receipts(shop.target) == ()
    assert shop.warehouse.fingerprint(shop.target, staged, RANGE) == publication.after
    assert publish(shop.target, publication).inserted == 30
    assert shop.amounts() == raised(old)


def test_a_transaction_prepared_for_a_commit_in_two_phases_is_named() -> None:
    shop = Shop.create(lock_timeout=timedelta(seconds=1))
    publication = shop.publication(shop.stage(*RANGE))
    with shop.database.connect() as connection:
        connection.execute(APPEND)
        connection.execute("PREPARE TRANSACTION 'half done'")

    try:
        with pytest.raises(LockTimeout, match="prepared as 'half done'"):
            shop.warehouse.replace_partitions(shop.target, publication)
    finally:
        shop.database.execute("ROLLBACK PREPARED 'half done'")


def test_a_role_that_may_not_see_others_statements_still_names_the_process() -> None:
    shop = Shop.create(lock_timeout=timedelta(seconds=1))
    role = shop.database.role("loader")
    shop.database.execute(
        f"GRANT CREATE ON DATABASE {shop.database.name} TO {role}",
        f"GRANT USAGE ON SCHEMA analytics TO {role}",
        f"GRANT ALL ON analytics.orders TO {role}",
    )
    poor = Shop.open(shop.database, login={"user": role}, lock_timeout=timedelta(seconds=1))
    publication = poor.publication(poor.stage(*RANGE))

    with transaction(shop.database, APPEND) as holder:
        holding = f"Process {holder.info.backend_pid} of {holder.info.user} holds it"
        with pytest.raises(LockTimeout) as refused:
            poor.warehouse.replace_partitions(poor.target, publication)

    assert holding in str(refused.value)
    assert "None" not in str(refused.value)


def test_nobody_else_is_held_for_longer_than_one_attempt_and_readers_not_at_all() -> None:
    shop = Shop.create(lock_timeout=timedelta(seconds=3))
    publication = shop.publication(shop.stage(*RANGE))
    reads: list[float] = []
    writes: list[float] = []
    stop = threading.Event()

    def often(sql: str, took: list[float]) -> None:
        with shop.database.connect(autocommit=True) as connection:
            while not stop.is_set():
                started = time.monotonic()
                connection.execute(sql)
                took.append(time.monotonic() - started)
                time.sleep(0.01)

    with transaction(shop.database, APPEND):
        with beside(lambda: often(AMOUNTS, reads)), beside(lambda: often(APPEND, writes)):
            with pytest.raises(LockTimeout):
                shop.warehouse.replace_partitions(shop.target, publication)
            stop.set()

    assert len(reads) > 20
    assert max(reads) < 0.5
    assert max(writes) < 1.5, "one attempt of three waits for 0.9 seconds"
    assert len([took for took in writes if took > 0.5]) == 3, "writers get their turn between attempts"
    assert len(writes) > 3


def test_a_reader_is_not_held_while_the_publish_has_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create()
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    seen: list[Any] = []

    def read() -> None:
        with shop.database.connect(autocommit=True) as connection:
            connection.execute("SET lock_timeout = 1")
            seen.append(connection.execute(AMOUNTS).fetchall())

    for step in ("lock_alone", "delete", "insert", "write"):
        after(step, read, monkeypatch)
    shop.warehouse.replace_partitions(shop.target, publication)

    assert seen == [old] * 4


def test_a_table_that_somebody_alters_holds_up_no_call_for_longer_than_the_lock_timeout() -> None:
    shop = Shop.create(lock_timeout=SHORT)
    staged = shop.stage(*RANGE)
    with transaction(shop.database, "LOCK TABLE analytics.orders IN ACCESS EXCLUSIVE MODE"):
        for call in (
            lambda: shop.stage(*RANGE),
            lambda: shop.fingerprint(*RANGE),
            lambda: shop.warehouse.back_up(shop.target, "b1", RANGE, label="x"),
            lambda: shop.warehouse.compare(shop.target, Published(), staged, RANGE),
            lambda: shop.warehouse.select_columns("SELECT * FROM analytics.orders"),
        ):
            started = time.monotonic()
            with pytest.raises(LockTimeout):
                call()
            assert time.monotonic() - started < 3

    assert {item.location for item in shop.warehouse.storage()} == {staged.partitions[0].location}


def test_no_call_leaves_a_setting_a_statement_a_lock_or_a_temporary_table_in_the_session() -> None:
    shop = Shop.create(key="PRIMARY KEY")
    connections: list[psycopg.Connection[Any]] = []

    def connect() -> psycopg.Connection[Any]:
        connections.append(shop.database.connect())
        connections[-1].execute("SET search_path = analytics; SET work_mem = '5MB'; SET TimeZone = 'Asia/Kolkata'")
        connections[-1].execute("SET statement_timeout = 77000; SET lock_timeout = 66000; SET DateStyle = 'German'")
        connections[-1].execute("SET IntervalStyle = 'iso_8601'; SET standard_conforming_strings = off")
        connections[-1].commit()
        return connections[-1]

    def state(connection: psycopg.Connection[Any]) -> list[Any]:
        connection.autocommit = True
        queries = [
            *(f"SHOW {name}" for name in SETTINGS),
            "SELECT name, statement FROM pg_prepared_statements",
            "SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
            "SELECT relname FROM pg_class WHERE relpersistence = 't'",
            "SELECT name FROM pg_cursors",
        ]
        status = connection.info.transaction_status
        return [status, *(connection.execute(query, prepare=False).fetchall() for query in queries)]

    with connect() as first:
        fresh = state(first)
    warehouse = type(shop.warehouse)(connect, statement_timeout=timedelta(seconds=30))
    shop.database.opened.append(warehouse)
    target = warehouse.describe("orders", "day", ["id"])
    own = Shop(shop.database, warehouse, target)
    calls: list[Any] = [
        lambda: warehouse.select_columns("SELECT 1 AS a"),
        lambda: warehouse.select_columns("SELECT nonsense"),
        lambda: own.stage(*RANGE),
        lambda: _stage(own, "SELECT 1/0"),
        lambda: warehouse.back_up(target, "b1", RANGE, label="x"),
        lambda: warehouse.replace_partitions(target, own.publication(own.stage(*RANGE))),
        lambda: warehouse.merge(target, own.publication(own.stage(*RANGE))),
        lambda: warehouse.replace_partitions(
            target, own.publication(own.stage(*RANGE), before=own.fingerprint(*RANGE[:2]))
        ),
        lambda: warehouse.compare(target, Published(), own.stage(*RANGE), RANGE),
        lambda: warehouse.changed_columns(target, Published(), own.stage(*RANGE), RANGE),
        lambda: warehouse.outside_rows(target),
        lambda: warehouse.key_conflicts(target, own.stage(*RANGE)),
        lambda: warehouse.count_rows(target, own.stage(*RANGE), "SELECT * FROM stage"),
        lambda: warehouse.receipts(target),
        lambda: [warehouse.drop(item.location) for item in warehouse.storage()],
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except BackfillError:
            assert number in (1, 3, 7)
        mine = [connection for connection in connections if not connection.closed]
        assert mine
        assert [state(connection) for connection in mine] == [fresh] * len(mine)
    assert len(connections) <= 3


def _stage(shop: Shop, select: str) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "bad") as stage:
        write_one(stage, RANGE[0], select)
