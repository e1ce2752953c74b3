"""Connections to PostgreSQL: every statement runs in a transaction that brings its own settings and leaves none behind."""

from __future__ import annotations

import time
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
_SAME_FOR_ALL = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
}
"""Settings on which the meaning of a literal, or how a value is read back, would hang."""
_QUICKLY = {"jit": "off"}
"""For statements of ours, which take longer to compile than to run."""
_CANCELS = 3
_CANCEL_PAUSE = 0.05


class Session:
    """One connection; the caller's own thread runs it, any thread may :meth:`cancel` it.

    Settings are local to a transaction and nothing is prepared by name, so that a transaction pooler may stand between.
    ``lock_timeout`` is how long a statement waits for any lock, where its transaction says nothing else.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], statement_timeout: timedelta | None, lock_timeout: timedelta
    ) -> None:
        self._connection = connection
        self._settings = _SAME_FOR_ALL | {
            "statement_timeout": _milliseconds(statement_timeout or timedelta()),
            "lock_timeout": _milliseconds(lock_timeout),
        }
        self._is_cancelled = False
        connection.autocommit = True
        connection.prepare_threshold = None
        connection.row_factory = tuple_row

    @property
    def is_reusable(self) -> bool:
        """Whether another call may have it: open, not cancelled, and nothing is going on in it."""
        idle = self._connection.info.transaction_status is pq.TransactionStatus.IDLE
        return idle and not self._is_cancelled

    @property
    def is_alive(self) -> bool:
        """Whether the server still answers on it."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    @property
    def pid(self) -> int:
        """The server's process that serves the transaction of this moment."""
        ((pid,),) = self.run("SELECT pg_backend_pid()")
        return int(pid)

    @property
    def server_version(self) -> int:
        """As PostgreSQL counts: 150018 for 15.18."""
        return self._connection.info.server_version

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute the statement and return its rows; of one that writes rows, how many it wrote.

        :raises psycopg.errors.QueryCanceled: also when :meth:`cancel` came between two statements.
        """
        if self._is_cancelled:
            raise errors.QueryCanceled("the call was cancelled")
        cursor = self._connection.execute(sql)
        if cursor.description is not None:
            return cursor.fetchall()
        return [(cursor.rowcount,)] if cursor.rowcount >= 0 else []

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection itself, for code that is not ours."""
        return self._connection

    @contextmanager
    def transaction(
        self, *, read_only: bool = False, lock_timeout: timedelta | None = None, planned_by_server: bool = False
    ) -> Iterator[None]:
        """One transaction: committed at the end, rolled back on any error; within another one, a part of that.

        Each statement that may write sees what was committed before it began; those of a reading transaction all see the
        same rows, as numbers that are held against each other must. ``planned_by_server`` leaves it to the settings of the
        server how a statement is run, for one that somebody else wrote.
        """
        if self._connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            yield
            return
        settings = self._settings | ({} if planned_by_server else _QUICKLY)
        settings |= {} if lock_timeout is None else {"lock_timeout": _milliseconds(lock_timeout)}
        self.run(f"BEGIN ISOLATION LEVEL {'REPEATABLE READ READ ONLY' if read_only else 'READ COMMITTED READ WRITE'}")
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
    def lent(self) -> Iterator[None]:
        """One transaction for code that is not ours, which psycopg lets it neither commit nor undo."""
        with self._connection.transaction():
            self.run("; ".join(f"SET LOCAL {name} = {text_literal(value)}" for name, value in self._settings.items()))
            yield

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
        encoding = self._connection.info.encoding
        wrapped = f"SELECT * FROM (\n{select}\n) AS s".encode(encoding)
        connection = self._connection.pgconn
        for result in (connection.prepare(b"", wrapped), connection.describe_prepared(b"")):
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result, encoding=encoding)
        found = [
            ((result.fname(number) or b"").decode(encoding), result.ftype(number), result.fmod(number))
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
        """End the statement that is running now, and let none follow it but the ROLLBACK."""
        self._is_cancelled = True
        # A statement that was just being sent when the first request came is met by the next.
        for _ in range(_CANCELS):
            self._end_statement()
            time.sleep(_CANCEL_PAUSE)
            if self._connection.info.transaction_status is not pq.TransactionStatus.ACTIVE:
                break

    def close(self) -> None:
        """Let go of the connection; a running statement is ended, and an open transaction rolled back."""
        # The server would not notice that nobody waits for the answer any more.
        if self._connection.info.transaction_status is pq.TransactionStatus.ACTIVE:
            self._end_statement()
        with suppress(psycopg.Error):
            self._connection.close()

    def _end_statement(self) -> None:
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5)


class Sessions:
    """Opens sessions, and keeps those that ended well for the next call."""

    def __init__(self, connect: Connect, statement_timeout: timedelta | None, lock_timeout: timedelta) -> None:
        self._connect = connect
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        self._busy: set[Session] = set()
        self._idle: list[Session] = []

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session that no other call has meanwhile."""
        session = self._kept() or Session(self._connect(), self._statement_timeout, self._lock_timeout)
        self._busy.add(session)
        try:
            yield session
        finally:
            self._busy.discard(session)
            if session.is_reusable:
                self._idle.append(session)
            else:
                session.close()

    @contextmanager
    def session_for_code(self) -> Iterator[Session]:
        """A session as :meth:`session`, which nobody gets afterwards: code may leave anything set in it."""
        session = Session(self._connect(), self._statement_timeout, self._lock_timeout)
        self._busy.add(session)
        try:
            with session.lent():
                yield session
        finally:
            self._busy.discard(session)
            session.close()

    def cancel(self) -> None:
        """End every statement that is running now, from any thread."""
        for session in tuple(self._busy):
            session.cancel()

    def _kept(self) -> Session | None:
        """One that ended well and is still there: a server or a firewall may have closed it since."""
        while self._idle:
            session = self._idle.pop()
            if session.is_alive:
                return session
            session.close()
        return None

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
