"""Connections to PostgreSQL: every statement runs in a transaction that brings its own settings and leaves none behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import sqlglot
from psycopg import errors, pq
from psycopg.rows import tuple_row
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.types import UNKNOWN
from airflow_backfill_provider.warehouses.sql import text_literal

Connect = Callable[[], "psycopg.Connection[Any]"]
"""Opens a connection to the warehouse."""


class Session:
    """One connection; the caller's own thread runs it, any thread may :meth:`cancel` it.

    Settings are local to a transaction and nothing is prepared by name, so that a transaction pooler may stand between.
    """

    def __init__(self, connection: psycopg.Connection[Any], statement_timeout: timedelta | None) -> None:
        self._connection = connection
        self._settings = {
            "TimeZone": "UTC",
            "statement_timeout": _milliseconds(statement_timeout or timedelta()),
            "lock_timeout": "0",
        }
        connection.autocommit = True
        connection.prepare_threshold = None
        connection.row_factory = tuple_row

    @property
    def is_broken(self) -> bool:
        """Whether the connection cannot be used any more."""
        return self._connection.closed

    @property
    def server_version(self) -> int:
        """As PostgreSQL counts: 150018 for 15.18."""
        return self._connection.info.server_version

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute the statement and return its rows; of one that writes rows, how many it wrote."""
        cursor = self._connection.execute(sql)
        if cursor.description is not None:
            return cursor.fetchall()
        return [(cursor.rowcount,)] if cursor.rowcount >= 0 else []

    @contextmanager
    def transaction(self, *, read_only: bool = False, lock_timeout: timedelta = timedelta()) -> Iterator[None]:
        """One transaction: committed at the end, rolled back on any error; within another one, a part of that.

        Each statement of it sees what was committed before the statement began.

        :param lock_timeout: how long to wait for any lock; zero: for ever.
        """
        if self._connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            yield
            return
        settings = self._settings | {"lock_timeout": _milliseconds(lock_timeout)}
        self.run(f"BEGIN ISOLATION LEVEL READ COMMITTED {'READ ONLY' if read_only else 'READ WRITE'}")
        try:
            self.run("; ".join(f"SET LOCAL {name} = {text_literal(value)}" for name, value in settings.items()))
            yield
            # However long it takes: an interrupted one would leave open whether it happened.
            self.run("SET LOCAL statement_timeout = 0")
            self.run("COMMIT")
        except BaseException:
            # The error that matters is the first one.
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the transaction that may fail without ending it."""
        self.run("SAVEPOINT attempt")
        try:
            yield
        except psycopg.Error:
            self.run("ROLLBACK TO SAVEPOINT attempt")
            raise
        finally:
            with suppress(psycopg.Error):
                self.run("RELEASE SAVEPOINT attempt")

    def one_select(self, sql: str) -> str | None:
        """The text without a semicolon at its end, or None when it is anything but one SELECT."""
        try:
            tokens = sqlglot.tokenize(sql, dialect=DIALECT.name)
            (tree,) = (tree for tree in sqlglot.parse(sql, dialect=DIALECT.name) if tree is not None)
        except (SqlglotError, ValueError):
            return None
        if not isinstance(tree, exp.Query):
            return None
        ends = [token for token in tokens if token.token_type is TokenType.SEMICOLON]
        return sql[: ends[0].start] if ends else sql

    def columns(self, select: str) -> list[tuple[str, str]]:
        """Name and type of every column that the SELECT would return; the server reads it as one statement, or raises.

        A bare NULL has the type :data:`UNKNOWN`, which the server would call text.
        """
        wrapped = f"SELECT * FROM (\n{select}\n) AS s".encode()
        connection = self._connection.pgconn
        for result in (connection.prepare(b"", wrapped), connection.describe_prepared(b"")):
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
        found = [
            ((result.fname(number) or b"").decode(), result.ftype(number), result.fmod(number))
            for number in range(result.nfields)
        ]
        if not found:
            return []
        values = ", ".join(f"({number}, {oid}, {mod})" for number, (_, oid, mod) in enumerate(found))
        types = self.run(f"SELECT format_type(oid, mod) FROM (VALUES {values}) AS t (n, oid, mod) ORDER BY n")
        bare = _bare_nulls(select)
        return [
            (name, UNKNOWN if name in bare else str(spelled))
            for (name, *_), (spelled,) in zip(found, types, strict=True)
        ]

    def cancel(self) -> None:
        """End the statement that is running now, if one is."""
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """Let go of the connection; an open transaction is rolled back."""
        with suppress(psycopg.Error):
            self._connection.close()


class Sessions:
    """Opens sessions, and keeps those that ended well for the next call."""

    def __init__(self, connect: Connect, statement_timeout: timedelta | None) -> None:
        self._connect = connect
        self._statement_timeout = statement_timeout
        self._busy: set[Session] = set()
        self._idle: list[Session] = []

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session that no other call has meanwhile."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = Session(self._connect(), self._statement_timeout)
        self._busy.add(session)
        try:
            yield session
        finally:
            self._busy.discard(session)
            if session.is_broken:
                session.close()
            else:
                self._idle.append(session)

    def cancel(self) -> None:
        """End every statement that is running now, from any thread."""
        for session in tuple(self._busy):
            session.cancel()

    def close(self) -> None:
        """Let go of every connection that is not in use."""
        while self._idle:
            self._idle.pop().close()


def _bare_nulls(select: str) -> set[str]:
    """The names of the columns that are NULL and nothing else."""
    tree = sqlglot.parse_one(select, dialect=DIALECT.name)
    return (
        {one.alias for one in tree.selects if isinstance(one, exp.Alias) and isinstance(one.this, exp.Null)}
        if (isinstance(tree, exp.Select))
        else set()
    )


def _milliseconds(duration: timedelta) -> str:
    """0, which PostgreSQL takes for no limit, is written for nothing else."""
    seconds = duration.total_seconds()
    return str(max(1, round(seconds * 1000))) if seconds else "0"
