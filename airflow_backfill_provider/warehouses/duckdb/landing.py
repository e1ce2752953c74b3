"""Where code that is not ours puts its rows: a table in a DuckDB of its own, which can read the warehouse and write nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import duckdb

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.code_rows import values_of
from airflow_backfill_provider.warehouses.duckdb.errors import translated
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.types import lossless
from airflow_backfill_provider.warehouses.relational.stage import stored_columns
from airflow_backfill_provider.warehouses.sql import quote

TABLE = "main.landed_rows"
_RETURNED = "safe_backfill_returned"
_AT_ONCE = 10_000
"""How many rows that came one by one go into a statement."""


class DuckDBLanding:
    """One table in the database ``database`` of a session that this code has for itself.

    See :class:`airflow_backfill_provider.warehouses.base.Landing`.
    """

    def __init__(self, session: Session, database: str, target: Target, open_warehouse: Callable[[], None]) -> None:
        """``open_warehouse`` brings the warehouse into the session, to be read."""
        self._session, self._target, self._open_warehouse = session, target, open_warehouse
        self._table = f"{database}.{TABLE}"
        self._is_open = False
        session.run(f"CREATE TABLE {self._table} ({', '.join(stored_columns(target.columns))})")

    @property
    def table(self) -> str:
        return self._table

    @property
    def columns(self) -> tuple[str, ...]:
        return self._target.column_names

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        if not self._is_open:
            with translated("Opening the warehouse for code"):
                self._open_warehouse()
            self._is_open = True
        return self._session.connection

    def add(self, rows: Any) -> None:
        with translated("Taking over what the code returned"):
            if isinstance(rows, duckdb.DuckDBPyRelation) or _is_frame(rows):
                self._add(rows)
                return
            named = (dict(zip(self.columns, values, strict=True)) for values in values_of(rows, self.columns))
            while some := list(islice(named, _AT_ONCE)):
                self._add(self._session.connection.sql("SELECT unnest($rows, max_depth := 2)", params={"rows": some}))

    def settle(self) -> None:
        """Commit what code left open; nothing when it left nothing."""
        with suppress(duckdb.TransactionException):
            self._session.commit()

    def _add(self, rows: Any) -> None:
        connection = self._session.connection
        connection.register(_RETURNED, rows)
        try:
            given = {name: kind for name, kind, *_ in self._session.run(f"DESCRIBE {_RETURNED}")}
            self._refuse_lossy(given)
            named = ", ".join(f"s.{quote(name)} AS {quote(name)}" for name in self.columns)
            self._session.run(f"INSERT INTO {self._table} BY NAME SELECT * REPLACE ({named}) FROM {_RETURNED} AS s")
        finally:
            connection.unregister(_RETURNED)

    def _refuse_lossy(self, given: Mapping[str, str]) -> None:
        """:raises WarehouseError: a value would be another one as the target's type, such as 1.5 in a BIGINT."""
        own = {column.name.casefold(): column for column in self._target.columns}
        checks = {
            name: f"count(*) FILTER (WHERE {quote(name)} IS DISTINCT FROM "
            f"CAST(CAST({quote(name)} AS {column.type}) AS {kind}))"
            for name, kind in given.items()
            if (column := own.get(name.casefold())) is not None and not lossless(kind, column.type)
        }
        if not checks:
            return
        (counts,) = self._session.run(f"SELECT {', '.join(checks.values())} FROM {_RETURNED}")
        changed = [
            f"{name} ({given[name]} into {own[name.casefold()].type}) in {rows} rows"
            for name, rows in zip(checks, counts, strict=True)
            if rows
        ]
        if changed:
            raise WarehouseError(
                f"What the code returned would lose values: {', '.join(changed)}. Nothing was kept. Return them as the "
                "target's type."
            )


def _is_frame(rows: Any) -> bool:
    """Whether DuckDB reads it as a table by itself: a data frame, an Arrow table or a reader of one."""
    return hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "itertuples")
