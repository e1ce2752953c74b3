"""Connections to Databricks: one statement after the other, each a commit of its own, ended from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, Protocol

import sqlglot
from databricks.sql.exc import Error, RequestError
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT
from airflow_backfill_provider.warehouses.databricks.errors import reaching, require_let_in

_CANCELLED = "CANCELLED"
_RENEWED_AFTER = timedelta(minutes=10)
"""Well before the hour that a login by OAuth is good for, and before a warehouse stops for want of work."""


class Connection(Protocol):
    """What the connector's connection is asked for."""

    def cursor(self) -> Any: ...

    def close(self) -> None: ...


Connect = Callable[[Mapping[str, str]], Connection]
"""Opens a connection with these parameters of the session."""


class Session:
    """One connection at a time; the caller's own thread runs it, any thread may :meth:`cancel` it.

    Each statement stands for itself, so one that comes after the connection was lost, or when it is old, has another one.
    """

    def __init__(self, open_connection: Callable[[], Connection]) -> None:
        self._open = open_connection
        self._cursor: Any = None
        self.is_cancelled = False
        """Whether it was ended, and so is of no more use."""
        self._begin()

    def _begin(self) -> None:
        self._is_lost = True
        try:
            with reaching():
                self._connection = self._open()
        except RequestError as refused:
            require_let_in(refused)
            raise
        self._is_lost = False
        self._renewed_at = monotonic() + _RENEWED_AFTER.total_seconds()
        self.run("SET TIME ZONE 'UTC'")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute the statement and return its rows.

        :raises WarehouseError: it was cancelled, here or by somebody else.
        """
        return self._rows(lambda cursor: cursor.execute(sql))

    def records(self, sql: str) -> list[dict[str, Any]]:
        """As :meth:`run`, each row with the names of its columns."""
        names: list[str] = []
        rows = self._rows(lambda cursor: cursor.execute(sql), names)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def catalog_columns(self, catalog: str, schema: str, table: str) -> list[dict[str, Any]]:
        """What the driver's catalog call says of the table's columns, by JDBC's names."""
        names: list[str] = []
        rows = self._rows(
            lambda cursor: cursor.columns(
                catalog_name=catalog or None, schema_name=_pattern(schema), table_name=_pattern(table)
            ),
            names,
        )
        found = [dict(zip(names, row, strict=True)) for row in rows]
        wanted = (schema.casefold(), table.casefold())
        return [one for one in found if (one["TABLE_SCHEM"].casefold(), one["TABLE_NAME"].casefold()) == wanted]

    def _rows(self, execute: Callable[[Any], Any], names: list[str] | None = None) -> list[tuple[Any, ...]]:
        if self.is_cancelled:
            raise _cancelled()
        if self._is_lost or monotonic() > self._renewed_at:
            self.close()
            self._begin()
        try:
            with reaching():
                return self._asked(execute, names)
        except RequestError:
            self._is_lost = True
            raise

    def _asked(self, execute: Callable[[Any], Any], names: list[str] | None) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            self._cursor = cursor
            try:
                execute(cursor)
                # A cancelled statement may come back as if it had no rows.
                if self.is_cancelled or _state(cursor) == _CANCELLED:
                    raise _cancelled()
                if names is not None:
                    names += [column[0] for column in cursor.description or ()]
                found = cursor.fetchall_arrow()
            except Error as exc:
                if self.is_cancelled:
                    raise _cancelled() from exc
                raise
            finally:
                self._cursor = None
            # Not by the table's own method, whose rows are mappings: two columns may share a name.
            return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[None]:
        """Nothing: each statement is a transaction, and there is none of several."""
        yield

    def one_select(self, sql: str) -> str | None:
        """The text without a semicolon at its end, or None when it is anything but one SELECT."""
        try:
            trees = sqlglot.parse(sql, dialect=DIALECT.name)
            tokens = sqlglot.tokenize(sql, dialect=DIALECT.name)
        except SqlglotError:
            return None
        if len(trees) != 1 or not isinstance(trees[0], exp.Query):
            return None
        ends = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
        return sql[: ends[0]] if ends else sql

    def cancel(self) -> None:
        """End the statement that is running now, if one is, and let none begin."""
        self.is_cancelled = True
        if (cursor := self._cursor) is not None:
            # The connector's own `Connection` has no way to cancel.
            with suppress(Error):
                cursor.cancel()

    def close(self) -> None:
        """Let go of the connection."""
        # Whatever the connector makes of a session that is gone already.
        with suppress(Exception):
            self._connection.close()


class Sessions:
    """Opens sessions, keeps idle ones for the next call, and ends what runs in them from any thread."""

    def __init__(self, connect: Connect, statement_timeout: timedelta | None) -> None:
        self._connect = connect
        self._settings = (
            {}
            if statement_timeout is None
            else {"STATEMENT_TIMEOUT": str(max(1, int(statement_timeout.total_seconds())))}
        )
        self._idle: list[Session] = []
        self._open: set[Session] = set()
        self._lock = threading.Lock()
        self.cancelled = threading.Event()

    @contextmanager
    def session(self, settings: Mapping[str, str] | None = None) -> Iterator[Session]:
        """A session in UTC; one with settings of its own is nobody else's."""
        with self._lock:
            session = self._idle.pop() if self._idle and settings is None else None
        if session is None:
            session = Session(partial(self._connect, self._settings | dict(settings or {})))
        self._open.add(session)
        try:
            yield session
        finally:
            self._open.discard(session)
            if settings is None and not session.is_cancelled:
                with self._lock:
                    self._idle.append(session)
            else:
                session.close()

    def cancel(self) -> None:
        """End the statement that is running now, or the wait for another attempt."""
        self.cancelled.set()
        for session in tuple(self._open):
            session.cancel()

    def close(self) -> None:
        """Let go of the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()


def _state(cursor: Any) -> str:
    """The state that the last statement ended in, as the connector names it."""
    status = getattr(cursor.active_result_set, "status", None)
    return str(getattr(status, "value", status))


def _pattern(name: str) -> str:
    """The name as a pattern that no other name matches."""
    return name.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")


def _cancelled() -> WarehouseError:
    return WarehouseError("The statement was cancelled; nothing of it was kept.")
