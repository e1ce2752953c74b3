"""How the calls of an engine are interrupted: at each statement, batch or commit that it is sent, in every way it knows.

A *step* is one of those. A new statement is a new step by itself: nobody lists them. A new engine is one small class here,
added to ``RIGS``.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import postgres_server
import psycopg
import pytest
from contract_engines import Databricks, Delta, DuckDB, Engine, Postgres, Respelled
from databricks_local import client as databricks_local
from databricks_local.bounds import BoundedConnection, require_settings

from airflow_backfill_provider.demo.local_databricks.server import LocalDatabricks
from airflow_backfill_provider.errors import ConnectionLost, LockTimeout, WarehouseError
from airflow_backfill_provider.warehouses.base import Warehouse


class Broken(Exception):
    """What a fault raises that comes from this process and not from an engine."""


@dataclass(frozen=True)
class Fault:
    """One way to end a call. It strikes before a step, or when the step was done and its answer is on the way."""

    name: str
    strike: Callable[[Warehouse, Any], None]
    """Is given the warehouse and what runs the step, and raises what the engine would, or leaves that to the step."""
    raises: tuple[type[Exception], ...]
    """What the caller gets, unless the call could do its work all the same."""
    answered: bool = True
    """False: it strikes after the step."""
    may_be_mended: bool = False
    """Whether the call itself may try again, so that nobody hears of it."""
    over: Callable[[], None] = lambda: None
    """Ends the fault, once the call has ended."""


def _raise(*_: Any) -> None:
    raise Broken


def _cancel(warehouse: Warehouse, _: Any) -> None:
    warehouse.cancel()


def _fill_the_disk(*_: Any) -> None:
    """Let no file of this process grow any more, which the engines' own threads meet as a disk that is full."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


def _free_the_disk() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


FULL_DISK = Fault("disk full", _fill_the_disk, (WarehouseError,), may_be_mended=True, over=_free_the_disk)
EXCEPTION = Fault("exception", _raise, (Broken,))
CANCEL = Fault("cancel", _cancel, (WarehouseError,), may_be_mended=True)
Around = Callable[[str, Any, Callable[[], Any]], Any]
"""Is told of a step: what it says, what runs it, and how; it must run it and return what that returns."""


class Rig(Engine, Protocol):
    """An engine whose calls can be interrupted; it is sent to other processes as it is."""

    faults: tuple[Fault, ...]

    def open(self) -> Warehouse:
        """The warehouse once more; closed by :meth:`close`."""

    def copied(self, folder: Path) -> Rig:
        """A copy of everything there is, under a folder that does not exist."""

    def steps(self, around: Around) -> AbstractContextManager[None]:
        """Tells ``around`` of each step that this thread takes inside."""

    def is_commit(self, step: str) -> bool:
        """Whether the step makes something last."""

    def stored(self) -> set[str]:
        """The location of whatever lies where stages and backups lie, found without the warehouse."""

    def is_idle(self) -> bool:
        """Whether nothing that the warehouse began is going on still."""

    def close(self) -> None:
        """Let go of everything, the copy too."""


@contextmanager
def _patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Each attribute replaced by what the function makes of it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for owner, name, change in patches:
            monkeypatch.setattr(owner, name, change(getattr(owner, name)))
        yield


def _statements(around: Around) -> Callable[[Any], Any]:
    """A method of a DuckDB session that runs a statement, told of."""

    def change(run: Any) -> Any:
        def told(session: Any, sql: str = "COMMIT") -> Any:
            return around(sql, session, lambda: run(session, sql) if run.__name__ == "run" else run(session))

        return told

    return change


def _take_too_long(_: Warehouse, session: Any) -> None:
    """Run what never ends in time; the session's own limit ends it."""
    session._statement_timeout = timedelta(milliseconds=20)
    with session._limited():
        session._connection.execute("SELECT count(*) FROM range(100000000) AS a, range(100000) AS b")


_TIMEOUT = Fault("statement timeout", _take_too_long, (WarehouseError,))


