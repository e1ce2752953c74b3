"""Writing a stage in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Fingerprint, Recompute, Target
from airflow_backfill_provider.warehouses.postgres.catalog import find_table
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.errors import translated
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.postgres.types import UNKNOWN
from airflow_backfill_provider.warehouses.relational.added import absent, with_absent
from airflow_backfill_provider.warehouses.relational.stage import Landed, Lands, StageTable
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece
from airflow_backfill_provider.warehouses.sql import quote, quote_all
from airflow_backfill_provider.windows import Partition

_HASH = quote("safe_backfill_hash")


class PostgresStage(StageTable[Session]):
    """One batch attempt's stage: a table of its own, so that nothing of another attempt can be in it."""

    def __init__(
        self,
        session: Session,
        rows: str,
        target: Target,
        location: str,
        method: str,
        stored: Callable[[str], str],
        landing: Lands,
    ) -> None:
        super().__init__(DIALECT, session, rows, target, location, method, stored, landing)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        with translated(what), self._session.transaction(planned_by_server=True):
            yield

    def _published(self) -> str:
        table = find_table(self._session, self._target.table)
        return with_absent(table.place.sql, absent(self._target, table.column_names), DIALECT.spelling)

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

    def _land(self, selects: Sequence[tuple[Sequence[Partition], str]]) -> list[Landed]:
        return [self._land_one(partitions, select) for partitions, select in selects]

    def _land_one(self, partitions: Sequence[Partition], select: str) -> Landed:
        """Insert and fingerprint in one statement: what the table holds already is not read again for every write."""
        names = self._target.column_names
        landed = Piece.of(self._dialect, self._target, "landed", partitions)
        buckets = Buckets(partitions, [landed])
        found = self._session.run(
            # As assignments and not as casts: a value that does not fit is an error, and never cut short.
            f"WITH landed AS (INSERT INTO {self._rows} AS r ({quote_all(names)}) "
            f"SELECT {quote_all(names)} FROM (\n{select}\n) AS s "
            f"RETURNING {landed.column}, {self._dialect.row_hash(names)} AS {_HASH}) "
            "SELECT NULL AS b, count(*), NULL FROM landed UNION ALL "
            f"(SELECT b, count(*), CAST(sum(h) AS VARCHAR) FROM ({buckets.select(landed, [f'r.{_HASH} AS h'])}) AS p GROUP BY b)"
        )
        by_key = {partition.key: partition for partition in partitions}
        return Landed(
            next(rows for bucket, rows, _ in found if bucket is None),
            {
                by_key[buckets.key(bucket)]: Fingerprint(rows, digest, self._method)
                for bucket, rows, digest in found
                if bucket is not None
            },
        )

    def _own(self, name: str) -> str:
        """The target's spelling of a column that the SELECT may spell in another case."""
        names = self._target.column_names
        if name in names:
            return name
        same = [own for own in names if own.casefold() == name.casefold()]
        return same[0] if len(same) == 1 else name

    def _every_row_and(self, table: str, rest: str) -> str:
        return f"SELECT {quote_all(self._target.column_names)} FROM {table} UNION ALL {rest}"
