"""The lock that keeps every other writer out of a table, and who holds us up meanwhile."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place

_LOOKS = 3
"""How often a watch looks while one wait lasts."""
_SELDOM = timedelta(seconds=1)
_LITERAL = re.compile(r"""(?:\b[ebxn]|\bu&)?'.*|\$.*|\b\d.*""", re.DOTALL | re.IGNORECASE)
"""From the first value in somebody else's statement on, which is not for our log."""


@dataclass(frozen=True)
class Locked:
    """When a lock was asked for and when it was had, in seconds of the monotonic clock."""

    asked_at: float
    had_at: float


def lock_alone(session: Session, place: Place) -> Locked:
    """Keep every writer and every other publisher out until the transaction ends; readers are never held.

    What was committed before is seen by the statements after it.

    :raises psycopg.errors.LockNotAvailable: somebody else had the table for as long as the transaction waits.
    """
    asked_at = time.monotonic()
    session.run(f"LOCK TABLE {place.sql} IN SHARE ROW EXCLUSIVE MODE")
    return Locked(asked_at, time.monotonic())


class Watch:
    """Looks, from a session of its own, at who holds up another one: once a wait is over, the server cannot say any more.

    As a context, it must be entered before the transaction that it follows: leaving it waits for the last look, and behind a
    pooler that look may be waiting for the very connection that the transaction has.
    """

    def __init__(self, beside: Session) -> None:
        self._beside = beside
        self._found: list[str] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def blockers(self) -> str:
        """A sentence for each process that held the session up when it was last looked at."""
        return " ".join(self._found) or "Nobody was seen to hold it."

    def __enter__(self) -> None:
        self._over.clear()

    def follow(self, pid: int, wait: timedelta) -> None:
        """Look at that server process, which waits for a lock at most so long, until the context ends."""
        pause = min(wait / _LOOKS, _SELDOM).total_seconds()

        def look() -> None:
            while not self._over.wait(pause):
                try:
                    self._found = _blockers(self._beside, pid) or self._found
                except psycopg.Error:
                    return

        self._thread = threading.Thread(target=look, name="safe-backfill-lock-watch", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _blockers(session: Session, pid: int) -> list[str]:
    """Who has, or waits before us for, a lock that the process needs: of a table, a row, a transaction, anything."""
    with session.transaction(read_only=True):
        blocking = f"SELECT DISTINCT unnest(pg_blocking_pids({pid})) AS pid"
        found = describe_processes(session, f"SELECT pid FROM ({blocking}) AS p WHERE pid <> 0", "holds it")
        if session.run(f"SELECT 1 FROM ({blocking}) AS p WHERE pid = 0"):
            # The server gives 0 for every transaction that was prepared for a commit in two phases.
            found += [
                f"A transaction that {owner} prepared as {gid!r} at {prepared} holds it; COMMIT PREPARED or ROLLBACK PREPARED it."
                for gid, owner, prepared in session.run(
                    "SELECT gid, owner, date_trunc('second', prepared)::text FROM pg_catalog.pg_prepared_xacts "
                    "WHERE database = current_database() ORDER BY prepared LIMIT 5"
                )
            ]
    return found


def describe_processes(session: Session, pids: str, what: str) -> list[str]:
    """A sentence for each of the server's processes that the query ``pids`` selects; ``what`` is what each of them does."""
    return [
        _sentence(what, *process)
        for process in session.run(
            "SELECT b.pid, a.usename, a.application_name, coalesce(a.state, a.backend_type), "
            "left(regexp_replace(a.query, '\\s+', ' ', 'g'), 80), "
            f"date_trunc('second', clock_timestamp() - a.xact_start)::text FROM ({pids}) AS b "
            "LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid ORDER BY b.pid LIMIT 5"
        )
    ]


def _sentence(
    what: str,
    pid: int,
    user: str | None,
    application: str | None,
    state: str | None,
    query: str | None,
    since: str | None,
) -> str:
    parts = [
        f"Process {pid}" + (f" of {user}" if user else "") + (f" ({application})" if application else "") + f" {what}",
        *([state] if state else []),
        *([f"in a transaction since {since}"] if since else []),
    ]
    return ", ".join(parts) + (f": {_LITERAL.sub('…', query)}." if query else ".")
