"""What every warehouse that speaks SQL answers the same way, from one statement each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Generic, TypeVar, assert_never

from airflow_backfill_provider.errors import BackfillError, PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.spec.metric import Metric, Scalar
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    NO_TOLERANCE,
    Backup,
    ChildSwap,
    Column,
    Fingerprint,
    KeyConflicts,
    OutsideRows,
    Publication,
    Published,
    Receipt,
    RowDiff,
    Rows,
    Running,
    Sample,
    SampleOf,
    Source,
    Staged,
    StagedPartition,
    Target,
    Tolerance,
    Versions,
    only_value,
)
from airflow_backfill_provider.warehouses.predicate import row_expression
from airflow_backfill_provider.warehouses.relational import statements
from airflow_backfill_provider.warehouses.relational.added import absent, with_absent
from airflow_backfill_provider.warehouses.relational.compare import compare_pieces
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST, Dialect
from airflow_backfill_provider.warehouses.relational.flags import Flags
from airflow_backfill_provider.warehouses.relational.keys import find_keys_outside
from airflow_backfill_provider.warehouses.relational.session import Session
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece
from airflow_backfill_provider.warehouses.relational.tables import Place, Table
from airflow_backfill_provider.windows import Partition, describe

_EXAMPLES = 5


_Session = TypeVar("_Session", bound=Session)


class RelationalWarehouse(ABC, Generic[_Session]):
    """The reading half of a :class:`~airflow_backfill_provider.warehouses.base.Warehouse`; an engine adds the rest."""

    dialect: Dialect
    method: str
    """What the digests are comparable within: the engine and its version."""

    @abstractmethod
    def _reading(self, what: str, *sides: Rows) -> AbstractContextManager[_Session]:
        """A session for one call that reads these sides; ``what`` starts the sentence of an error."""

    @abstractmethod
    def _find_table(self, session: _Session, name: str) -> Table:
        """The table or view of that name in the warehouse.

        :raises SpecError: there is none; the message names what exists.
        """

    @abstractmethod
    def _locate(self, session: _Session, name: str) -> Place:
        """Where the table or view of that name is; raises as :meth:`_find_table`."""

    @abstractmethod
    def _stored(self, session: _Session, location: str) -> str:
        """The SQL name of the table that holds the rows of a stage or a backup.

        :raises WarehouseError: it is gone, or was never one of ours.
        """

    @abstractmethod
    def _covered(self, session: _Session, location: str, table: str) -> set[str]:
        """The keys that a backup covers, those without rows too; ``table`` is where its rows are."""

    def aliases(self, target: Target, names: Sequence[str]) -> tuple[str, ...]:
        """None; an engine with views has its own."""
        return ()

    def source_versions(self, selects: Sequence[str], tables: Sequence[str]) -> dict[str, int]:
        """None; an engine that keeps versions of its tables has its own."""
        return {}

    def require_versions(self, versions: Versions) -> None:
        """There is none to read."""

    def source_cautions(self, versions: Versions, *, since: datetime | None, needed: timedelta) -> tuple[str, ...]:
        """None; an engine that keeps versions of its tables has its own."""
        return ()

    def receipt_cautions(self, target: Target, *, needed: timedelta) -> tuple[str, ...]:
        """None; they are rows of a table that nothing empties."""
        return ()

    def reader_cautions(self, target: Target) -> tuple[str, ...]:
        """None; an engine that sends changes to somebody has its own."""
        return ()

    def upkeep(self, target: Target, *, deleted: int) -> tuple[str, ...]:
        """None; an engine that leaves deleted rows where they are has its own."""
        return ()

    def growth_cautions(self, target: Target) -> tuple[str, ...]:
        """None; an engine on which it costs more than a commit has its own."""
        return ()

    def _has_each_key_once(self, session: _Session, target: Target) -> bool:
        """Whether the engine keeps the published table from having a key twice, and lets nobody see that it does.

        A key of the range is then not outside it.
        """
        return False

    def fingerprint(self, target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        if not partitions:
            return {}
        with self._reading("Fingerprinting", rows) as session:
            columns = target.column_names
            if isinstance(rows, Source):
                columns = self._find_table(session, rows.table).column_names
            pieces = self._pieces(session, target, rows, partitions)
            buckets = Buckets(partitions, pieces)
            found = {
                buckets.key(bucket): Fingerprint(count, digest, self.method)
                for bucket, count, digest in session.run(
                    statements.fingerprints(self.dialect, buckets, pieces, columns)
                )
            }
        empty = Fingerprint(0, EMPTY_DIGEST, self.method)
        return {partition.key: found.get(partition.key, empty) for partition in partitions}

    def measure(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[str, dict[Metric, Scalar]]:
        wanted = list(dict.fromkeys(metrics))
        if not partitions:
            return {}
        with self._reading("Measuring", *_measured_sides(rows, wanted)) as session:
            flags = self._flags(session, target, rows, wanted)
            pieces = self._pieces(session, target, rows, partitions)
            buckets = Buckets(partitions, pieces)
            found = session.run(statements.measures(buckets, pieces, wanted, flags))
        measured = {buckets.key(bucket): dict(zip(wanted, values, strict=True)) for bucket, *values in found}
        nothing = {metric: metric.nothing for metric in wanted}
        return {partition.key: measured.get(partition.key, dict(nothing)) for partition in partitions}

    def measure_together(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[Metric, Scalar]:
        wanted = list(dict.fromkeys(metrics))
        if not partitions or not wanted:
            return {metric: metric.nothing for metric in wanted}
        with self._reading("Measuring", *_measured_sides(rows, wanted)) as session:
            flags = self._flags(session, target, rows, wanted)
            pieces = self._pieces(session, target, rows, partitions)
            (values,) = session.run(statements.measures_together(pieces, wanted, flags))
        return dict(zip(wanted, values, strict=True))

    def metric_sql(self, target: Target, rows: Rows, partitions: Sequence[Partition], metric: Metric) -> str:
        with self._reading("Writing a statement", rows, Published()) as session:
            before, pieces = self._shown(session, target, rows, partitions)
            return before + statements.measures_together(
                pieces, [metric], self._shown_flags(session, target, rows, [metric])
            )

    def count_rows(self, target: Target, staged: Staged, query: str, *, where: str = "") -> int:
        partitions = tuple(entry.partition for entry in staged.partitions)
        with self._reading(f"The query on {describe(partitions)}", Published()) as session:
            if (text := session.one_select(query)) is None:
                raise WarehouseError("A check's query is one SELECT statement and nothing else.")
            columns = ", ".join(f"r.{self.dialect.spelling.quote(name)}" for name in target.column_names)
            rows = " UNION ALL ".join(
                f"SELECT {columns} FROM {piece.table} AS r WHERE {piece.predicate}"
                for piece in self._pieces(session, target, staged, partitions)
            )
            if where:
                rows = f"SELECT * FROM ({rows}) AS r WHERE {row_expression(where, self.dialect.name)}"
            with session.transaction(read_only=True):
                ((count,),) = session.run(f"WITH stage AS ({rows}) SELECT count(*) FROM (\n{text}\n) AS found")
        return int(count)

    def one_value(self, target: Target, staged: Staged, query: str) -> Scalar:
        partitions = tuple(entry.partition for entry in staged.partitions)
        with self._reading("The query", Published(), staged) as session:
            if (text := session.one_select(query)) is None:
                raise WarehouseError("A query for a report is one SELECT statement and nothing else.")
            quote = self.dialect.spelling.quote
            names = ", ".join(f"r.{quote(name)}" for name in target.column_names)
            published = self._published(session, target)
            rows = f"SELECT {names} FROM {published} AS r"
            if partitions:
                kept = Piece.of(self.dialect, target, published, partitions)
                rows = " UNION ALL ".join(
                    [
                        f"{rows} WHERE ({kept.predicate}) IS NOT TRUE",
                        *(
                            f"SELECT {names} FROM {piece.table} AS r WHERE {piece.predicate}"
                            for piece in self._pieces(session, target, staged, partitions)
                        ),
                    ]
                )
            with session.transaction(read_only=True):
                found = session.run(f"WITH {quote(AFTERWARDS)} AS ({rows}) SELECT * FROM (\n{text}\n) AS found LIMIT 2")
        return only_value(found)

    def compare(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition], *, exclude: Sequence[str] = ()
    ) -> dict[str, RowDiff]:
        if not partitions:
            return {}
        with self._reading("Comparing", old, new) as session:
            sides = [self._pieces(session, target, rows, partitions) for rows in (old, new)]
            compared = target.compared(exclude)
            return compare_pieces(
                self.dialect, session.run, target, compared, sides[0], sides[1], partitions, self.method
            )

    def changed_columns(
        self,
        target: Target,
        old: Rows,
        new: Rows,
        partitions: Sequence[Partition],
        *,
        exclude: Sequence[str] = (),
        tolerance: Tolerance = NO_TOLERANCE,
    ) -> dict[str, dict[str, int]]:
        if not partitions:
            return {}
        columns = target.compared(exclude)
        with self._reading("Comparing columns", old, new) as session:
            sides = [self._pieces(session, target, rows, partitions) for rows in (old, new)]
            buckets = Buckets(partitions, [*sides[0], *sides[1]])
            found = session.run(statements.changes_by_column(buckets, target, columns, sides[0], sides[1], tolerance))
        changes = {
            buckets.key(bucket): {name: count for name, count in zip(columns, counts, strict=True) if count}
            for bucket, *counts in found
        }
        return {partition.key: changes.get(partition.key, {}) for partition in partitions}

    def moved_keys(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition]
    ) -> dict[tuple[str, str], int]:
        if not partitions:
            return {}
        with self._reading("Looking for moved keys", old, new) as session:
            sides = [self._pieces(session, target, rows, partitions) for rows in (old, new)]
            buckets = Buckets(partitions, [*sides[0], *sides[1]])
            found = session.run(statements.moved_keys(buckets, target, sides[0], sides[1]))
        return {(buckets.key(left), buckets.key(came)): count for left, came, count in found}

    def keep_sample(
        self, target: Target, backfill_id: str, old: Rows, new: Rows, partitions: Sequence[Partition], what: SampleOf
    ) -> Sample:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to keep a sample of.")

        def select(session: _Session) -> str:
            sides = [self._pieces(session, target, rows, partitions) for rows in (old, new)]
            buckets = Buckets(partitions, [*sides[0], *sides[1]])
            return statements.sample(self.dialect, buckets, target, what, sides[0], sides[1])

        location = self._keep_sample(target, backfill_id, (old, new), select)
        try:
            with self._reading("Reading a sample") as session:
                found = session.run(statements.sampled(self.dialect, self._stored(session, location), what))
        except BaseException:
            with suppress(BackfillError):
                self.drop(location)
            raise
        return Sample(location, tuple(tuple(row) for row in found))

    @abstractmethod
    def drop(self, location: str) -> None:
        """See :meth:`~airflow_backfill_provider.warehouses.base.Warehouse.drop`."""

    @abstractmethod
    def _keep_sample(
        self, target: Target, backfill_id: str, sides: tuple[Rows, Rows], select: Callable[[_Session], str]
    ) -> str:
        """Keep what the SELECT over these sides returns in a new place beside the stages, in one commit; its location."""

    def outside_rows(self, target: Target) -> OutsideRows:
        with self._reading("Counting rows outside every partition", Published()) as session:
            table = self._find_table(session, target.table).place.sql
            column = self.dialect.spelling.quote(target.partition_by)
            ((count,),) = session.run(f"SELECT count(*) FROM {table} AS r WHERE r.{column} IS NULL")
        return OutsideRows(count)

    def key_conflicts(self, target: Target, staged: Staged, *, no_new_keys: bool = False) -> KeyConflicts:
        partitions = tuple(entry.partition for entry in staged.partitions)
        if not partitions:
            return KeyConflicts(0, 0)
        by_partition = target.partition_by in target.key
        # A key that holds the partition column cannot be outside the range, so the published table is not even read.
        with self._reading("Looking for key conflicts", staged if by_partition else Published()) as session:
            pieces = self._pieces(session, target, staged, partitions)
            repeated = [] if no_new_keys else session.run(statements.keys_repeated(pieces, target.key))
            outside = []
            if not by_partition and not (no_new_keys and self._has_each_key_once(session, target)):
                (published,) = self._pieces(session, target, Published(), partitions)
                outside = find_keys_outside(self.dialect, session.run, target, pieces, published)
        examples = dict.fromkeys([*outside, *repeated])
        named = (", ".join(f"{name}={value}" for name, value in zip(target.key, key, strict=True)) for key in examples)
        return KeyConflicts(len(outside), len(repeated), tuple(islice(named, _EXAMPLES)))

    def key_conflict_sql(self, target: Target, staged: Staged) -> tuple[str, str]:
        partitions = tuple(entry.partition for entry in staged.partitions)
        with self._reading("Writing a statement", staged, Published()) as session:
            before, pieces = self._shown(session, target, staged, partitions)
            _, (published,) = self._shown(session, target, Published(), partitions)
        outside = statements.keys_outside(self.dialect, pieces, published, target.key)
        return before + outside, before + statements.keys_repeated(pieces, target.key)

    def _shown(
        self, session: _Session, target: Target, rows: Rows, partitions: Sequence[Partition]
    ) -> tuple[str, tuple[Piece, ...]]:
        """The lines before a statement for a person, and :meth:`_pieces` with the tables as that person names them."""
        return "", self._pieces(session, target, rows, partitions)

    def _pieces(
        self, session: _Session, target: Target, rows: Rows, partitions: Sequence[Partition]
    ) -> tuple[Piece, ...]:
        """The partitions of that side, in as few tables as there are.

        :raises WarehouseError: a stage or backup is gone, or a partition is not in it.
        :raises SpecError: there is no such table, or its partition column tells no time.
        """
        match rows:
            case Published():
                return (Piece.of(self.dialect, target, self._published(session, target), partitions),)
            case Source():
                return (self._source(self._find_table(session, rows.table), rows, partitions),)
            case Staged():
                locations = {entry.partition: entry.location for entry in rows.partitions}
                _refuse_absent([one.key for one in partitions if one not in locations], "the staged partitions")
                by_location: dict[str, list[Partition]] = {}
                for partition in partitions:
                    by_location.setdefault(locations[partition], []).append(partition)
                return tuple(
                    Piece.of(self.dialect, target, self._stored(session, location), own)
                    for location, own in by_location.items()
                )
            case Backup(location):
                table = self._stored(session, location)
                covered = self._covered(session, location, table)
                _refuse_absent([one.key for one in partitions if one.key not in covered], location)
                return (Piece.of(self.dialect, target, table, partitions),)
            case _:
                assert_never(rows)

    def _published(self, session: _Session, target: Target, name: str = "") -> str:
        """The published table, as SQL to read from; ``name`` is how the statement is to name it."""
        name = name or self._locate(session, target.table).sql
        return with_absent(name, self._absent(session, target), self.dialect.spelling)

    def _absent(self, session: _Session, target: Target) -> tuple[Column, ...]:
        """The columns that a publish adds, as long as they are not there."""
        return absent(target, self._find_table(session, target.table).column_names) if target.added else ()

    def _source(self, table: Table, source: Source, partitions: Sequence[Partition], *, name: str = "") -> Piece:
        """The source's rows; ``name`` is how the statement is to name the table."""
        column = table.column(source.partition_by)
        clock = table.clock(self.dialect, column.name, source.reading)
        rows = name or table.place.sql
        if source.where:
            rows = f"(SELECT * FROM {rows} AS own WHERE {row_expression(source.where, self.dialect.name)})"
        return Piece(self.dialect, rows, column.name, column.type, clock, tuple(partitions))

    def take_over(
        self, target: Target, backfill_id: str, running: Running, partitions: Sequence[Partition]
    ) -> tuple[StagedPartition, ...]:
        """Take over nothing; an engine whose statements go on without their connection has its own."""
        return ()

    def swap_view(self, target: Target, publication: Publication) -> Receipt:
        """Refuse; an engine whose targets may be views has its own.

        :raises PublishRefused: always.
        """
        raise PublishRefused(
            f"{target.table}: {self.dialect.name} tables are not swapped behind a view. Nothing was written."
        )

    def plan_swap(self, target: Target, partitions: Sequence[Partition]) -> ChildSwap:
        """Refuse; an engine whose tables have children has its own.

        :raises SpecError: always.
        """
        raise SpecError(
            f"{target.table}: {self.dialect.name} tables have no partitions that can be exchanged. Set publish.swap: false."
        )

    def fill_children(self, target: Target, backfill_id: str, staged: Staged) -> Backup:
        """As :meth:`plan_swap`.

        :raises PublishRefused: always.
        """
        raise self._without_children(target)

    def swap_children(self, target: Target, publication: Publication) -> Receipt:
        """As :meth:`plan_swap`.

        :raises PublishRefused: always.
        """
        raise self._without_children(target)

    def _without_children(self, target: Target) -> PublishRefused:
        return PublishRefused(
            f"{target.table}: {self.dialect.name} tables have no partitions that can be exchanged. Nothing was written."
        )

    def _shown_flags(self, session: _Session, target: Target, rows: Rows, metrics: Sequence[Metric]) -> Flags:
        """As :meth:`_flags`, with the tables as a person names them."""
        return self._flags(session, target, rows, metrics)

    def _flags(self, session: _Session, target: Target, rows: Rows, metrics: Sequence[Metric]) -> Flags:
        types = {} if isinstance(rows, Source) else {column.name: column.type for column in target.columns}
        return Flags(self.dialect, metrics, types, lambda name: self._find_table(session, name).place.sql)


def _measured_sides(rows: Rows, metrics: Sequence[Metric]) -> list[Rows]:
    """What a measurement reads: the warehouse too, when a metric names another table of it."""
    return [rows, Published()] if any(metric.to_table for metric in metrics) else [rows]


def _refuse_absent(keys: Sequence[str], where: str) -> None:
    if keys:
        raise WarehouseError(f"{', '.join(keys)} is not in {where}. Stage it, or back it up, first.")
