"""One small published table in a PostgreSQL database of its own, and other processes that use it: for the PostgreSQL tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import postgres_server
import psycopg
import pytest
import stage_writing
from stage_writing import write_one

from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Fingerprint,
    Publication,
    Published,
    Staged,
    Target,
)
from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse
from airflow_backfill_provider.warehouses.postgres import adapter as postgres_adapter
from airflow_backfill_provider.warehouses.postgres.replacement import ReadFirst
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.windows import Grain, Partition, partition_at

TABLE = """
CREATE SCHEMA analytics;
CREATE TABLE analytics.orders (id BIGINT {key}, day DATE, amount BIGINT, note VARCHAR);
INSERT INTO analytics.orders
    SELECT i, DATE '2024-01-01' + i / {size}, i, 'n' || i FROM generate_series(0, 10 * {size} - 1) AS t(i);
INSERT INTO analytics.orders VALUES (-1, NULL, 1, 'no day');
"""
OURS = "backfill"
"""The application name of the warehouse's own connections."""
_numbers = count()
_made: list[Database] = []

pytestmark = pytest.mark.skipif(not postgres_server.is_installed(), reason=postgres_server.NEEDS)


@pytest.fixture(autouse=True)
def clean_server() -> Iterator[None]:
    """After each test: every warehouse is closed, and every database is gone."""
    yield
    while _made:
        _made[-1].drop()


def day(number: int) -> Partition:
    return partition_at(date(2024, 1, number), Grain.DAY)


def days(*numbers: int) -> tuple[Partition, ...]:
    return tuple(day(number) for number in numbers)


RANGE = days(2, 3, 4)
AMOUNTS = (
    "SELECT day, count(*), sum(amount)::bigint FROM analytics.orders WHERE day >= DATE '2024-01-02' AND day < DATE '2024-01-05' "
    "GROUP BY day ORDER BY day"
)
OUTSIDE = (
    "SELECT * FROM analytics.orders WHERE day NOT BETWEEN '2024-01-02' AND '2024-01-04' OR day IS NULL ORDER BY id"
)


def corrected(partition: Partition) -> str:
    return f"SELECT id, day, amount + 1 AS amount, note FROM analytics.orders WHERE day = DATE '{partition.key}'"


