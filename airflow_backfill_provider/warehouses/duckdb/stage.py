"""Writing aside: stages partition by partition, backups in one go. The warehouse is only ever read here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from airflow_backfill_provider.warehouses.base import Fingerprint, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import find_table
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.door import Door
from airflow_backfill_provider.warehouses.duckdb.errors import translated
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.added import absent, with_absent
from airflow_backfill_provider.warehouses.relational.stage import Landed, Lands, StageTable, stored_columns
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece
from airflow_backfill_provider.warehouses.sql import quote, quote_all, text_literal
from airflow_backfill_provider.windows import Partition

ROWS = "main.staged_rows"
"""The table of a stage or backup file that holds its rows."""
COVERS = "main.covered_partitions"
"""The table of a backup file that holds the keys it covers, those without rows too."""
NUMBER = quote("safe_backfill_statement")
"""The column of a stage that tells which statement wrote a row, so that each is held to its own partitions."""
_AT_ONCE = 16
"""How many SELECTs land by one statement: one for each costs half as much again, and a text must not grow with the plan."""

_Session = TypeVar("_Session", bound=Session)


class RowsByName(StageTable[_Session]):
    """A stage whose rows DuckDB lands in a table, by name; the table has :data:`NUMBER` too."""

    _statements = 0
    """How many statements have landed rows."""

    def create(self) -> None:
        """Make the table that :meth:`write` fills."""
        columns = ", ".join([*stored_columns(self._target.columns), f"{NUMBER} INTEGER"])
        self._session.run(f"CREATE TABLE {self._rows} ({columns})")

    def _land(self, selects: Sequence[tuple[Sequence[Partition], str]]) -> list[Landed]:
        numbered = dict(enumerate((select for _, select in selects), self._statements))
        self._statements += len(selects)
        texts = list(numbered.items())
        landed = sum(self._insert(dict(texts[first : first + _AT_ONCE])) for first in range(0, len(texts), _AT_ONCE))
        marks = self._fingerprints([partition for partitions, _ in selects for partition in partitions])
        own = [
            {one: marks[number, one] for one in partitions if (number, one) in marks}
            for number, (partitions, _) in zip(numbered, selects, strict=True)
        ]
        rows = [sum(mark.rows for mark in found.values()) for found in own]
        if sum(rows) != landed:
            counted = dict(self._session.run(f"SELECT {NUMBER}, count(*) FROM {self._rows} GROUP BY ALL"))
            rows = [counted.get(number, 0) for number in numbered]
        return list(map(Landed, rows, own))

    def _insert(self, selects: Mapping[int, str]) -> int:
        """Insert the rows of each SELECT by name, under its number, in one statement; how many they were."""
        # BY NAME refuses a column too many, and REPLACE one that is missing, which BY NAME would fill with NULL. UNION
        # would find a type that every SELECT's values fit in, which is not always the column's.
        named = ", ".join(
            f"CAST(s.{quote(column.name)} AS {column.type}) AS {quote(column.name)}"
            for column in self._target.columns
            if not column.generated
        )
        rows = " UNION ALL BY NAME ".join(
            f"SELECT * REPLACE ({named}), {number} AS {NUMBER} FROM (\n{select}\n) AS s"
            for number, select in selects.items()
        )
        ((landed,),) = self._session.run(f"INSERT INTO {self._rows} BY NAME {rows}")
        return int(landed)

    def _fingerprints(self, partitions: Sequence[Partition]) -> Mapping[tuple[int, Partition], Fingerprint]:
        """What each statement wrote into each partition."""
        piece = self._piece(partitions)
        buckets = Buckets(partitions, [piece])
        rows = buckets.select(piece, [f"{self._dialect.row_hash(self._target.column_names)} AS h", f"r.{NUMBER} AS n"])
        by_key = {partition.key: partition for partition in partitions}
        return {
            (number, by_key[buckets.key(bucket)]): Fingerprint(count, digest, self._method)
            for bucket, number, count, digest in self._session.run(
                f"SELECT b, n, count(*), CAST(sum(h) AS VARCHAR) FROM ({rows}) AS p GROUP BY b, n"
            )
        }

    def _every_row_and(self, table: str, rest: str) -> str:
        return f"SELECT * FROM {table} UNION ALL BY NAME {rest}"


class DuckDBStage(RowsByName[Session]):
    """One batch attempt's stage: a file of its own, so that nothing of another attempt can be in it."""

    def __init__(
        self,
        door: Door,
        session: Session,
        database: str,
        target: Target,
        location: str,
        method: str,
        stored: Callable[[str], str],
        landing: Lands,
    ) -> None:
        super().__init__(DIALECT, session, f"{database}.{ROWS}", target, location, method, stored, landing)
        self._door = door

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        with translated(what), self._door.reading(self._session), self._session.transaction():
            yield

    def _published(self) -> str:
        table = find_table(self._session.run, self._target.table)
        return with_absent(table.place.sql, absent(self._target, table.column_names), DIALECT.spelling)


def copy_published(session: Session, database: str, target: Target, published: Piece) -> None:
    """Fill a backup file with exactly the partitions of the published table, in one transaction."""
    names = ", ".join(f"r.{quote(name)}" for name in target.column_names)
    covered = ", ".join(f"({text_literal(partition.key)})" for partition in published.partitions)
    with session.bulk_loading(), session.transaction():
        session.run(f"CREATE TABLE {database}.{ROWS} ({', '.join(stored_columns(target.columns))})")
        session.run(
            f"INSERT INTO {database}.{ROWS} ({quote_all(target.column_names)}) "
            f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}"
        )
        session.run(f"CREATE TABLE {database}.{COVERS} (partition_key VARCHAR)")
        session.run(f"INSERT INTO {database}.{COVERS} VALUES {covered}")
