"""Connections to DuckDB: one session runs statements, with our own files attached beside the warehouse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.sql import quote, text_literal

WRITABLE = "READ_WRITE"

# A host's zone must not decide what a cast of TIMESTAMPTZ yields.
_ZONE = "SET SESSION TimeZone = 'UTC'; SET enable_progress_bar = false"


class Session:
    """One connection; the caller's own thread runs it, any thread may :meth:`interrupt` it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement_timeout: timedelta | None) -> None:
        self._connection = connection
        self._statement_timeout = statement_timeout
        self._files: dict[str, str] = {}
        connection.execute(_ZONE)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute the statement and return its rows.

        :raises WarehouseError: it ran longer than the statement timeout, and was ended.
        """
        with self._limited():
            return self._connection.execute(sql).fetchall()

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[None]:
        """One transaction: committed at the end, rolled back on any error."""
        self.run("BEGIN TRANSACTION READ ONLY" if read_only else "BEGIN TRANSACTION")
        try:
            yield
            self.commit()
        except BaseException:
            # After a failed COMMIT there is nothing left to roll back; the error that matters is the first one.
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            raise

    def commit(self) -> None:
        """Commit, however long it takes: an interrupted one would leave open whether it happened."""
        self._connection.execute("COMMIT")

    @contextmanager
    def bulk_loading(self) -> Iterator[None]:
        """Write many rows fast: in whatever order they come, each full row group at once to the file itself.

        Row groups that wait for the commit, to keep the order or to fill a buffer, go through the write-ahead log.
        """
        settings = {"preserve_insertion_order": "false", "write_buffer_row_group_count": "1"}
        for name, value in settings.items():
            self.run(f"SET {name} = {value}")
        try:
            yield
        finally:
            for name in settings:
                with suppress(duckdb.Error):  # the transaction may be aborted, and its error is the one that matters
                    self._connection.execute(f"RESET {name}")

    def attach(self, file: Path, *, options: str = "READ_ONLY") -> str:
        """Attach one of our files under a name that no user's SQL can mean; returns that name as SQL."""
        alias = quote(f"safe_backfill_{uuid4().hex}")
        statement = f"ATTACH {text_literal(str(file))} AS {alias} ({options})"
        self.run(statement)
        self._files[alias] = statement
        return alias

    @property
    def attached(self) -> frozenset[str]:
        """The names that :meth:`attach` gave, as SQL."""
        return frozenset(self._files)

    def let_go(self, alias: str) -> None:
        """Let go of the one file that :meth:`attach` gave this name."""
        self._connection.execute(f"DETACH {alias}")
        del self._files[alias]

    def detach(self) -> None:
        """Let go of every file that :meth:`attach` attached."""
        for alias in list(self._files):
            self.let_go(alias)

    def one_select(self, sql: str) -> str | None:
        """The text without a semicolon at its end, or None when the engine's parser finds anything but one SELECT."""
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            return None
        text = sql.encode()
        for offset, kind in reversed(duckdb.tokenize(sql)):
            if text[offset : offset + 1] == b";":
                text = text[:offset]
            elif kind != duckdb.token_type.comment:
                break
        return text.decode()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection itself, for code that is not ours."""
        return self._connection

    def second_look(self, sql: str) -> list[tuple[Any, ...]]:
        """What another connection sees at this moment: committed rows only."""
        with self._connection.cursor() as other:
            return other.execute(sql).fetchall()

    def interrupt(self) -> None:
        """End the statement that is running now, if one is."""
        with suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        """Let go of the files and of the connection."""
        with suppress(duckdb.Error):
            self.detach()
        self._connection.close()

    @contextmanager
    def moved_to(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Work on the other connection meanwhile, with the same files attached; closes it."""
        own, files = self._connection, dict(self._files)
        self.detach()
        self._connection = connection
        try:
            connection.execute(_ZONE)
            self._attach_again(files)
            yield
        finally:
            self.detach()
            connection.close()
            self._connection = own
            self._attach_again(files)

    def _attach_again(self, files: dict[str, str]) -> None:
        for alias, statement in files.items():
            self._connection.execute(statement)
            self._files[alias] = statement

    @contextmanager
    def _limited(
        self,
        what: str = "A statement",
        way_on: str = "Raise compute.statement_timeout, or make the transform cheaper.",
    ) -> Iterator[None]:
        if self._statement_timeout is None:
            yield
            return
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.interrupt()

        timer = threading.Timer(self._statement_timeout.total_seconds(), expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        except duckdb.InterruptException as exc:
            if not expired.is_set():
                raise
            raise WarehouseError(
                f"{what} ran longer than statement_timeout ({self._statement_timeout}) and was ended; nothing of "
                f"it was kept. {way_on}"
            ) from exc
        finally:
            timer.cancel()
