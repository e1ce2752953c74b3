"""Writing aside: stages partition by partition, backups in one go. The warehouse is only ever read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from airflow_backfill_provider.errors import PartitionOverrun, WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Fingerprint, Recompute, StagedPartition, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import locate
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.door import Door
from airflow_backfill_provider.warehouses.duckdb.errors import translated
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece
from airflow_backfill_provider.warehouses.sql import quote, quote_all, text_literal
from airflow_backfill_provider.windows import Partition, describe, merge

ROWS = "main.staged_rows"
"""The table of a stage or backup file that holds its rows."""
COVERS = "main.covered_partitions"
"""The table of a backup file that holds the keys it covers, those without rows too."""

_NUMBER = quote("safe_backfill_statement")
"""The column of a stage that tells which statement wrote a row, so that each is held to its own partitions."""


def columns_sql(columns: Sequence[Column]) -> str:
    """The columns that can be written, as the target's types and without its constraints, which checks report."""
    return ", ".join(f"{quote(column.name)} {column.type}" for column in columns if not column.generated)


class DuckDBStage:
    """One batch attempt's stage: a file of its own, so that nothing of another attempt can be in it."""

    def __init__(self, door: Door, session: Session, database: str, target: Target, location: str, method: str) -> None:
        self.location = location
        self._door = door
        self._session = session
        self._rows = f"{database}.{ROWS}"
        self._target = target
        self._method = method
        self._tried: set[Partition] = set()
        self._kept: set[Partition] = set()
        self._numbers = count(1)

    def create(self) -> None:
        """Make the table that :meth:`write` fills."""
        self._session.run(f"CREATE TABLE {self._rows} ({columns_sql(self._target.columns)}, {_NUMBER} INTEGER)")

    @property
    def is_empty(self) -> bool:
        """Whether no partition was kept."""
        return not self._kept

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        """Run the SELECTs and keep their rows; see :class:`StageWriter`."""
        session = self._session
        partitions = tuple(partition for recompute in recomputes for partition in recompute.partitions)
        with translated(f"Staging {describe(partitions)}"):
            statements = [(next(self._numbers), recompute, self._text(recompute)) for recompute in recomputes]
            with self._door.reading(session), session.transaction():
                # Also after an error: it may have come when the rows were committed already.
                if again := self._tried.intersection(partitions):
                    session.run(f"DELETE FROM {self._rows} AS r WHERE {self._piece(sorted(again)).predicate}")
                self._tried.update(partitions)
                landed = {
                    number: self._land(number, self._with_unmatched(recompute, text))
                    for number, recompute, text in statements
                }
                marks = self._fingerprints(partitions)
                for number, recompute, text in statements:
                    found = [marks[partition] for partition in recompute.partitions]
                    foreign = any(writers != {number} for _, writers in found if writers)
                    if foreign or sum(mark.rows for mark, _ in found) != landed[number]:
                        raise self._overrun(recompute, text)
        self._kept.update(partitions)
        return tuple(StagedPartition(partition, self.location, marks[partition][0]) for partition in partitions)

    def _text(self, recompute: Recompute) -> str:
        if (text := self._session.one_select(recompute.select)) is None:
            raise WarehouseError(
                f"Staging {describe(recompute.partitions)} needs one SELECT statement and nothing else."
            )
        return text

    def _with_unmatched(self, recompute: Recompute, text: str) -> str:
        """The SELECT, and the published rows whose key it does not return."""
        if not recompute.keep_unmatched:
            return text
        published = Piece.of(
            DIALECT, self._target, locate(self._session.run, self._target.table).sql, recompute.partitions
        )
        names = ", ".join(f"r.{quote(name)}" for name in self._target.column_names)
        match = " AND ".join(f"f.{quote(name)} = r.{quote(name)}" for name in self._target.key)
        return (
            f"WITH fresh AS MATERIALIZED (\n{text}\n) SELECT * FROM fresh UNION ALL BY NAME "
            f"SELECT {names} FROM {published.table} AS r "
            f"WHERE {published.predicate} AND NOT EXISTS (SELECT 1 FROM fresh AS f WHERE {match})"
        )

    def _land(self, number: int, select: str) -> int:
        # BY NAME refuses a column too many, and REPLACE one that is missing, which BY NAME would fill with NULL.
        named = ", ".join(f"s.{quote(name)} AS {quote(name)}" for name in self._target.column_names)
        ((landed,),) = self._session.run(
            f"INSERT INTO {self._rows} BY NAME SELECT * REPLACE ({named}), {number} AS {_NUMBER} FROM (\n{select}\n) AS s"
        )
        return int(landed)

    def _fingerprints(self, partitions: Sequence[Partition]) -> Mapping[Partition, tuple[Fingerprint, set[int]]]:
        """What each partition holds, and the least and greatest number of the statements that wrote it."""
        piece = self._piece(partitions)
        buckets = Buckets(partitions, [piece])
        rows = buckets.select(piece, [f"{DIALECT.row_hash(self._target.column_names)} AS h", f"r.{_NUMBER} AS n"])
        by_key = {partition.key: partition for partition in partitions}
        nothing: tuple[Fingerprint, set[int]] = (Fingerprint(0, EMPTY_DIGEST, self._method), set())
        return dict.fromkeys(partitions, nothing) | {
            by_key[buckets.key(bucket)]: (Fingerprint(rows, digest, self._method), {first, last})
            for bucket, first, last, rows, digest in self._session.run(
                f"SELECT b, min(n), max(n), count(*), CAST(sum(h) AS VARCHAR) FROM ({rows}) AS p GROUP BY b"
            )
        }

    def _overrun(self, recompute: Recompute, select: str) -> PartitionOverrun:
        """Which rows they are: alone in the table, within the transaction that is about to be rolled back."""
        self._session.run(f"DELETE FROM {self._rows}")
        rows = self._land(0, select)
        column = f"r.{quote(self._target.partition_by)}"
        stray = f"{column} IS NOT NULL AND NOT {self._piece(recompute.partitions).predicate}"
        ((absent, strays, low, high),) = self._session.run(
            f"SELECT count(*) FILTER (WHERE {column} IS NULL), count(*) FILTER (WHERE {stray}), "
            f"CAST(min({column}) FILTER (WHERE {stray}) AS VARCHAR), CAST(max({column}) FILTER (WHERE {stray}) AS VARCHAR) "
            f"FROM {self._rows} AS r"
        )
        span = f", from {low} to {high}" if strays else ""
        spans = ", ".join(map(str, merge(recompute.partitions)))
        return PartitionOverrun(
            f"{describe(recompute.partitions)} cannot be staged: {strays} of its {rows} rows lie outside {spans}{span}, "
            f"and {absent} have no {self._target.partition_by}. Nothing was kept. Bound the SQL by "
            f"{recompute.partitions[0].span.template_names} on that column."
        )

    def _piece(self, partitions: Sequence[Partition]) -> Piece:
        return Piece.of(DIALECT, self._target, self._rows, partitions)


def copy_published(session: Session, database: str, target: Target, published: Piece) -> None:
    """Fill a backup file with exactly the partitions of the published table, in one transaction."""
    names = ", ".join(f"r.{quote(name)}" for name in target.column_names)
    covered = ", ".join(f"({text_literal(partition.key)})" for partition in published.partitions)
    with session.bulk_loading(), session.transaction():
        session.run(f"CREATE TABLE {database}.{ROWS} ({columns_sql(target.columns)})")
        session.run(
            f"INSERT INTO {database}.{ROWS} ({quote_all(target.column_names)}) "
            f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}"
        )
        session.run(f"CREATE TABLE {database}.{COVERS} (partition_key VARCHAR)")
        session.run(f"INSERT INTO {database}.{COVERS} VALUES {covered}")