class InterruptedDuckDB(DuckDB):
    faults = (EXCEPTION, CANCEL, _TIMEOUT, FULL_DISK)

    def create(self, tmp_path: Path) -> Warehouse:
        tmp_path.mkdir(exist_ok=True)
        return super().create(tmp_path)

    def open(self) -> Warehouse:
        from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse

        return DuckDBWarehouse(self.path, staging_dir=self.path.parent / "staging")

    def copied(self, folder: Path) -> InterruptedDuckDB:
        shutil.copytree(self.path.parent, folder)
        copy = InterruptedDuckDB()
        copy.path = folder / self.path.name
        return copy

    @contextmanager
    def steps(self, around: Around) -> Iterator[None]:
        from airflow_backfill_provider.warehouses.duckdb.session import Session

        told = _statements(around)
        with _patched((Session, "run", told), (Session, "commit", told)):
            yield

    def is_commit(self, step: str) -> bool:
        return step == "COMMIT"

    def stored(self) -> set[str]:
        staging = self.path.parent / "staging"
        files = {path.relative_to(staging).as_posix() for path in staging.glob("*/*")}
        return {name.removesuffix(".wal") for name in files}

    def is_idle(self) -> bool:
        return True

    def close(self) -> None:
        shutil.rmtree(self.path.parent)


class InterruptedDelta(Delta):
    # A batch that cannot be read is an error of the write that reads it.
    faults = (replace(EXCEPTION, raises=(Broken, WarehouseError)), CANCEL, _TIMEOUT, FULL_DISK)

    def create(self, tmp_path: Path) -> Warehouse:
        tmp_path.mkdir(exist_ok=True)
        return super().create(tmp_path)

    def open(self) -> Warehouse:
        from airflow_backfill_provider.warehouses.delta import DeltaWarehouse

        return DeltaWarehouse(str(self.root))

    def copied(self, folder: Path) -> InterruptedDelta:
        shutil.copytree(self.root.parent, folder)
        copy = InterruptedDelta()
        copy.root = folder / self.root.name
        return copy

    @contextmanager
    def steps(self, around: Around) -> Iterator[None]:
        from airflow_backfill_provider.warehouses.delta import publish, stage, storage
        from airflow_backfill_provider.warehouses.delta.session import DeltaSession

        session: list[Any] = []

        def opening(pin: Any) -> Any:
            def told(runner: Any, uri: str, version: int | None = None) -> Any:
                session[:] = [runner]
                return around(f"opening {uri}", runner, lambda: pin(runner, uri, version))

            return told

        def writing(write: Any) -> Any:
            def told(to: Any, rows: Any, **settings: Any) -> None:
                batches = _told(rows, lambda: around("a batch of rows", session[0], _nothing))
                around(_COMMIT, session[0], lambda: write(to, batches, **settings))
                around(_COMMITTED, session[0], _nothing)

            return told

        told = _statements(around)
        modules = [(module, "write_deltalake", writing) for module in (publish, stage, storage)]
        with _patched((DeltaSession, "run", told), (DeltaSession, "pin_stored", opening), *modules):
            yield

    def is_commit(self, step: str) -> bool:
        return step in (_COMMIT, _COMMITTED)

    def stored(self) -> set[str]:
        folder = self.root / "_safe_backfill"
        return {"/".join(path.relative_to(folder).parts[:2]) for path in folder.rglob("*") if path.is_file()}

    def is_idle(self) -> bool:
        return True

    def close(self) -> None:
        shutil.rmtree(self.root.parent)


_COMMIT, _COMMITTED = "a write of rows with its commit", "the answer to it"


def _nothing() -> None:
    """A step that is over at once."""


def _told(rows: Any, step: Callable[[], Any]) -> Any:
    """The same rows, with each batch told of, and their end."""
    import pyarrow

    def batches() -> Iterator[Any]:
        for batch in rows:
            step()
            yield batch
        step()

    return pyarrow.RecordBatchReader.from_batches(rows.schema, batches())


class _Connection(psycopg.Connection[Any]):
    """A connection whose statements are told of, when the main thread runs them."""

    around: ClassVar[Around | None] = None

    def execute(self, *arguments: Any, **settings: Any) -> Any:
        around = self.around
        run = super().execute
        if around is None or threading.current_thread() is not threading.main_thread():
            return run(*arguments, **settings)
        return around(str(arguments[0]), self, lambda: run(*arguments, **settings))


