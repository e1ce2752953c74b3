"""The ledger's connection: one transaction at a time, and driver errors turned into ours at this edge."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)

from airflow_backfill_provider.errors import LedgerError, LedgerUnavailable

LOCK_TIMEOUT_SECONDS = 30
"""How long a write waits for another process's write."""

_SECRET_PARAMETERS = frozenset({"password", "sslpassword"})
_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
"""What SQLite says when another process holds the file, or its disk does not answer."""


class LedgerEngine:
    """Transactions on the ledger's database.

    No connection outlives its transaction, so none is held while a partition is being staged and none crosses a
    fork.

    :raises LedgerError: the URL cannot be read, names an engine the ledger does not know, or its driver is missing.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = _parse(url)
        self.address = self.url.set(query={}).render_as_string(hide_password=True)
        """The URL as it may be shown: without password and parameters."""
        self._engine = _create(self.url, self.address)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    def exists(self) -> bool:
        """False when this is an SQLite file that is not there; connecting would leave an empty one behind."""
        path = self.url.database or ""
        return self.dialect != "sqlite" or path.startswith("file:") or Path(path).exists()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One transaction that only reads."""
        with self._translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction that writes: all of it, or nothing when the block raises."""
        with self._translated(), self._engine.connect() as connection:
            connection = connection.execution_options(ledger_writes=True)
            with connection.begin():
                yield connection

    def dispose(self) -> None:
        """Let go of every handle."""
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError) as exc:
            said = self._say(exc)
            kind = LedgerUnavailable if self._may_pass(exc) else LedgerError
            raise kind(f"The ledger {self.address} cannot be used: {said}. {self._advice(said)}") from exc
        except IntegrityError as exc:
            raise LedgerError(
                f"The ledger {self.address} refused a row that contradicts what it holds: {self._say(exc)}. "
                "Nothing was recorded; read the backfill again before going on."
            ) from exc
        except SQLAlchemyError as exc:
            kind = LedgerUnavailable if isinstance(exc, DBAPIError) and self._may_pass(exc) else LedgerError
            raise kind(
                f"The ledger {self.address} could not carry out a statement: {self._say(exc)}. Nothing was recorded."
            ) from exc

    def _may_pass(self, exc: DBAPIError) -> bool:
        """Whether it is about the connection, a lock or a server that is busy with itself, and not about what was asked."""
        if exc.connection_invalidated:
            return True
        if not isinstance(exc, (OperationalError, InterfaceError)):
            return False
        # SQLite calls a missing table operational too.
        code = getattr(exc.orig, "sqlite_errorcode", None)
        return self.dialect == "postgresql" or (code is not None and code & 0xFF in _PASSING)

    def _say(self, exc: SQLAlchemyError) -> str:
        cause = exc.orig if isinstance(exc, StatementError) and exc.orig is not None else exc
        # Further lines of a driver's message quote the row it could not store.
        said = next(iter(str(cause).strip().splitlines()), "").rstrip(".") or type(cause).__name__
        secrets = [self.url.password, *(self.url.query.get(name) for name in _SECRET_PARAMETERS)]
        for secret in secrets:
            if isinstance(secret, str) and secret:
                said = said.replace(secret, "***")
        return said

    def _advice(self, said: str) -> str:
        if "locked" in said or "lock timeout" in said:
            return (
                f"Another process held it for more than {LOCK_TIMEOUT_SECONDS} seconds: look for one that hangs, "
                "then run this again."
            )
        if self.dialect == "sqlite":
            return "Check that its folder exists, is on a local disk and can be written by this user."
        return "Check that the database runs and can be reached from here, and the user, password and rights."


def _parse(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # A password with an unescaped "/" or "@" ends up in the parser's message, so neither it nor the cause is kept.
        raise LedgerError(
            "The ledger's URL cannot be read. Give one like sqlite:////var/lib/airflow/safe_backfill.db or "
            "postgresql+psycopg://user:password@host:5432/database, with special characters percent-encoded."
        ) from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise LedgerError(
            f"The ledger cannot live in {parsed.get_backend_name()!r}; give the URL of an SQLite file or of a "
            "PostgreSQL database."
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise LedgerError(
            "The ledger outlives processes, so an SQLite ledger must be a file: sqlite:////folder/file.db."
        )
    return parsed


def _create(url: URL, address: str) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            url,
            poolclass=NullPool,
            hide_parameters=True,
            connect_args=_driver_settings(url),
        )
    except (ModuleNotFoundError, NoSuchModuleError) as exc:
        raise LedgerError(
            f"The ledger {address} needs the database driver {url.drivername!r}, which is not installed: {exc}. "
            "Install it, or name another driver in the URL (postgresql+psycopg, postgresql+psycopg2)."
        ) from exc
    except ArgumentError as exc:
        raise LedgerError(f"The ledger {address} cannot be opened: {exc}. Correct its URL.") from exc
    if sqlite:
        event.listen(engine, "connect", _take_over_transactions)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    event.listen(engine, "begin", _begin_postgresql)
    # A claim reads the locks that were committed while it waited, which a stricter level would hide from it.
    return engine.execution_options(isolation_level="READ COMMITTED")


def _driver_settings(url: URL) -> dict[str, Any]:
    match url.get_backend_name(), url.get_driver_name():
        case "sqlite", _:
            return {"timeout": LOCK_TIMEOUT_SECONDS}
        case _, "psycopg":
            # A statement prepared by name is unknown, or another one, to the connection that a transaction pooler gives next.
            return {"prepare_threshold": None}
        case _:
            return {}


def _take_over_transactions(dbapi_connection: Any, _record: object) -> None:
    # The driver's own BEGIN is deferred: two such writers fail with "locked" at once, whatever the timeout.
    dbapi_connection.isolation_level = None
    dbapi_connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("ledger_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
