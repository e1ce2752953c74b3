"""Writing a stage in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Recompute, Target
from airflow_backfill_provider.warehouses.postgres.catalog import locate
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.errors import translated
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.postgres.types import UNKNOWN
from airflow_backfill_provider.warehouses.relational.stage import NUMBER, StageTable
from airflow_backfill_provider.warehouses.sql import quote, quote_all


class PostgresStage(StageTable[Session]):
    """One batch attempt's stage: a table of its own, so that nothing of another attempt can be in it."""

    def __init__(self, session: Session, rows: str, target: Target, location: str, method: str) -> None:
        super().__init__(DIALECT, session, rows, target, location, method)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        with translated(what), self._session.transaction(planned_by_server=True):
            yield

    def _published(self) -> str:
        return locate(self._session, self._target.table).sql

    def _text(self, recompute: Recompute) -> str:
        """The SELECT with the target's columns, in its spelling and order; a bare NULL is one of the column's type."""
        text = super()._text(recompute)
        given = {self._own(name): (name, kind) for name, kind in self._session.columns(text)}
        columns = {column.name: column.type for column in self._target.columns if not column.generated}
        if surplus := sorted(given.keys() - columns.keys()):
            raise WarehouseError(
                f"The SELECT returns {', '.join(surplus)}, which {self._target.table} does not have. Nothing was kept."
            )
        if missing := [name for name in columns if name not in given]:
            raise WarehouseError(f"The SELECT does not return {', '.join(missing)}. Nothing was kept.")
        picks = ", ".join(
            f"{f'CAST(NULL AS {own})' if given[name][1] == UNKNOWN else f's.{quote(given[name][0])}'} AS {quote(name)}"
            for name, own in columns.items()
        )
        return f"SELECT {picks} FROM (\n{text}\n) AS s"

    def _land(self, number: int, select: str) -> int:
        # As assignments and not as casts: a value that does not fit is an error, and never cut short.
        names = self._target.column_names
        ((landed,),) = self._session.run(
            f"INSERT INTO {self._rows} ({quote_all(names)}, {NUMBER}) "
            f"SELECT {quote_all(names)}, {number} FROM (\n{select}\n) AS s"
        )
        return int(landed)

    def _own(self, name: str) -> str:
        """The target's spelling of a column that the SELECT may spell in another case."""
        names = self._target.column_names
        if name in names:
            return name
        same = [own for own in names if own.casefold() == name.casefold()]
        return same[0] if len(same) == 1 else name

    def _every_row_and(self, table: str, rest: str) -> str:
        return f"SELECT {quote_all(self._target.column_names)} FROM {table} UNION ALL {rest}"