class InterruptedPostgres(Postgres):
    _copies = count()
    busy = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'backfill' "
        "AND state <> 'idle'"
    )
    """Asks for each session of the warehouse that is at work."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def create(self, tmp_path: Path) -> Warehouse:
        url = postgres_server.start()
        self.address = {"host": url.host, "port": url.port, "user": url.username, "password": url.password}
        super().create(tmp_path).close()
        return self.open()

    def connect(self, **settings: Any) -> Any:
        return psycopg.connect(**self.address | {"dbname": self.database} | settings)

    def open(self) -> Warehouse:
        from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse

        address = self.address | {"dbname": self.database, "application_name": "backfill"}
        self.opened.append(PostgresWarehouse(lambda: _Connection.connect(**address), lock_timeout=timedelta(seconds=5)))
        return self.opened[-1]

    def copied(self, folder: Path) -> InterruptedPostgres:
        self._let_go()
        copy = InterruptedPostgres()
        copy.address, copy.database = self.address, f"{self.database}_{os.getpid()}_{next(self._copies)}"
        copy._database("postgres", f"CREATE DATABASE {copy.database} TEMPLATE {self.database} STRATEGY FILE_COPY")
        return copy

    @contextmanager
    def steps(self, around: Around) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(_Connection, "around", staticmethod(around))
            yield

    def is_commit(self, step: str) -> bool:
        return step == "COMMIT"

    def stored(self) -> set[str]:
        rows = self.rows(
            "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = to_regnamespace('safe_backfill_staging') AND c.relkind = 'r' "
            "AND c.relname <> 'stored_tables' AND NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = c.oid)"
        )
        names = {name for (name,) in rows}
        return names - {f"{name}_r" for name in names}  # the receipts of a shadow go with it

    def is_idle(self) -> bool:
        """Within a moment, in which the server notices that a process is gone."""
        until = time.monotonic() + 5
        while self.rows(self.busy) and time.monotonic() < until:
            time.sleep(0.02)
        return not self.rows(self.busy)

    def close(self) -> None:
        self._let_go()
        self._database("postgres", f"DROP DATABASE {self.database} WITH (FORCE)")

    def _let_go(self) -> None:
        while self.opened:
            self.opened.pop().close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"opened": []}

    @staticmethod
    def _beside(connection: Any) -> Any:
        info = connection.info
        return psycopg.connect(
            host=info.host, port=info.port, user=info.user, password=info.password, dbname=info.dbname, autocommit=True
        )

    @staticmethod
    def _terminate(_: Warehouse, connection: Any) -> None:
        with InterruptedPostgres._beside(connection) as other:
            other.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 5000)")

    @staticmethod
    def _cut(_: Warehouse, connection: Any) -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _lose_the_answer(_: Warehouse, connection: Any) -> None:
        InterruptedPostgres._cut(_, connection)
        connection.pgconn.exec_(b"SELECT 1")
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    @staticmethod
    def _take_too_long(_: Warehouse, connection: Any) -> None:
        psycopg.Connection.execute(connection, "SET LOCAL statement_timeout = 10; SELECT pg_sleep(5)")

    @staticmethod
    def _wait_for_a_lock(_: Warehouse, connection: Any) -> None:
        with InterruptedPostgres._beside(connection) as other:
            other.execute("SELECT pg_advisory_lock(1)")
            psycopg.Connection.execute(connection, "SET LOCAL lock_timeout = 10; SELECT pg_advisory_xact_lock(1)")

    faults = (
        EXCEPTION,
        CANCEL,
        Fault("terminated by the server", _terminate, (ConnectionLost,), may_be_mended=True),
        Fault("connection reset", _cut, (ConnectionLost,), may_be_mended=True),
        Fault("answer lost", _lose_the_answer, (ConnectionLost,), answered=False, may_be_mended=True),
        Fault("statement timeout", _take_too_long, (WarehouseError,), may_be_mended=True),
        Fault("lock timeout", _wait_for_a_lock, (LockTimeout,), may_be_mended=True),
    )


class _Gone:
    """What is left of a connection that was cut."""

    def cursor(self) -> Any:
        from databricks.sql.exc import RequestError

        raise RequestError("Connection reset by peer.", {})

    def close(self) -> None:
        pass


def _cut_off(_: Warehouse, session: Any) -> None:
    from databricks.sql.exc import RequestError

    session.close()
    session._connection = _Gone()
    raise RequestError("Connection reset by peer.", {})


def _time_out(*_: Any) -> None:
    from databricks.sql.exc import ServerOperationError

    raise ServerOperationError("Statement timed out after 1 seconds.", {})


class InterruptedDatabricks(Databricks):
    """All copies are in the catalog under the same names, one after the other: a new one takes the place of the last."""

    faults = (
        EXCEPTION,
        CANCEL,
        Fault("connection cut", _cut_off, (ConnectionLost,), may_be_mended=True),
        Fault("connection cut with the answer", _cut_off, (ConnectionLost,), answered=False, may_be_mended=True),
        Fault("statement timeout", _time_out, (WarehouseError,), may_be_mended=True),
    )

    def create(self, tmp_path: Path) -> Warehouse:
        self.home = databricks_local.start().home
        warehouse = super().create(tmp_path)
        self._prepared: dict[str, Path] = {}
        return warehouse

    def __getstate__(self) -> dict[str, Any]:
        return {"home": self.home}  # another process asks nobody but the server

    def open(self) -> Warehouse:
        from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

        return cast(Warehouse, Respelled(DatabricksWarehouse(self._connect)))

    def _connect(self, settings: Any) -> Any:
        require_settings(settings)
        return BoundedConnection(LocalDatabricks(self.home).connect(settings))

    def copied(self, folder: Path) -> InterruptedDatabricks:
        databricks_local.forget()
        if not self._prepared:
            for name, place in self._places().items():
                self._prepared[name] = shutil.copytree(place, folder.parent / "prepared tables" / name)
        for name, place in self._places().items():
            if name not in self._prepared or _commits(place) != _commits(self._prepared[name]):
                self._run(f"DROP TABLE {name}")
        for name in self._prepared.keys() - self._places().keys():
            copy = shutil.copytree(self._prepared[name], folder / name)
            self._run(f"CREATE TABLE {name} USING delta LOCATION '{copy}'")
        return self

    def _places(self) -> dict[str, Path]:
        """Where the files of each table are, by its name as SQL."""
        names = {f"analytics.{row[1]}" for row in self.staged_rows("SHOW TABLES IN analytics")}
        names |= {f"backfill_staging.{name}" for name in self.stored()}
        found = {name: self.staged_rows(f"DESCRIBE DETAIL {name}")[0] for name in sorted(names)}
        return {
            name: Path(next(str(one) for one in row if str(one).startswith("file:"))[5:]) for name, row in found.items()
        }

    @contextmanager
    def steps(self, around: Around) -> Iterator[None]:
        from airflow_backfill_provider.warehouses.databricks.session import Session

        def telling(run: Any) -> Any:
            def told(session: Any, sql: str) -> Any:
                return around(sql, session, lambda: run(session, sql))

            return told

        with _patched((Session, "run", telling), (Session, "records", telling)):
            yield

    def is_commit(self, step: str) -> bool:
        return step.startswith(("INSERT ", "MERGE ", "CREATE TABLE "))

    def stored(self) -> set[str]:
        return {row[1] for row in self.staged_rows("SHOW TABLES IN backfill_staging")}

    def is_idle(self) -> bool:
        return True  # each step is one call, which has ended

    def close(self) -> None:
        databricks_local.forget()


def _commits(table: Path) -> list[str]:
    return sorted(file.name for file in (table / "_delta_log").glob("*.json"))


RIGS: list[type[Rig]] = []
if importlib.util.find_spec("duckdb"):
    RIGS.append(InterruptedDuckDB)
if importlib.util.find_spec("deltalake"):
    RIGS.append(InterruptedDelta)
if postgres_server.is_installed():
    RIGS.append(InterruptedPostgres)
SLOW_RIGS: list[type[Rig]] = [] if databricks_local.missing() else [InterruptedDatabricks]
"""Engines on which a call can be interrupted a few times, and no whole life."""
