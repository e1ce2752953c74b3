"""The way to the warehouse file: wait for it, bounded; hold it for a short time; let go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import duckdb

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.duckdb.errors import held_by_another_process, open_in_this_process
from airflow_backfill_provider.warehouses.duckdb.gate import Gate
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.sql import quote, text_literal

Setting = str | bool | int | float | list[str]
_Opened = TypeVar("_Opened")


_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.01, 0.25
_CANCELLED_FOR_SECONDS = 1.0


class Door:
    """Opens sessions and lets them at one warehouse file; raises DuckDB's own errors, which the adapter translates.

    Readers attach the file read only, to a session of their own, and detach it. When this very process has the file
    open already, they work on a connection to that same instance, because DuckDB opens a file once per process.
    """

    def __init__(
        self,
        path: Path,
        staging_dir: Path,
        config: Mapping[str, Setting],
        lock_timeout: timedelta,
        statement_timeout: timedelta | None,
        threads: int,
    ) -> None:
        self.path = path
        self._config = dict(config)
        # Never for the warehouse itself: DuckDB refuses a second connection in a process whose settings differ.
        self._own: dict[str, Setting] = {"temp_directory": str(staging_dir / "spill"), "threads": threads}
        self._lock_timeout = lock_timeout
        self._statement_timeout = statement_timeout
        self._gate = Gate(path, staging_dir, pause=self._pause)
        self._sessions: set[Session] = set()
        self._idle: list[Session] = []
        self._name: str | None = None
        self._cancelled_at = float("-inf")

    def of(self, path: Path, gate: Path) -> Door:
        """The way to another file of ours, with the same settings and a gate of its own, kept in that folder."""
        spill = {"temp_directory": self._own["temp_directory"]}
        threads = self._own["threads"]
        assert isinstance(threads, int)
        return Door(path, gate, spill | self._config, self._lock_timeout, self._statement_timeout, threads)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session in memory, without the warehouse, that spills into the staging folder.

        One that ended well is kept for the next call, because opening DuckDB costs more than most statements.
        """
        try:
            session = self._idle.pop()
        except IndexError:
            session = self._opened(duckdb.connect(":memory:", config=self._own | self._config))
        try:
            yield session
            session.detach()
        except BaseException:
            self._close(session)
            raise
        self._idle.append(session)

    @contextmanager
    def session_for_code(self) -> Iterator[Session]:
        """A session as :meth:`session`, which nobody gets afterwards: code may leave anything set in it."""
        session = self._opened(duckdb.connect(":memory:", config=self._own | self._config))
        try:
            yield session
        finally:
            self._close(session)

    @contextmanager
    def reading(self, session: Session) -> Iterator[None]:
        """Have the warehouse in the session, as the database that names in SQL mean.

        :raises LockTimeout: our own tasks kept the file for too long.
        :raises duckdb.IOException: another process kept it for too long.
        :raises WarehouseError: there is no such file.
        """
        with self._inside(self._gate.shared, lambda held: self._attach(session, held)):
            yield

    @contextmanager
    def publishing(self) -> Iterator[Session]:
        """The warehouse itself, open for writing, with no other process inside.

        :raises: as :meth:`reading`.
        """

        def connect(held: ExitStack) -> Session:
            self._refuse_missing()
            session = self._opened(duckdb.connect(str(self.path), config=self._config))
            held.callback(self._close, session)
            return session

        with self._inside(self._gate.exclusive, connect) as session:
            yield session

    def cancel(self) -> None:
        """End the statement that is running now, or the wait for the file; from any thread."""
        self._cancelled_at = time.monotonic()
        for session in tuple(self._sessions):
            session.interrupt()

    def close(self) -> None:
        """Let go of every connection that is not in use."""
        while self._idle:
            self._close(self._idle.pop())

    def _opened(self, connection: duckdb.DuckDBPyConnection) -> Session:
        session = Session(connection, self._statement_timeout)
        self._sessions.add(session)
        return session

    def _close(self, session: Session) -> None:
        self._sessions.discard(session)
        session.close()

    @contextmanager
    def _inside(
        self, gate: Callable[[timedelta], AbstractContextManager[None]], open_file: Callable[[ExitStack], _Opened]
    ) -> Iterator[_Opened]:
        """Pass the gate, then open the file; when a process that knows no gate has it, let go of both and retry."""
        deadline = time.monotonic() + self._lock_timeout.total_seconds()
        delay = _FIRST_RETRY_SECONDS
        while True:
            with ExitStack() as held:
                held.enter_context(gate(timedelta(seconds=max(0.0, deadline - time.monotonic()))))
                try:
                    opened = open_file(held)
                except duckdb.Error as exc:
                    if not held_by_another_process(exc) or time.monotonic() >= deadline:
                        raise
                else:
                    yield opened
                    return
            self._pause(delay)
            delay = min(2 * delay, _LAST_RETRY_SECONDS)

    def _attach(self, session: Session, held: ExitStack) -> None:
        self._refuse_missing()
        # DuckDB would name it memory, which the session's own database is called.
        name = " AS memory_db" if self.path.stem.lower() == "memory" else ""
        try:
            session.run(f"ATTACH {text_literal(str(self.path))}{name} (READ_ONLY)")
        except duckdb.Error as exc:
            if not open_in_this_process(exc):
                raise
            shared = duckdb.connect(str(self.path), config=self._config)
            held.enter_context(session.moved_to(shared))
            return
        if self._name is None:
            self._name = self._find_name(session)
        held.callback(_leave, session, self._name)
        session.run(f"USE {self._name}")

    def _find_name(self, session: Session) -> str:
        """What DuckDB calls the database it just attached, as SQL: mostly the file's name without its suffix."""
        names = {
            quote(name) for (name,) in session.run("SELECT database_name FROM duckdb_databases() WHERE NOT internal")
        }
        (name,) = names - {quote("memory")} - session.attached
        return name

    def _refuse_missing(self) -> None:
        if not self.path.is_file():
            raise WarehouseError(f"There is no DuckDB file at {self.path}. Check the path; it is never created here.")

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        if time.monotonic() - self._cancelled_at < _CANCELLED_FOR_SECONDS:
            raise WarehouseError(f"Waiting for {self.path.name} was cancelled; nothing was written.")


def _leave(session: Session, alias: str) -> None:
    session.run("USE memory")
    session.run(f"DETACH {alias}")
