"""The lock that keeps readers out too, asked for so that no reader waits long for it, nor because of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from psycopg import errors

from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.sql import text_literal

_TURN = timedelta(milliseconds=300)
"""How long it is asked for at a time, and readers queue behind; below deadlock_timeout, so that nobody is its victim."""
_PAUSE = timedelta(milliseconds=200)


class SnapshotsTooOld(errors.LockNotAvailable):
    """Transactions run that began before the new rows were committed; they would see neither the old nor the new."""


def lock_everybody_out(session: Session, tables: Sequence[str], *, newest: int, wait: timedelta) -> None:
    """Keep everybody out of the tables until the transaction ends; nobody waits behind us for longer than a turn.

    :param newest: the oid of a table that every reader must be able to see the rows of, however old its snapshot is.
    :raises SnapshotsTooOld: all that time, somebody would have seen an empty range.
    :raises psycopg.errors.LockNotAvailable: it could not be had in that time, or who holds it waits for us.
    """
    over = time.monotonic() + wait.total_seconds()
    while True:
        late = _who_would_see_nothing(session, newest)
        try:
            if late:
                raise SnapshotsTooOld(
                    f"Process {', '.join(map(str, late))} is in a transaction with a view of the data from before the new rows "
                    "were filled, and would find none in the range."
                )
            with session.attempt():
                session.run(f"SET LOCAL lock_timeout = {_TURN // timedelta(milliseconds=1)}")
                session.run(f"LOCK TABLE {', '.join(f'ONLY {table}' for table in tables)} IN ACCESS EXCLUSIVE MODE")
            return
        except errors.LockNotAvailable:
            if time.monotonic() + _PAUSE.total_seconds() > over or _holder_waits_for_us(session, tables):
                raise
        time.sleep(_PAUSE.total_seconds())


def _holder_waits_for_us(session: Session, tables: Sequence[str]) -> bool:
    """Whether somebody has read one of the tables and waits to write it, which our own lock keeps him from."""
    names = ", ".join(f"{text_literal(table)}::regclass" for table in tables)
    ((waiting,),) = session.run(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation' AND l.granted "
        f"AND l.relation IN ({names}) AND l.pid <> pg_backend_pid() AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid)))"
    )
    return bool(waiting)


def _who_would_see_nothing(session: Session, newest: int) -> list[int]:
    """Processes with a snapshot from before the table was filled: to them the range would be empty after an exchange."""
    return [
        pid
        for (pid,) in session.run(
            "SELECT a.pid FROM pg_catalog.pg_stat_activity AS a, pg_catalog.pg_class AS c "
            f"WHERE c.oid = {newest} AND a.datname = current_database() AND a.backend_type = 'client backend' "
            "AND a.pid <> pg_backend_pid() AND age(a.backend_xmin) >= age(c.xmin) AND a.xact_start < now() ORDER BY 1 LIMIT 5"
        )
    ]