@dataclass
class Database:
    """A database of its own on the tests' server."""

    name: str = ""
    address: dict[str, Any] = field(default_factory=dict)
    opened: list[PostgresWarehouse] = field(default_factory=list)

    @classmethod
    def create(cls, options: str = "") -> Database:
        url = postgres_server.start()
        name = f"shop_{os.getpid()}_{next(_numbers)}"
        database = cls(name, {"host": url.host, "port": url.port, "user": url.username, "dbname": name})
        with psycopg.connect(**database.address | {"dbname": "postgres"}, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {options}")
        _made.append(database)
        return database

    def drop(self) -> None:
        """Close every warehouse and be gone."""
        _made.remove(self)
        for warehouse in self.opened:
            warehouse.close()
        self.execute(f"DROP DATABASE {self.name} WITH (FORCE)", dbname="postgres")

    def connect(self, **settings: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(**self.address | settings)

    def execute(self, *statements: str, **settings: Any) -> None:
        with self.connect(autocommit=True, **settings) as connection:
            for sql in statements:
                connection.execute(sql)

    def rows(self, sql: str, **settings: Any) -> list[tuple[Any, ...]]:
        with self.connect(autocommit=True, **settings) as connection:
            return list(connection.execute(sql).fetchall())

    def warehouse(self, *, login: dict[str, Any] | None = None, **settings: Any) -> PostgresWarehouse:
        """``login`` changes the address of its connections."""
        address = {"application_name": OURS} | (login or {})
        self.opened.append(PostgresWarehouse(lambda: self.connect(**address), **settings))
        return self.opened[-1]

    def role(self, name: str) -> str:
        """A role that may log in; its name is unlike that of any other test, because roles belong to the whole server."""
        role = f"{name}_{self.name}"
        self.execute(f"CREATE ROLE {role} LOGIN")
        return role

    def running(self) -> list[tuple[Any, ...]]:
        """What the warehouse's connections are doing now, without those that are idle."""
        return self.rows(
            f"SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database() "
            f"AND application_name = '{OURS}' AND state <> 'idle'"
        )


@dataclass
class Shop:
    """A warehouse with ten days of orders; new amounts are old amounts plus one."""

    database: Database
    warehouse: PostgresWarehouse
    target: Target

    @classmethod
    def create(cls, *, key: str = "", size: int = 10, **settings: Any) -> Shop:
        database = Database.create()
        database.execute(TABLE.format(key=key, size=size))
        return cls.open(database, **settings)

    @classmethod
    def open(cls, database: Database, **settings: Any) -> Shop:
        warehouse = database.warehouse(**settings)
        return cls(database, warehouse, warehouse.describe("analytics.orders", "day", ["id"]))

    def stage(self, *partitions: Partition, backfill_id: str = "b1") -> Staged:
        with self.warehouse.open_stage(self.target, backfill_id, "batch-1") as stage:
            return Staged(tuple(write_one(stage, partition, corrected(partition)) for partition in partitions))

    def publication(
        self, rows: Staged | Backup, partitions: tuple[Partition, ...] = RANGE, **changes: Any
    ) -> Publication:
        before = changes.pop("before", None) or self.fingerprint(*partitions)
        after = changes.pop("after", None)
        if after is None and isinstance(rows, Staged):
            after = {entry.partition.key: entry.fingerprint for entry in rows.partitions}
        action = changes.pop("action", Action.PUBLISH)
        return Publication("b1", action, "p1", partitions, rows, before, after or {}, **changes)

    def fingerprint(self, *partitions: Partition) -> dict[str, Fingerprint]:
        return self.warehouse.fingerprint(self.target, Published(), partitions)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.rows(sql)

    def outside(self) -> list[tuple[Any, ...]]:
        return self.rows(OUTSIDE)

    def amounts(self) -> list[tuple[Any, ...]]:
        """What a reader sees of the range: one row for each day."""
        return self.rows(AMOUNTS)


def raised(amounts: list[tuple[Any, ...]], by: int = 1) -> list[tuple[Any, ...]]:
    """The amounts that a reader sees once the range was corrected so often."""
    return [(when, rows, amount + by * rows) for when, rows, amount in amounts]


OWNERS: dict[str, Any] = {
    "lock_alone": postgres_adapter,
    **dict.fromkeys(("refuse_other_columns", "refuse_moved", "delete", "insert", "refuse_changed"), ReadFirst),
    "write": Receipts,
}
"""The steps of a replacement before its commit, in their order, and where each is."""
OWNERS |= {"merge": ReadFirst, "read": ReadFirst}
MERGE_STEPS = ("lock_alone", "refuse_moved", "merge", "refuse_changed", "write")
STEPS = tuple(step for step in OWNERS if step not in ("merge", "read"))


def after(step: str, act: Callable[[], None], monkeypatch: Any) -> None:
    """Let ``act`` happen right after the step."""
    original = getattr(OWNERS[step], step)

    def then_act(*given: Any) -> Any:
        result = original(*given)
        act()
        return result

    monkeypatch.setattr(OWNERS[step], step, then_act)


def before_statement(number: int, act: Callable[[Session], None], monkeypatch: Any) -> list[str]:
    """Let ``act`` happen just before the statement of that number, from 1; returns the statements, as they come."""
    statements: list[str] = []
    original = Session.run

    def run(session: Session, sql: str) -> Any:
        if threading.current_thread() is threading.main_thread():
            statements.append(sql)
            if len(statements) == number:
                act(session)
        return original(session, sql)

    monkeypatch.setattr(Session, "run", run)
    return statements


_PRELUDE = """
import os, sys, time
sys.path[:0] = {paths!r}
from postgres_shop import *
database = Database({name!r}, {address!r})
"""


def script(database: Database, body: str) -> list[str]:
    paths = [str(Path(module).parent) for module in (__file__, stage_writing.__file__)]
    return [sys.executable, "-c", _PRELUDE.format(paths=paths, name=database.name, address=database.address) + body]


def run_process(database: Database, body: str) -> subprocess.CompletedProcess[str]:
    """Run Python with everything of this module in reach, in a process of its own."""
    return subprocess.run(script(database, body), capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def process(database: Database, body: str) -> Iterator[subprocess.Popen[str]]:
    """The same, running beside the test; it is ready once it printed a line."""
    with subprocess.Popen(
        script(database, body), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child
        finally:
            child.kill()


@contextmanager
def beside(act: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run it in a thread meanwhile; at the end the list holds what it returned or raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(act())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def transaction(database: Database, *statements: str, **settings: Any) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of somebody else, that ran these statements and is still open."""
    with database.connect(**settings) as connection:
        for sql in statements:
            connection.execute(sql)
        yield connection
        with suppress(psycopg.Error):
            connection.rollback()


SHORT = timedelta(seconds=0.5)
