"""DuckDB: one warehouse file, a stage file for each batch attempt, a backup file for each publish.

Every process that uses a warehouse must run on the host of the file and name the same staging folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path

import duckdb

from airflow_backfill_provider.errors import PublishRefused, TransformRefused, WarehouseError
from airflow_backfill_provider.spec.metric import Metric, Scalar
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Capabilities,
    Column,
    Fingerprint,
    KeyConflicts,
    OutsideRows,
    Publication,
    Published,
    Receipt,
    RowDiff,
    Rows,
    Source,
    Staged,
    StorageItem,
    Target,
)
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Reading
from airflow_backfill_provider.warehouses.duckdb import catalog, sql
from airflow_backfill_provider.warehouses.duckdb import stage as aside
from airflow_backfill_provider.warehouses.duckdb.compare import compare_pieces
from airflow_backfill_provider.warehouses.duckdb.door import Door, Setting
from airflow_backfill_provider.warehouses.duckdb.errors import translated
from airflow_backfill_provider.warehouses.duckdb.files import StagingFolder
from airflow_backfill_provider.warehouses.duckdb.flags import DIALECT, Flags
from airflow_backfill_provider.warehouses.duckdb.publish import Replacement, read_receipts
from airflow_backfill_provider.warehouses.duckdb.rows import needs_warehouse, pieces, source_sql
from airflow_backfill_provider.warehouses.duckdb.session import WRITABLE, Session
from airflow_backfill_provider.warehouses.duckdb.sql import Buckets, Piece
from airflow_backfill_provider.warehouses.duckdb.swap import VERSION, Swap, drop_version, old_versions
from airflow_backfill_provider.warehouses.duckdb.target import describe as describe_target
from airflow_backfill_provider.warehouses.duckdb.types import lossless
from airflow_backfill_provider.warehouses.predicate import row_expression
from airflow_backfill_provider.warehouses.sql import quote, text_literal
from airflow_backfill_provider.warehouses.views import require_table, require_view
from airflow_backfill_provider.windows import Partition, describe

_OLDEST = (2, 0)
METHOD = f"duckdb-{duckdb.__version__}"
"""What the digests of this engine and version are comparable within."""
_EXAMPLES = 5
_ROWS_PER_SECOND = 500_000


class DuckDBWarehouse:
    """A warehouse in one DuckDB file; see :class:`airflow_backfill_provider.warehouses.base.Warehouse`.

    The file is open only while a call runs: for reading shared with other processes, for publishing alone. Rows are
    compared by 64-bit hashes: two different rows look equal once in 2^64 pairs. A stage holds no constraint of the
    target, so that checks can report what breaks one.

    ``staging_dir`` defaults to ``<path>.backfill`` beside the file; ``lock_timeout`` bounds every wait for the file;
    ``config`` is DuckDB's own (``memory_limit``, ``threads``, …). ``sharers`` is how many tasks work on this host at
    once: each takes its part of the cores, since threads beyond them only get in each other's way.

    :raises WarehouseError: the installed DuckDB is older than 2.0, which cannot keep a concurrent append out.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        config: Mapping[str, Setting] | None = None,
        staging_dir: str | Path | None = None,
        lock_timeout: timedelta = timedelta(minutes=2),
        statement_timeout: timedelta | None = None,
        sharers: int = 1,
    ) -> None:
        if tuple(int(part) for part in duckdb.__version__.split(".")[:2]) < _OLDEST:
            raise WarehouseError(
                f"DuckDB {duckdb.__version__} is installed, and 2.0 is needed: older ones commit a row that is "
                "appended while a range is replaced, without an error. Run: pip install 'duckdb>=2.0'"
            )
        self._files = StagingFolder(Path(staging_dir) if staging_dir is not None else Path(f"{path}.backfill"))
        self._door = Door(
            Path(path),
            self._files.folder,
            config or {},
            lock_timeout,
            statement_timeout,
            threads=max(1, _cores() // sharers),
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            engine=f"DuckDB {duckdb.__version__}",
            mechanisms=frozenset({"replace_partitions", "merge", "view_swap"}),
            dialect=DIALECT,
            rows_per_second=_ROWS_PER_SECOND,
            one_host=True,
            unproven=(
                "DuckDB lets one process write or many read: while a transform statement runs, no other process can "
                "write the file, and during the publish none can open it.",
                "Rows are compared by 64-bit hashes.",
            ),
        )

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        with self._session(f"Describing {table}", Published()) as session:
            return describe_target(session.run, table, partition_by, key, reading)

    def select_columns(self, select: str) -> tuple[Column, ...]:
        with self._session("Binding the transform", Published()) as session:
            try:
                if (text := session.one_select(select)) is None:
                    raise TransformRefused("The transform is not one SELECT statement and nothing else.")
                described = session.run(f"DESCRIBE {text}")
            except duckdb.InterruptException:
                raise
            except duckdb.Error as exc:
                raise TransformRefused(f"DuckDB cannot bind the transform: {exc}") from exc
        return tuple(
            Column(name, data_type.strip('"'), nullable=nullable == "YES")
            for name, data_type, nullable, *_ in described
        )

    def lossless(self, source_type: str, target_type: str) -> bool:
        return lossless(source_type, target_type)

    def fingerprint(self, target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        if not partitions:
            return {}
        with self._session("Fingerprinting", rows) as session:
            columns = target.column_names
            if isinstance(rows, Source):
                source = catalog.find_table(session.run, rows.table)
                columns = tuple(column.name for column in source.columns if not column.generated)
            return _fingerprints(session, self._pieces(session, target, rows, partitions), partitions, columns)

    def measure(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[str, dict[Metric, Scalar]]:
        wanted = list(dict.fromkeys(metrics))
        if not partitions:
            return {}
        with self._measuring(target, rows, wanted) as (session, flags):
            pieces = self._pieces(session, target, rows, partitions)
            buckets = Buckets(partitions, pieces)
            found = session.run(sql.measures(buckets, pieces, wanted, flags))
        measured = {buckets.key(bucket): dict(zip(wanted, values, strict=True)) for bucket, *values in found}
        nothing = {metric: metric.nothing for metric in wanted}
        return {partition.key: measured.get(partition.key, dict(nothing)) for partition in partitions}

    def measure_together(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[Metric, Scalar]:
        wanted = list(dict.fromkeys(metrics))
        if not partitions or not wanted:
            return {metric: metric.nothing for metric in wanted}
        with self._measuring(target, rows, wanted) as (session, flags):
            pieces = self._pieces(session, target, rows, partitions)
            (values,) = session.run(sql.measures_together(pieces, wanted, flags))
        return dict(zip(wanted, values, strict=True))

    def metric_sql(self, target: Target, rows: Rows, partitions: Sequence[Partition], metric: Metric) -> str:
        with self._measuring(target, rows, [metric]) as (session, flags):
            attached: list[str] = []
            match rows:
                case Published():
                    sides = [Piece.of(target, catalog.locate(session.run, target.table).short_sql, partitions)]
                case Source(name, partition_by, reading):
                    source = catalog.find_table(session.run, name)
                    clock = source.clock(partition_by, reading)
                    sides = [Piece(source_sql(source.place.short_sql, rows), partition_by, clock, tuple(partitions))]
                case Staged(staged):
                    by_location: dict[str, list[Partition]] = {}
                    for entry in staged:
                        if entry.partition in partitions:
                            by_location.setdefault(entry.location, []).append(entry.partition)
                    attached = list(by_location)
                    sides = [Piece.of(target, _aside(n), own) for n, own in enumerate(by_location.values())]
                case Backup(location):
                    attached = [location]
                    sides = [Piece.of(target, _aside(0), partitions)]
        return "".join(map(_attach, range(len(attached)), attached)) + sql.measures_together(sides, [metric], flags)

    def count_rows(self, target: Target, staged: Staged, query: str, *, where: str = "") -> int:
        partitions = tuple(entry.partition for entry in staged.partitions)
        with self._session(f"The query on {describe(partitions)}", Published()) as session:
            if (text := session.one_select(query)) is None:
                raise WarehouseError("A check's query is one SELECT statement and nothing else.")
            columns = ", ".join(f"r.{quote(name)}" for name in target.column_names)
            rows = " UNION ALL ".join(
                f"SELECT {columns} FROM {piece.table} AS r WHERE {piece.predicate}"
                for piece in self._pieces(session, target, staged, partitions)
            )
            if where:
                rows = f"SELECT * FROM ({rows}) WHERE {row_expression(where, DIALECT)}"
            with session.transaction(read_only=True):
                ((count,),) = session.run(f"WITH stage AS ({rows}) SELECT count(*) FROM (\n{text}\n) AS found")
        return int(count)

    def compare(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition], *, exclude: Sequence[str] = ()
    ) -> dict[str, RowDiff]:
        if not partitions:
            return {}
        with self._session("Comparing", old, new) as session:
            sides = [self._pieces(session, target, rows, partitions) for rows in (old, new)]
            return compare_pieces(session, target, target.compared(exclude), sides[0], sides[1], partitions, METHOD)

    def changed_columns(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition], *, exclude: Sequence[str] = ()
    ) -> dict[str, dict[str, int]]:
        if not partitions:
            return {}
        columns = target.compared(exclude)
        with self._session("Comparing columns", old, new) as session:
            sides = [self._pieces(session, target, rows, partitions) for rows in (old, new)]
            buckets = Buckets(partitions, [*sides[0], *sides[1]])
            found = session.run(sql.changes_by_column(buckets, target, columns, sides[0], sides[1]))
        changes = {
            buckets.key(bucket): {name: count for name, count in zip(columns, counts, strict=True) if count}
            for bucket, *counts in found
        }
        return {partition.key: changes.get(partition.key, {}) for partition in partitions}

    def outside_rows(self, target: Target) -> OutsideRows:
        with self._session("Counting rows outside every partition", Published()) as session:
            table = catalog.locate(session.run, target.table)
            ((count,),) = session.run(
                f"SELECT count(*) FROM {table.sql} AS r WHERE r.{quote(target.partition_by)} IS NULL"
            )
        return OutsideRows(count)

    def key_conflicts(self, target: Target, staged: Staged, *, no_new_keys: bool = False) -> KeyConflicts:
        partitions = tuple(entry.partition for entry in staged.partitions)
        if not partitions:
            return KeyConflicts(0, 0)
        by_partition = target.partition_by in target.key
        # A key that holds the partition column cannot be outside the range, so the warehouse is not even opened.
        with self._session("Looking for key conflicts", staged if by_partition else Published()) as session:
            pieces = self._pieces(session, target, staged, partitions)
            repeated = [] if no_new_keys else session.run(sql.keys_repeated(pieces, target.key))
            outside = []
            if not by_partition:
                (published,) = self._pieces(session, target, Published(), partitions)
                outside = session.run(sql.keys_outside(pieces, published, target.key))
        examples = dict.fromkeys([*outside, *repeated])
        named = (", ".join(f"{name}={value}" for name, value in zip(target.key, key, strict=True)) for key in examples)
        return KeyConflicts(len(outside), len(repeated), tuple(islice(named, _EXAMPLES)))

    @contextmanager
    def open_stage(self, target: Target, backfill_id: str, label: str) -> Iterator[aside.DuckDBStage]:
        self._files.create()
        location = self._files.new_location("stage", backfill_id, label)
        stage: aside.DuckDBStage | None = None
        try:
            with translated(f"Staging into {location}"), self._door.session() as session:
                database = session.attach(self._files.path(location), options=WRITABLE)
                stage = aside.DuckDBStage(self._door, session, database, target, location, METHOD)
                stage.create()
                with session.bulk_loading():
                    yield stage
        finally:
            if stage is None or stage.is_empty:
                self._files.drop(location)

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to back up.")
        self._files.create()
        backup = Backup(self._files.new_location("backup", backfill_id, label))
        try:
            with self._session("Backing up", Published()) as session:
                (published,) = self._pieces(session, target, Published(), partitions)
                database = session.attach(self._files.path(backup.location), options=WRITABLE)
                aside.copy_published(session, database, target, published)
            return backup, self.fingerprint(target, backup, partitions)
        except BaseException:
            self._files.drop(backup.location)
            raise

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        require_table(target)
        with self._publishing(target, publication) as (session, landing):
            replacement = Replacement(session, target, publication, landing, METHOD)
            return replacement.run(replacement.replace)

    def merge(self, target: Target, publication: Publication) -> Receipt:
        require_table(target)
        with self._publishing(target, publication) as (session, landing):
            replacement = Replacement(session, target, publication, landing, METHOD)
            return replacement.run(replacement.merge)

    def swap_view(self, target: Target, publication: Publication) -> Receipt:
        require_view(target)
        with self._publishing(target, publication) as (session, landing):
            swap = Swap(session, target, publication, landing, METHOD)
            return swap.run(swap.build if publication.action is Action.PUBLISH else swap.turn_back)

    @contextmanager
    def _publishing(self, target: Target, publication: Publication) -> Iterator[tuple[Session, tuple[Piece, ...]]]:
        """The warehouse for writing, and the rows that are to land."""
        publication.refuse_incomplete(METHOD)
        self._files.create()
        with translated(f"Publishing into {target.table}"), self._door.publishing() as session:
            landing = self._pieces(session, target, publication.rows, publication.partitions)
            try:
                yield session, landing
            except duckdb.ConstraintException as exc:
                raise PublishRefused(
                    f"The staged rows break a constraint of {target.table}; nothing was written: {exc}"
                ) from exc

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        with self._session("Reading receipts", Published()) as session:
            return read_receipts(session.run, target)

    def storage(self) -> tuple[StorageItem, ...]:
        with self._session("Listing old versions", Published()) as session:
            return (*self._files.items(), *old_versions(session.run))

    def drop(self, location: str) -> None:
        if not location.startswith(VERSION):
            self._files.drop(location)
            return
        self._files.create()
        with translated(f"Dropping {location}"), self._door.publishing() as session:
            drop_version(session, location)

    def cancel(self) -> None:
        self._door.cancel()

    def close(self) -> None:
        """Let go of every handle; the warehouse file is open only while a call runs."""
        self._door.close()

    @contextmanager
    def _session(self, what: str, *sides: Rows) -> Iterator[Session]:
        """A session for one call, with the warehouse in it when a side needs it."""
        self._files.create()
        with translated(what), self._door.session() as session, ExitStack() as inside:
            if any(map(needs_warehouse, sides)):
                inside.enter_context(self._door.reading(session))
            yield session

    @contextmanager
    def _measuring(self, target: Target, rows: Rows, metrics: Sequence[Metric]) -> Iterator[tuple[Session, Flags]]:
        """A session and the metrics' tests; with the warehouse, when they read another table of it."""
        sides = [rows, Published()] if any(metric.to_table for metric in metrics) else [rows]
        with self._session("Measuring", *sides) as session:
            yield session, Flags(metrics, _types(target, rows), lambda name: catalog.locate(session.run, name).sql)

    def _pieces(
        self, session: Session, target: Target, rows: Rows, partitions: Sequence[Partition]
    ) -> tuple[Piece, ...]:
        return pieces(session, self._files, target, rows, partitions)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fingerprints(
    session: Session, pieces: Sequence[Piece], partitions: Sequence[Partition], columns: Sequence[str]
) -> dict[str, Fingerprint]:
    buckets = Buckets(partitions, pieces)
    found = {
        buckets.key(bucket): Fingerprint(rows, digest, METHOD)
        for bucket, rows, digest in session.run(sql.fingerprints(buckets, pieces, columns))
    }
    empty = Fingerprint(0, sql.EMPTY_DIGEST, METHOD)
    return {partition.key: found.get(partition.key, empty) for partition in partitions}


def _types(target: Target, rows: Rows) -> dict[str, str]:
    return {} if isinstance(rows, Source) else {column.name: column.type for column in target.columns}


def _attach(number: int, location: str) -> str:
    """How a person gets at a file of ours."""
    return f"-- in the staging folder: ATTACH {text_literal(location)} AS aside{number} (READ_ONLY)\n"


def _aside(number: int) -> str:
    """The table of that file then."""
    return f"aside{number}.{aside.ROWS}"
