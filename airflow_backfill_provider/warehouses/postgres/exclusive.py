"""The lock that keeps readers out too, taken only in a moment in which nobody has to wait for us to get it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from psycopg import errors

from airflow_backfill_provider.warehouses.postgres.locks import describe_processes
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.sql import text_literal

_PAUSE = timedelta(milliseconds=50)


class Occupied(errors.LockNotAvailable):
    """There was no such moment; the message says who was there."""


def lock_everybody_out(session: Session, tables: Sequence[str], *, newest: int | None = None, wait: timedelta) -> None:
    """Keep everybody out of the tables until the transaction ends.

    It is asked for again and again and never waited for in the queue: readers would wait behind us there, and a
    transaction that has read a table and goes on to write it would be ended by the server, as a deadlock with us.

    :param newest: the oid of a table that every reader must be able to see the rows of, however old its snapshot is; None
        where there is none.
    :raises Occupied: for so long there was no moment without readers, or one of them waits for us.
    """
    over = time.monotonic() + wait.total_seconds()
    while True:
        found = "" if newest is None else _late_readers(session, newest)
        if not found:
            try:
                with session.attempt():
                    session.run(
                        f"LOCK TABLE {', '.join(f'ONLY {table}' for table in tables)} IN ACCESS EXCLUSIVE MODE NOWAIT"
                    )
                return
            except errors.LockNotAvailable:
                found = _readers(session, tables)
        if time.monotonic() > over or _reader_waits_for_us(session, tables):
            raise Occupied(found or "Readers came and went all the time.")
        time.sleep(_PAUSE.total_seconds())


def _holders(tables: Sequence[str]) -> str:
    """Selects who else has a lock on one of the tables."""
    names = ", ".join(f"{text_literal(table)}::regclass" for table in tables)
    return (
        "SELECT DISTINCT l.pid FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation' AND l.granted "
        f"AND l.relation IN ({names}) AND l.pid <> pg_backend_pid()"
    )


def _readers(session: Session, tables: Sequence[str]) -> str:
    return " ".join(describe_processes(session, _holders(tables), "holds it"))


def _reader_waits_for_us(session: Session, tables: Sequence[str]) -> bool:
    """Whether somebody has read one of the tables and waits to write it, which our own lock keeps him from."""
    ((waiting,),) = session.run(
        f"SELECT EXISTS (SELECT FROM ({_holders(tables)}) AS l WHERE pg_backend_pid() = ANY (pg_blocking_pids(l.pid)))"
    )
    return bool(waiting)


def _late_readers(session: Session, newest: int) -> str:
    """Processes with a view of the data from before the table was filled: they would find neither old nor new rows."""
    late = (
        "SELECT a.pid FROM pg_catalog.pg_stat_activity AS a, pg_catalog.pg_class AS c "
        f"WHERE c.oid = {newest} AND a.datname = current_database() AND a.backend_type = 'client backend' "
        "AND a.pid <> pg_backend_pid() AND age(a.backend_xmin) >= age(c.xmin) AND a.xact_start < now()"
    )
    return " ".join(
        describe_processes(
            session, late, "sees the data as it was before the new rows were filled, so it would find none"
        )
    )
