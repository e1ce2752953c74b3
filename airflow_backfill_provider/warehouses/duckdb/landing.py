"""Where code that is not ours puts its rows: a table in a DuckDB of its own, which can read the warehouse and write nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from airflow_backfill_provider.errors import CodeFailed, WarehouseError
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.code_rows import values_of
from airflow_backfill_provider.warehouses.duckdb.errors import no_transaction, translated
from airflow_backfill_provider.warehouses.duckdb.one_type import require_one_type
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

    def __init__(
        self,
        session: Session,
        database: str,
        target: Target,
        open_warehouse: Callable[[], None],
        handed_over: Path | None = None,
    ) -> None:
        """``open_warehouse`` brings the warehouse into the session, to be read; another process may write the Parquet file
        ``handed_over``, since it could not open a database that this one has open."""
        self._handed_over = handed_over
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
            if isinstance(rows, duckdb.DuckDBPyRelation):  # which only the connection that made it can read
                self._require_sound()
                self._add(self._session, rows)
                return
            # Rows may come one by one from a result of the code's own connection, which another statement on it would end.
            with closing(Session(self._session.connection.cursor(), None)) as beside:
                if _is_frame(rows):
                    self._add(beside, _readable_twice(rows))
                    return
                values = values_of(rows, self.columns)
                while some := list(islice(values, _AT_ONCE)):
                    self._add_values(beside, some)

    @property
    def address(self) -> Mapping[str, str]:
        if self._handed_over is None:
            raise WarehouseError("Rows are in memory here, where another process cannot put any.")
        return {"staging_file": str(self._handed_over)}

    def collect(self, address: Mapping[str, str]) -> None:
        file = Path(address["staging_file"])
        if not file.is_file():
            raise CodeFailed(
                f"The run ended well and there is no file {file}. Nothing was staged. Let it write its rows there, as Parquet; a "
                "partition without rows is a file without rows."
            )
        with translated(f"Reading {file.name}"):
            rows = self._session.connection.read_parquet(str(file))
        self.add(rows)

    def double(self) -> None:
        self._require_sound()
        with translated("Doubling what the code gave"):
            self._session.run(f"INSERT INTO {self._table} SELECT * FROM {self._table}")

    def settle(self) -> None:
        """Commit what code left open; nothing when it left nothing.

        :raises WarehouseError: a statement of it failed, so that the engine would keep nothing.
        """
        self._require_sound()
        with translated("Committing what the code wrote"):
            try:
                self._session.commit()
            except duckdb.TransactionException as error:
                if not no_transaction(error):
                    raise

    def _require_sound(self) -> None:
        """:raises WarehouseError: the transaction that code left open is aborted; its COMMIT would undo it without a word."""
        try:
            self._session.run("SELECT 1")
        except duckdb.TransactionException as error:
            raise WarehouseError(
                "The transaction that the code left open was aborted by a statement that failed, so nothing of it could be kept. "
                "Nothing was staged. Let the error out of the function, or leave BEGIN and COMMIT to the caller: without BEGIN "
                "each statement stands alone."
            ) from error

    def _add_values(self, session: Session, rows: Sequence[tuple[Any, ...]]) -> None:
        given = dict(zip(self.columns, zip(*rows, strict=True), strict=True))
        for name, values in given.items():
            require_one_type(name, values)
        parameters = {f"column_{place}": list(values) for place, values in enumerate(given.values())}
        named = ", ".join(f"unnest(${one}) AS {quote(name)}" for one, name in zip(parameters, given, strict=True))
        # A table, as a relation would have every value bound anew each time that it is read.
        session.connection.execute(f"CREATE OR REPLACE TEMPORARY TABLE {_RETURNED} AS SELECT {named}", parameters)
        self._take_over(session)

    def _add(self, session: Session, rows: Any) -> None:
        session.connection.register(_RETURNED, rows)
        try:
            self._take_over(session)
        finally:
            session.connection.unregister(_RETURNED)

    def _take_over(self, session: Session) -> None:
        given = {name: kind for name, kind, *_ in session.run(f"DESCRIBE {_RETURNED}")}
        self._refuse_lossy(session, given)
        named = ", ".join(f"s.{quote(name)} AS {quote(name)}" for name in self.columns)
        session.run(f"INSERT INTO {self._table} BY NAME SELECT * REPLACE ({named}) FROM {_RETURNED} AS s")

    def _refuse_lossy(self, session: Session, given: Mapping[str, str]) -> None:
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
        (counts,) = session.run(f"SELECT {', '.join(checks.values())} FROM {_RETURNED}")
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


def _readable_twice(rows: Any) -> Any:
    """A table of what can be read once only; and a data frame once it is known that DuckDB reads its values as they are."""
    if hasattr(rows, "read_all"):  # a reader of Arrow's
        return rows.read_all()
    if hasattr(rows, "itertuples"):  # pandas, whose columns of objects may hold any mixture
        for name, column in rows.items():
            if column.dtype == object:
                require_one_type(str(name), column[column.notna()])
    return rows
