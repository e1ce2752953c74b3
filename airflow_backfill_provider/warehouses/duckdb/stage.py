"""Writing aside: stages partition by partition, backups in one go. The warehouse is only ever read here."""

from __future__ import annotations

import time
from collections.abc import Sequence

from airflow_backfill_provider.errors import PartitionOverrun, WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Fingerprint, StagedPartition, Target
from airflow_backfill_provider.warehouses.duckdb.door import Door
from airflow_backfill_provider.warehouses.duckdb.errors import translated
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.sql import EMPTY_DIGEST, Piece, row_hash
from airflow_backfill_provider.warehouses.sql import quote, quote_all, text_literal
from airflow_backfill_provider.windows import Partition

ROWS = "main.staged_rows"
"""The table of a stage or backup file that holds its rows."""
COVERS = "main.covered_partitions"
"""The table of a backup file that holds the keys it covers, those without rows too."""

_SHORT_SECONDS, _LONG_SECONDS = 0.15, 1.0


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
        self._tried: set[str] = set()
        self._kept: set[str] = set()
        self._threads: int | None = None

    def create(self) -> None:
        """Make the table that :meth:`write` fills."""
        self._session.run(f"CREATE TABLE {self._rows} ({columns_sql(self._target.columns)})")

    @property
    def is_empty(self) -> bool:
        """Whether no partition was kept."""
        return not self._kept

    def write(self, partition: Partition, select: str) -> StagedPartition:
        """Run ``select`` and keep its rows as the partition's; see :class:`StageWriter`.

        Writing a partition again replaces what this attempt wrote for it.
        """
        session = self._session
        with translated(f"Staging {partition.key}"):
            if (text := session.one_select(select)) is None:
                raise WarehouseError(f"Staging {partition.key} needs one SELECT statement and nothing else.")
            started = time.monotonic()
            with self._door.reading(session), session.transaction():
                # Also after an error: it may have come when the rows were committed already.
                if partition.key in self._tried:
                    session.run(f"DELETE FROM {self._rows} AS r WHERE {self._piece(partition).predicate}")
                self._tried.add(partition.key)
                fingerprint = self._insert(partition, text)
            self._fit_threads(time.monotonic() - started)
        self._kept.add(partition.key)
        return StagedPartition(partition, self.location, fingerprint)

    def close(self) -> None:
        """Leave the session as it was."""
        if self._threads is not None:
            self._session.run(f"SET threads = {self._threads}")
            self._session.run("RESET write_buffer_row_group_count")
            self._threads = None

    def _fit_threads(self, seconds: float) -> None:
        """Run short partitions on one thread: more would not make them faster, and cost a quarter.

        A lone row group is then written without waiting for four more.
        """
        if seconds < _SHORT_SECONDS and self._threads is None:
            ((self._threads,),) = self._session.run("SELECT current_setting('threads')")
            self._session.run("SET threads = 1")
            self._session.run("SET write_buffer_row_group_count = 1")
        elif seconds > _LONG_SECONDS:
            self.close()

    def _insert(self, partition: Partition, select: str) -> Fingerprint:
        inserted = self._land(select)
        inside = self._piece(partition).predicate
        ((rows, digest),) = self._session.run(
            f"SELECT count(*), CAST(sum({row_hash(self._target.column_names)}) AS VARCHAR) "
            f"FROM {self._rows} AS r WHERE {inside}"
        )
        if rows != inserted:
            raise self._overrun(partition, select)
        return Fingerprint(rows, digest or EMPTY_DIGEST, self._method)

    def _land(self, select: str) -> int:
        # BY NAME refuses a column too many, and REPLACE one that is missing, which BY NAME would fill with NULL.
        named = ", ".join(f"s.{quote(name)} AS {quote(name)}" for name in self._target.column_names)
        ((inserted,),) = self._session.run(
            f"INSERT INTO {self._rows} BY NAME SELECT * REPLACE ({named}) FROM (\n{select}\n) AS s"
        )
        return int(inserted)

    def _overrun(self, partition: Partition, select: str) -> PartitionOverrun:
        """Which rows they are: alone in the table, within the transaction that is about to be rolled back."""
        self._session.run(f"DELETE FROM {self._rows}")
        rows = self._land(select)
        column = f"r.{quote(self._target.partition_by)}"
        stray = f"{column} IS NOT NULL AND NOT {self._piece(partition).predicate}"
        ((absent, strays, low, high),) = self._session.run(
            f"SELECT count(*) FILTER (WHERE {column} IS NULL), count(*) FILTER (WHERE {stray}), "
            f"CAST(min({column}) FILTER (WHERE {stray}) AS VARCHAR), CAST(max({column}) FILTER (WHERE {stray}) AS VARCHAR) "
            f"FROM {self._rows} AS r"
        )
        span = f", from {low} to {high}" if strays else ""
        return PartitionOverrun(
            f"{partition.key} cannot be staged: {strays} of its {rows} rows lie outside {partition.span}{span}, and "
            f"{absent} have no {self._target.partition_by}. Nothing was kept. Bound the SQL by "
            f"{partition.span.template_names} on that column."
        )

    def _piece(self, partition: Partition) -> Piece:
        return Piece.of(self._target, self._rows, (partition,))


def copy_published(session: Session, database: str, target: Target, published: Piece) -> None:
    """Fill a backup file with exactly the partitions of the published table, in one transaction."""
    names = ", ".join(f"r.{quote(name)}" for name in target.column_names)
    covered = ", ".join(f"({text_literal(partition.key)})" for partition in published.partitions)
    with session.transaction():
        session.run(f"CREATE TABLE {database}.{ROWS} ({columns_sql(target.columns)})")
        session.run(
            f"INSERT INTO {database}.{ROWS} ({quote_all(target.column_names)}) "
            f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}"
        )
        session.run(f"CREATE TABLE {database}.{COVERS} (partition_key VARCHAR)")
        session.run(f"INSERT INTO {database}.{COVERS} VALUES {covered}")
