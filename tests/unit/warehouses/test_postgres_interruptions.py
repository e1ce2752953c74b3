"""A statement that runs: cancelled, cut off, out of time; and connections that are lost. What is ended between statements
is in the contract suite."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from postgres_shop import (
    RANGE,
    Shop,
    beside,
    clean_server,
    pytestmark,
    transaction,
)
from stage_writing import write_one

from airflow_backfill_provider.demo.local_postgres import LocalPostgres
from airflow_backfill_provider.errors import ConnectionLost, WarehouseError
from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse
from airflow_backfill_provider.warehouses.postgres.session import Session

__all__ = ["clean_server", "pytestmark"]


def _terminate(shop: Shop, session: Session) -> None:
    shop.database.execute(f"SELECT pg_terminate_backend({session._connection.info.backend_pid}, 5000)")


def _reset(shop: Shop, session: Session) -> None:
    with socket.socket(fileno=os.dup(session._connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("end", ["cancel", "terminate", "timeout"])
def test_a_statement_that_runs_is_ended_on_the_server_too(end: str) -> None:
    timeout = timedelta(seconds=0.5) if end == "timeout" else None
    shop = Shop.create(statement_timeout=timeout)
    slow = "SELECT id, day, amount, note FROM analytics.orders, pg_sleep(30) WHERE day = DATE '2024-01-02'"

    def stage() -> None:
        with shop.warehouse.open_stage(shop.target, "b1", "slow") as stage:
            write_one(stage, RANGE[0], slow)

    with beside(stage) as outcome:
        while not (
            running := shop.database.rows("SELECT pid FROM pg_stat_activity WHERE query ~ '^WITH landed.*pg_sleep'")
        ):
            time.sleep(0.02)
        if end == "cancel":
            shop.warehouse.cancel()
        elif end == "terminate":
            shop.database.execute(f"SELECT pg_terminate_backend({running[0][0]})")

    (error,) = outcome
    assert type(error) is (ConnectionLost if end == "terminate" else WarehouseError)
    assert {"cancel": "was cancelled", "terminate": "lost", "timeout": "statement_timeout"}[end] in str(error)
    assert shop.database.running() == []
    assert shop.warehouse.storage() == ()


class TimeIsUpError(BaseException):
    """As a task's own alarm raises it, out of a signal handler, in the middle of whatever runs."""


def test_an_alarm_in_the_middle_of_a_statement_ends_it_on_the_server_and_is_what_is_raised() -> None:
    shop = Shop.create()

    def alarm(*_: Any) -> None:
        raise TimeIsUpError

    slow = "SELECT id, day, amount, note FROM analytics.orders, pg_sleep(30) WHERE day = DATE '2024-01-02'"
    before = signal.signal(signal.SIGALRM, alarm)
    started = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(TimeIsUpError), shop.warehouse.open_stage(shop.target, "b1", "slow") as stage:
            write_one(stage, RANGE[0], slow)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert time.monotonic() - started < 15
    assert shop.database.running() == []
    assert shop.warehouse.storage() == ()
    assert shop.stage(*RANGE).partitions[0].fingerprint.rows == 10


def test_a_cancel_from_a_signal_handler_of_the_waiting_thread_ends_the_call() -> None:
    shop = Shop.create()
    before = signal.signal(signal.SIGALRM, lambda *_: shop.warehouse.cancel())
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    slow = "SELECT id, day, amount, note FROM analytics.orders, pg_sleep(30) WHERE day = DATE '2024-01-02'"
    try:
        with pytest.raises(WarehouseError, match="was cancelled"):
            with shop.warehouse.open_stage(shop.target, "b1", "slow") as stage:
                write_one(stage, RANGE[0], slow)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert shop.database.running() == []
    assert shop.warehouse.storage() == ()


def test_a_publish_that_waits_for_its_lock_is_cancelled_at_once() -> None:
    shop = Shop.create()
    publication = shop.publication(shop.stage(*RANGE))
    with transaction(shop.database, "LOCK TABLE analytics.orders IN SHARE MODE"):
        with beside(lambda: shop.warehouse.replace_partitions(shop.target, publication)) as outcome:
            while not shop.database.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
                time.sleep(0.02)
            started = time.monotonic()
            shop.warehouse.cancel()
        took = time.monotonic() - started

    assert "was cancelled" in str(outcome[0])
    assert took < 3


def test_a_connection_that_was_closed_while_idle_is_replaced_without_an_error() -> None:
    shop = Shop.create()
    shop.database.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'backfill' "
        "AND datname = current_database()"
    )

    assert shop.fingerprint(*RANGE)["2024-01-02"].rows == 10


def test_a_server_that_cannot_be_reached_is_a_lost_connection() -> None:
    shop = Shop.create()
    warehouse = shop.database.warehouse(login={"port": 1})

    with pytest.raises(ConnectionLost):
        warehouse.receipts(shop.target)


@pytest.mark.parametrize(
    ("login", "named"),
    [
        ({"password": "wrong"}, 'password authentication failed for user "postgres"'),
        ({"password": ""}, "no password supplied"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "nobody"}, 'password authentication failed for user "nobody"'),
    ],
)
def test_a_server_that_lets_nobody_in_by_this_login_is_no_lost_connection(
    guarded: LocalPostgres, login: dict[str, str], named: str
) -> None:
    right = {"host": "127.0.0.1", "port": guarded.port, "user": guarded.user, "password": guarded.password}
    warehouse = PostgresWarehouse(lambda: psycopg.connect(**{**right, "dbname": "postgres", **login}))

    with pytest.raises(WarehouseError, match=named) as refused:
        _ = warehouse.capabilities

    assert type(refused.value) is WarehouseError
    assert "Airflow connection" in str(refused.value)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """A server that asks for a password."""
    server = LocalPostgres(tmp_path_factory.mktemp("guarded") / "record.json", settings={"fsync": "off"})
    server.create()
    server.start()
    yield server
    server.remove()


def test_a_writer_that_was_cut_off_cannot_write_into_the_stage_of_the_next_attempt() -> None:
    shop = Shop.create()
    with shop.warehouse.open_stage(shop.target, "b1", "batch-1") as late:
        write_one(
            late, RANGE[0], "SELECT id, day, amount + 1 AS amount, note FROM analytics.orders WHERE day = '2024-01-02'"
        )
        again = shop.stage(*RANGE)
        write_one(
            late, RANGE[0], "SELECT id, day, amount + 9 AS amount, note FROM analytics.orders WHERE day = '2024-01-02'"
        )

    assert shop.warehouse.fingerprint(shop.target, again, RANGE) == {
        entry.partition.key: entry.fingerprint for entry in again.partitions
    }


@pytest.mark.parametrize("way", [_terminate, _reset])
def test_a_connection_that_is_lost_while_the_server_describes_a_statement_is_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch, way: Callable[[Shop, Session], None]
) -> None:
    shop = Shop.create()
    original = Session.columns

    def columns(session: Session, select: str) -> Any:
        way(shop, session)
        return original(session, select)

    monkeypatch.setattr(Session, "columns", columns)
    with pytest.raises(ConnectionLost):
        shop.warehouse.select_columns("SELECT 1 AS a")


def test_only_what_the_server_did_not_answer_is_a_lost_connection() -> None:
    shop = Shop.create()
    with pytest.raises(WarehouseError) as failed, shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        write_one(stage, RANGE[0], "SELECT 1/0 AS id, DATE '2024-01-02' AS day, 1 AS amount, '' AS note")

    assert type(failed.value) is WarehouseError
    assert isinstance(failed.value.__cause__, psycopg.Error)
