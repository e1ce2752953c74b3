"""Delta tables under one folder: delta-rs commits, and DuckDB reads them through Arrow. No Spark, no server.

Stages and backups are Delta tables under the same folder, so tasks may run on any number of hosts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from uuid import uuid4

import deltalake
import duckdb
import pyarrow

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.spec.metric import Metric
from airflow_backfill_provider.warehouses.base import (
    Backup,
    Capabilities,
    Column,
    Fill,
    Fingerprint,
    Publication,
    Published,
    Receipt,
    Rows,
    Shadow,
    Source,
    Staged,
    StorageItem,
    Target,
    Tell,
    Versions,
    untold,
)
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Reading
from airflow_backfill_provider.warehouses.delta import catalog, receipts, wholesale
from airflow_backfill_provider.warehouses.delta.dialect import DIALECT
from airflow_backfill_provider.warehouses.delta.errors import translated
from airflow_backfill_provider.warehouses.delta.landing import DeltaLanding
from airflow_backfill_provider.warehouses.delta.publish import Conflict, Held, publish
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.delta.session import OWN, DeltaSession, Sessions
from airflow_backfill_provider.warehouses.delta.shadow import copy_definition
from airflow_backfill_provider.warehouses.delta.stage import DeltaStage, copied
from airflow_backfill_provider.warehouses.delta.storage import Storage
from airflow_backfill_provider.warehouses.delta.versions import (
    cautions,
    reader_cautions,
    receipt_cautions,
    require_version,
)
from airflow_backfill_provider.warehouses.duckdb.catalog import select_columns
from airflow_backfill_provider.warehouses.duckdb.types import lossless
from airflow_backfill_provider.warehouses.relational.flags import Flags
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place, Table
from airflow_backfill_provider.warehouses.relational.warehouse import RelationalWarehouse
from airflow_backfill_provider.warehouses.sql import text_literal
from airflow_backfill_provider.windows import Partition

_ROWS_PER_SECOND = 300_000
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.1, 2.0


class DeltaWarehouse(RelationalWarehouse[DeltaSession]):
    """A warehouse of Delta tables; see :class:`airflow_backfill_provider.warehouses.base.Warehouse`.

    The table ``schema.name`` is the Delta table ``<root>/<schema>/<name>``. Rows are compared by 64-bit hashes: two
    different rows look equal once in 2^64 pairs. A stage holds no constraint of the target, so that checks can report
    what breaks one.

    ``root`` is a folder or a URL; ``storage_options`` are delta-rs's own. ``lock_timeout`` bounds how long a publish goes
    on that other writers of the range's files keep getting before; ``sharers`` is how many tasks work on this host at once.
    """

    dialect = DIALECT
    method = f"delta-duckdb-{duckdb.__version__}"

    def __init__(
        self,
        root: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        lock_timeout: timedelta = timedelta(minutes=2),
        statement_timeout: timedelta | None = None,
        sharers: int = 1,
    ) -> None:
        self._root = Root(root, storage_options)
        self._storage = Storage(self._root)
        self._sessions = Sessions(self._root, statement_timeout, threads=max(1, (os.cpu_count() or 1) // sharers))
        self._lock_timeout = lock_timeout
        self._shadow: DeltaWarehouse | None = None
        self._held: Held | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            engine=f"Delta Lake (delta-rs {deltalake.__version__}, DuckDB {duckdb.__version__})",
            mechanisms=frozenset({"replace_partitions"}),
            dialect=DIALECT.name,
            rows_per_second=_ROWS_PER_SECOND,
            replaced_per_second=None,
            takes_nothing_from_elsewhere="Work in another process has no place to put its rows in for a Delta table on a path. Write the "
            "rule as SQL, or as transform.python.",
            unproven=(
                "Rows are compared by 64-bit hashes.",
                "Receipts live in the table's log, as long as delta.logRetentionDuration keeps it (30 days by default).",
                "A key that another writer appends outside the range during the commit itself is not noticed.",
            ),
        )

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        with self._reading(f"Describing {table}", Published()) as session:
            return catalog.describe(self._root, session, table, partition_by, key, reading)

    def select_columns(self, select: str) -> tuple[Column, ...]:
        with self._reading("Binding the transform", Published()) as session:
            return select_columns(session, select)

    def source_versions(self, selects: Sequence[str], tables: Sequence[str]) -> dict[str, int]:
        with self._reading("Reading the versions of the sources", Published()) as session:
            for select in selects:
                session.one_select(select)
            for table in tables:
                with suppress(SpecError):  # what is no table has no version
                    session.pin(self._root.locate(table))
            return session.versions

    def require_versions(self, versions: Versions) -> None:
        with translated("Reading the versions of the sources"):
            for name, version in versions.items():
                require_version(self._root, name, version)

    def source_cautions(self, versions: Versions, *, since: datetime | None, needed: timedelta) -> tuple[str, ...]:
        with translated("Reading the history of the sources"):
            return tuple(
                caution
                for name, version in versions.items()
                for caution in cautions(self._root, name, version, since, needed)
            )

    def receipt_cautions(self, target: Target, *, needed: timedelta) -> tuple[str, ...]:
        with translated("Reading the table's properties"):
            return tuple(receipt_cautions(self._root, target.table, needed))

    def reader_cautions(self, target: Target) -> tuple[str, ...]:
        with translated("Reading the table's properties"):
            return tuple(reader_cautions(self._root, target.table))

    def lossless(self, source_type: str, target_type: str) -> bool:
        return lossless(source_type, target_type)

    def _shown(
        self, session: DeltaSession, target: Target, rows: Rows, partitions: Sequence[Partition]
    ) -> tuple[str, tuple[Piece, ...]]:
        match rows:
            case Published():
                name = self._scan(self._root.locate(target.table))
                return "", (Piece.of(DIALECT, target, self._published(session, target, name), partitions),)
            case Source(name):
                table = self._find_table(session, name)
                return "", (self._source(table, rows, partitions, name=self._scan(table.place)),)
            case Staged():
                by_location = rows.by_location(partitions)
                return "", tuple(
                    Piece.of(DIALECT, target, self._aside(location), own) for location, own in by_location.items()
                )
            case Backup(location):
                return "", (Piece.of(DIALECT, target, self._aside(location), partitions),)

    def _shown_flags(self, session: DeltaSession, target: Target, rows: Rows, metrics: Sequence[Metric]) -> Flags:
        types = {} if isinstance(rows, Source) else {column.name: column.type for column in target.columns}
        return Flags(DIALECT, metrics, types, lambda name: self._scan(self._root.locate(name)))

    @contextmanager
    def open_stage(self, target: Target, backfill_id: str, label: str, tell: Tell = untold) -> Iterator[DeltaStage]:
        location = self._storage.new_location("stage", backfill_id, label)
        stage: DeltaStage | None = None
        try:
            with translated(f"Staging into {location}"), self._sessions.session() as session:
                self._storage.prepare()
                stored = partial(self._stored, session)
                landing = partial(self._landing, session)
                stage = DeltaStage(self._root, self._storage, session, target, location, self.method, stored, landing)
                yield stage
        finally:
            if stage is None or stage.is_empty:
                self.drop(location)

    @contextmanager
    def _landing(self, session: DeltaSession, target: Target, fill: Fill) -> Iterator[str]:
        """Run code on a table in memory, which the session can read then; see :data:`relational.stage.Lands`."""
        with self._sessions.session() as own:
            landing = DeltaLanding(own, OWN, target)
            fill(landing)
            landing.settle()
            with session.holding(own.connection.table(landing.landed).to_arrow_table()) as rows:
                yield rows

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to back up.")
        backup = Backup(self._storage.new_location("backup", backfill_id, label))
        try:
            with self._reading("Backing up", Published()) as session:
                self._storage.prepare()
                place = self._root.locate(target.table)
                self._copy(session, target, place, partitions, backup.location)
                table = session.pin(place).table
            marks = self.fingerprint(target, backup, partitions)
            # The copy is all that was read of them.
            self._held = Held(str(table.metadata().id), table.version(), target, frozenset(partitions), marks)
            return backup, marks
        except BaseException:
            self.drop(backup.location)
            raise

    def _copy(
        self, session: DeltaSession, target: Target, place: Place, partitions: Sequence[Partition], location: str
    ) -> None:
        """Copy the range aside: file by file where each lies in it or not as a whole, and otherwise row by row."""
        covered = [partition.key for partition in partitions]

        def within(values: pyarrow.Table) -> list[int]:
            piece = Piece.of(DIALECT, target, "values", partitions)
            return session.rows_within(values, wholesale.FILE, piece.predicate)

        table = session.pin(place).table
        lacking = self._absent(session, target)
        files = None if lacking else wholesale.files_with(table, target.partition_by, within)
        if files is not None:
            with session.in_steps("Copying files") as go_on:
                self._storage.create_from_files(
                    location, table, self._root.uri(place.schema, place.name), files, go_on, covered=covered
                )
            return
        (published,) = self._pieces(session, target, Published(), partitions)
        with session.rows(copied(target, published.table, published.predicate)) as rows:
            self._storage.create(location, rows, covered=covered)

    def _keep_sample(
        self, target: Target, backfill_id: str, sides: tuple[Rows, Rows], select: Callable[[DeltaSession], str]
    ) -> str:
        location = self._storage.new_location("sample", backfill_id, "rows")
        try:
            with self._reading("Keeping a sample", *sides) as session:
                self._storage.prepare()
                with session.rows(select(session)) as rows:
                    self._storage.create(location, rows)
        except BaseException:
            self.drop(location)
            raise
        return location

    @contextmanager
    def open_shadow(self, target: Target, backfill_id: str, partitions: Sequence[Partition]) -> Iterator[Shadow]:
        location = self._storage.new_location("shadow", backfill_id, "trial")
        try:
            root = Root(self._storage.uri(location), self._root.options)
            with self._reading("Copying into a shadow", Published()) as session:
                self._storage.prepare()
                (published,) = self._pieces(session, target, Published(), partitions)
                place = self._root.locate(target.table)
                there = target.without(self._absent(session, target))
                with session.rows(copied(there, published.table, published.predicate)) as rows:
                    copy_definition(session.pin(place).table, root.uri(place.schema, place.name), rows, root.options)
            shadow = self._shadow = copy(self)
            shadow._root, shadow._sessions = root, self._sessions.of(root)
            try:
                yield Shadow(shadow, target)
            finally:
                self._shadow = None
        finally:
            self.drop(location)

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        publication.refuse_incomplete(self.method)
        attempt = uuid4().hex
        deadline = time.monotonic() + self._lock_timeout.total_seconds()
        pause = _FIRST_PAUSE_SECONDS
        self._sessions.cancelled.clear()
        while True:
            with translated(f"Publishing into {target.table}"), self._sessions.session() as session:
                landing = self._pieces(session, target, publication.rows, publication.partitions)
                try:
                    return publish(self._root, session, target, publication, landing, attempt, self._held)
                except Conflict as exc:
                    conflict = exc
            if time.monotonic() + pause > deadline:
                raise LockTimeout(
                    f"Other writers committed to {target.table} again and again for {self._lock_timeout} while the range was "
                    f"replaced; nothing was written. The last time: {conflict} Try again when they are done, or raise "
                    "publish.lock_timeout."
                ) from conflict
            if self._sessions.cancelled.wait(pause * random.uniform(0.5, 1.0)):
                raise WarehouseError(f"Publishing into {target.table} was cancelled; nothing was written.")
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    def merge(self, target: Target, publication: Publication) -> Receipt:
        # A Delta table is rewritten by file, so a merge would save nothing, and it conflicts with appends anywhere.
        raise PublishRefused(f"{target.table}: a Delta warehouse does not merge. Use mechanism replace_partitions.")

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        with translated("Reading receipts"):
            place = self._root.locate(target.table)
            return receipts.read(self._root.open(self._root.uri(place.schema, place.name)))

    def storage(self) -> tuple[StorageItem, ...]:
        with translated("Listing stages and backups"):
            return self._storage.items()

    def drop(self, location: str) -> None:
        with translated(f"Dropping {location}"):
            self._storage.drop(location)

    def cancel(self) -> None:
        for warehouse in filter(None, (self, self._shadow)):
            warehouse._sessions.cancel()

    def close(self) -> None:
        self._sessions.close()

    @contextmanager
    def _reading(self, what: str, *sides: Rows) -> Iterator[DeltaSession]:
        with translated(what), self._sessions.session() as session:
            for side in sides:
                if isinstance(side, Source):
                    session.read_at(side.versions)
            yield session

    def _locate(self, session: DeltaSession, name: str) -> Place:
        place = self._root.locate(name)
        session.pin(place)
        return place

    def _find_table(self, session: DeltaSession, name: str) -> Table:
        return catalog.find_table(self._root, session, name)

    def _stored(self, session: DeltaSession, location: str) -> str:
        with self._storage.expecting(location):
            return session.pin_stored(self._storage.uri(location)).sql

    def _covered(self, session: DeltaSession, location: str, table: str) -> set[str]:
        return self._storage.covered(location)

    def _scan(self, place: Place) -> str:
        """How a person's DuckDB reads the table."""
        return f"delta_scan({text_literal(self._root.uri(place.schema, place.name))})"

    def _aside(self, location: str) -> str:
        return f"delta_scan({text_literal(self._storage.uri(location))})"
