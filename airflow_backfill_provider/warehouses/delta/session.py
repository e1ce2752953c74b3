"""One session's view of the tables: DuckDB in memory, and each Delta table that it reads, pinned to one version."""

from __future__ import annotations

import json
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import FileSystemDataset

from airflow_backfill_provider.warehouses.base import Versions
from airflow_backfill_provider.warehouses.delta.dataset import dataset
from airflow_backfill_provider.warehouses.delta.errors import interrupted
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, text_literal

OWN = "safe_backfill_session"
"""The database in memory that a session makes all its own in."""


@dataclass(frozen=True)
class Pinned:
    """A Delta table at the version that the session reads, and its name there as SQL."""

    table: DeltaTable
    sql: str


class DeltaSession(Session):
    """DuckDB in memory, in which the Delta tables of the root have their names.

    Each is opened once, at its latest version unless :meth:`read_at` says another, and stays at that version. Pins are no
    part of a transaction.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement_timeout: timedelta | None, root: Root) -> None:
        super().__init__(connection, statement_timeout)
        connection.execute(f"ATTACH ':memory:' AS {OWN}; USE {OWN}")
        self._root = root
        self._registered: list[str] = []
        self._pinned: dict[tuple[str, int | None], Pinned] = {}
        self._named: dict[Place, Pinned] = {}
        self._found: dict[tuple[str, str], Place | None] = {}
        self._versions: Versions = {}
        self._ended = threading.Event()

    def read_at(self, versions: Versions) -> None:
        """From now on a table that is among them means that version of it."""
        if versions != self._versions:
            self._versions = versions
            self._named = {}

    @property
    def versions(self) -> dict[str, int]:
        """What version each table has that is pinned under its own name."""
        return {str(place): pinned.table.version() for place, pinned in self._named.items()}

    def pin(self, place: Place) -> Pinned:
        """The published table, under its own name."""
        if (pinned := self._named.get(place)) is None:
            stored = self.pin_stored(self._root.uri(place.schema, place.name), self._versions.get(str(place)))
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(place.schema)}")
            self._connection.execute(f"CREATE OR REPLACE VIEW {place.sql} AS SELECT * FROM {stored.sql}")
            pinned = self._named[place] = Pinned(stored.table, place.sql)
        return pinned

    def pin_stored(self, uri: str, version: int | None = None) -> Pinned:
        """The table at this address and version, by default the latest, under a name that no user's SQL can mean.

        :raises deltalake.exceptions.TableNotFoundError: there is none.
        :raises deltalake.exceptions.DeltaProtocolError: it has a feature that cannot be read.
        """
        if (pinned := self._pinned.get((uri, version))) is None:
            table = self._root.open(uri, version)
            name = self._register(dataset(table, partial(self._root.files_of, uri)))
            pinned = self._pinned[uri, version] = Pinned(table, quote(name))
        return pinned

    @contextmanager
    def holding(self, rows: pyarrow.Table) -> Iterator[str]:
        """These rows as a table of the session, under a name that no user's SQL can mean."""
        name = self._register(rows)
        try:
            yield quote(name)
        finally:
            self._connection.unregister(name)
            self._registered.remove(name)

    def _register(self, rows: pyarrow.Table | FileSystemDataset) -> str:
        """A name for rows of Arrow's, that no user's SQL can mean."""
        name = f"safe_backfill_{uuid4().hex}"
        self._connection.register(name, rows)
        self._registered.append(name)
        return name

    def one_select(self, sql: str) -> str | None:
        """As :meth:`Session.one_select`; the Delta tables that the SELECT names can be read by it then."""
        if (text := super().one_select(sql)) is None:
            return None
        ((tree,),) = self.run(f"SELECT json_serialize_sql({text_literal(text)})")
        for named in _named(json.loads(tree)):
            if named not in self._found:
                self._found[named] = self._root.find(*named)
            if (place := self._found[named]) is not None:
                self.pin(place)
        return text

    def rows_within(self, table: pyarrow.Table, picked: str, predicate: str) -> list[Any]:
        """What a column holds in those rows of an Arrow table, alias ``r``, that the predicate is true of."""
        name = self._register(table)
        return [value for (value,) in self.run(f"SELECT r.{quote(picked)} FROM {quote(name)} AS r WHERE {predicate}")]

    def forget(self) -> None:
        """Throw away all that was pinned or made in it; the connection is as if it were new."""
        for name in self._registered:
            self._connection.unregister(name)
        self._connection.execute(f"USE memory; DETACH {OWN}")

    def interrupt(self) -> None:
        self._ended.set()
        super().interrupt()

    @contextmanager
    def in_steps(self, what: str) -> Iterator[Callable[[], None]]:
        """Work that no statement does, with a statement's limits, which the function looks at that is called between steps.

        :param what: the work, as the start of a sentence (``Copying files``).
        :raises duckdb.InterruptException: it was ended.
        :raises WarehouseError: it ran longer than the statement timeout.
        """
        self._ended.clear()

        def go_on() -> None:
            if self._ended.is_set():
                raise duckdb.InterruptException("it was ended between two steps")

        with self._limited(what, "Raise compute.statement_timeout."):
            yield go_on

    @contextmanager
    def rows(self, select: str) -> Iterator[pyarrow.RecordBatchReader]:
        """The rows of the SELECT, as they are computed, for a write inside the context; a stopped one stops the write.

        :raises duckdb.InterruptException: the statement was ended.
        :raises WarehouseError: it ran longer than the statement timeout.
        """
        with self._limited():
            try:
                yield self._connection.sql(select).to_arrow_reader()
            except DeltaError as exc:
                if interrupted(exc):
                    raise duckdb.InterruptException(str(exc).splitlines()[0]) from exc
                raise


