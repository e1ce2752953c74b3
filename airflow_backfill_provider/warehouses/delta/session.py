"""One call's view of the tables: DuckDB in memory, and each Delta table that the call reads, pinned to one version."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import ParquetReadOptions

from airflow_backfill_provider.warehouses.delta.errors import interrupted
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, text_literal

# Spark's older timestamps would be read as nanoseconds, which do not reach beyond the year 2262.
_READING = ParquetReadOptions(coerce_int96_timestamp_unit="us")


@dataclass(frozen=True)
class Pinned:
    """A Delta table at the version that the call reads, and its name in the session as SQL."""

    table: DeltaTable
    sql: str


class DeltaSession(Session):
    """DuckDB in memory, in which the Delta tables of the root have their names."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement_timeout: timedelta | None, root: Root) -> None:
        super().__init__(connection, statement_timeout)
        self._root = root
        self._pinned: dict[str, Pinned] = {}
        self._registered: list[str] = []
        self._views: list[str] = []

    def pin(self, place: Place) -> Pinned:
        """The published table, under its own name."""
        uri = self._root.uri(place.schema, place.name)
        if (pinned := self._pinned.get(uri)) is None:
            stored = self.pin_stored(uri)
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(place.schema)}")
            self._connection.execute(f"CREATE VIEW {place.sql} AS SELECT * FROM {stored.sql}")
            self._views.append(place.sql)
            pinned = self._pinned[uri] = Pinned(stored.table, place.sql)
        return pinned

    def pin_stored(self, uri: str) -> Pinned:
        """The table at this address, under a name that no user's SQL can mean.

        :raises deltalake.exceptions.TableNotFoundError: there is none.
        :raises deltalake.exceptions.DeltaProtocolError: it has a feature that cannot be read.
        """
        if (pinned := self._pinned.get(uri)) is None:
            table = self._root.open(uri)
            name = f"safe_backfill_{uuid4().hex}"
            self._connection.register(name, table.to_pyarrow_dataset(parquet_read_options=_READING))
            self._registered.append(name)
            pinned = self._pinned[uri] = Pinned(table, quote(name))
        return pinned

    def let_go(self) -> None:
        """Forget every table: the next one that pins it has its latest version then."""
        for view in self._views:
            self._connection.execute(f"DROP VIEW IF EXISTS {view}")
        for name in self._registered:
            self._connection.unregister(name)
        self._views, self._registered, self._pinned = [], [], {}

    def one_select(self, sql: str) -> str | None:
        """As :meth:`Session.one_select`; the Delta tables that the SELECT names can be read by it then."""
        if (text := super().one_select(sql)) is None:
            return None
        ((tree,),) = self.run(f"SELECT json_serialize_sql({text_literal(text)})")
        for schema, name in _named(json.loads(tree)):
            if (place := self._root.find(schema, name)) is not None:
                self.pin(place)
        return text

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
        self.cancelled = threading.Event()

    def of(self, root: Root) -> Sessions:
        """The same of another root."""
        return Sessions(root, self._statement_timeout, self._threads)

    @contextmanager
    def session(self) -> Iterator[DeltaSession]:
        """A session that has pinned nothing yet; it spills into a folder that nobody else can read."""
        with TemporaryDirectory(prefix="safe-backfill-", ignore_cleanup_errors=True) as spill:
            connection = duckdb.connect(":memory:", config=self._config | {"temp_directory": spill})
            session = DeltaSession(connection, self._statement_timeout, self._root)
            self._open.add(session)
            try:
                yield session
            finally:
                self._open.discard(session)
                with suppress(duckdb.Error):
                    session.let_go()
                session.close()

    def cancel(self) -> None:
        """End the statement that is running now, or the wait for another attempt."""
        self.cancelled.set()
        for session in tuple(self._open):
            session.interrupt()


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
