"""Where code that is not ours puts its rows: a table of its own, by a connection whose every other write is noticed and undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from airflow_backfill_provider.errors import StrayWrite
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.code_rows import values_of
from airflow_backfill_provider.warehouses.postgres.errors import translated
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.sql import quote_all, text_literal

# A lock is held to the end of the transaction by whoever writes; temporary tables are gone with the connection.
_WRITTEN = """
SELECT DISTINCT c.oid::regclass::text FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted AND c.relkind IN ('r', 'p', 'm', 'f', 'v')
AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') AND c.relpersistence <> 't'
AND c.relnamespace <> 'pg_catalog'::regnamespace AND c.oid <> {table}::regclass ORDER BY 1
"""


class PostgresLanding:
    """A table that was made for one run of code; see :class:`airflow_backfill_provider.warehouses.base.Landing`."""

    def __init__(self, table: str, target: Target, open_session: Callable[[], Session]) -> None:
        """``open_session`` gives a session in whose transaction the code runs."""
        self.table = table
        self._target, self._open_session = target, open_session
        self._session: Session | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self._target.column_names

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._session is None:
            with translated("Opening a connection for code"):
                self._session = self._open_session()
        return self._session.connection

    def add(self, rows: Any) -> None:
        connection = self.connection
        with translated("Taking over what the code returned"), connection.cursor() as cursor:
            names = quote_all(self.columns)
            with cursor.copy(f"COPY {self.table} ({names}) FROM STDIN".encode()) as copy:
                for values in values_of(rows, self.columns):
                    copy.write_row(values)

    @property
    def address(self) -> Mapping[str, str]:
        return {"staging_table": self.table}

    def collect(self, address: Mapping[str, str]) -> None:
        if (other := address["staging_table"]) != self.table:
            self._copy_from(other)

    def double(self) -> None:
        self._copy_from(self.table)

    def _copy_from(self, other: str) -> None:
        connection, names = self.connection, quote_all(self.columns)
        with translated(f"Taking over the rows of {other}"):
            connection.execute(f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {other}".encode())

    def settle(self) -> None:
        """Refuse what was written elsewhere; its transaction is then rolled back, and committed otherwise.

        :raises StrayWrite: naming the tables.
        """
        if self._session is None:
            return
        with translated("Looking at what the code wrote"):
            written = [name for (name,) in self._session.run(_WRITTEN.format(table=text_literal(self.table)))]
        if written:
            raise StrayWrite(
                f"The code wrote to {', '.join(written)}, or locked it, by the connection that it was given. That was undone: "
                "nothing of it was written, staged or published. Write the rows to "
                "context.staging_table, or return them; what is needed on the way goes into a temporary table.",
                {},
            )