class Sessions:
    """Opens sessions, and ends what runs in them from any thread."""

    def __init__(self, root: Root, statement_timeout: timedelta | None, threads: int) -> None:
        self._root = root
        self._statement_timeout = statement_timeout
        self._threads = threads
        # Without replacements, no name in a user's SQL means a variable of this process.
        self._config: dict[str, Any] = {"threads": threads, "python_enable_replacements": False}
        self._open: set[DeltaSession] = set()
        self._idle: list[_Engine] = []
        self.cancelled = threading.Event()

    def of(self, root: Root) -> Sessions:
        """The same of another root, with this one's engines."""
        other = Sessions(root, self._statement_timeout, self._threads)
        other._idle = self._idle
        return other

    @contextmanager
    def session(self) -> Iterator[DeltaSession]:
        """A session that has pinned nothing yet.

        The DuckDB of one that ended well is kept for the next, because starting it costs more than most statements.
        """
        engine = self._idle.pop() if self._idle else _Engine(self._config)
        session = DeltaSession(engine.connection, self._statement_timeout, self._root)
        self._open.add(session)
        try:
            yield session
            session.forget()
        except BaseException:
            engine.close()
            raise
        finally:
            self._open.discard(session)
        self._idle.append(engine)

    def cancel(self) -> None:
        """End the statement that is running now, or the wait for another attempt."""
        self.cancelled.set()
        for session in tuple(self._open):
            session.interrupt()

    def close(self) -> None:
        """Let go of what no session uses."""
        while self._idle:
            self._idle.pop().close()


class _Engine:
    """A DuckDB in memory, which spills into a folder that nobody else can read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        spill = mkdtemp(prefix="safe-backfill-")
        # Also of a warehouse that nobody closed.
        self._clean_up = weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)
        self.connection = duckdb.connect(":memory:", config={**config, "temp_directory": spill})

    def close(self) -> None:
        self.connection.close()
        self._clean_up()


def _named(tree: Any) -> Iterator[tuple[str, str]]:
    """Schema and name of every table in a parsed SELECT that is named with its schema, and without a database."""
    match tree:
        case {"type": "BASE_TABLE", "catalog_name": "", "schema_name": str(schema), "table_name": str(name)} if schema:
            yield schema, name
        case dict():
            for value in tree.values():
                yield from _named(value)
        case list():
            for value in tree:
                yield from _named(value)
