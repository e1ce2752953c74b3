"""The lock that keeps every other writer out of a table, and who has it instead."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote_path, text_literal

_LETS_US_IN = ("AccessShareLock", "RowShareLock")


def lock_alone(session: Session, place: Place) -> None:
    """Keep every writer and every other publisher out until the transaction ends; readers are never held.

    What was committed before is seen by the statements after it.

    :raises psycopg.errors.LockNotAvailable: somebody else had the table for as long as the transaction waits.
    """
    session.run(f"LOCK TABLE {place.sql} IN SHARE ROW EXCLUSIVE MODE")


def holders(session: Session, place: Place) -> str:
    """A sentence that names who has, or waits for, a lock that we cannot share."""
    relation = f"{text_literal(quote_path(place.schema, place.name))}::regclass"
    shared = ", ".join(map(text_literal, _LETS_US_IN))
    found = session.run(
        "SELECT DISTINCT a.pid, a.usename, a.application_name, a.state, left(regexp_replace(a.query, '\\s+', ' ', 'g'), 80), "
        "date_trunc('second', clock_timestamp() - a.xact_start)::text, l.granted "
        "FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a USING (pid) "
        f"WHERE l.relation = {relation} AND l.mode NOT IN ({shared}) AND l.pid <> pg_backend_pid() ORDER BY l.granted DESC, 1 LIMIT 5"
    )
    if not found:
        return "Whoever had it has let go of it by now."
    return (
        "; ".join(
            f"Process {pid} of {user}{f' ({application})' if application else ''} {'has' if granted else 'waits for'} it, "
            f"{state}, in a transaction since {since}: {query}"
            for pid, user, application, state, query, since, granted in found
        )
        + "."
    )
