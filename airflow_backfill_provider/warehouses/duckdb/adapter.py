"""DuckDB: one warehouse file, a stage file for each batch attempt, a backup file for each publish.

Every process that uses a warehouse must run on the host of the file and name the same staging folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from airflow_backfill_provider.errors import PublishRefused, WarehouseError
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
    untold,
)
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Reading
from airflow_backfill_provider.warehouses.duckdb import catalog
from airflow_backfill_provider.warehouses.duckdb import stage as aside
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.door import Door, Setting
from airflow_backfill_provider.warehouses.duckdb.errors import cause, translated, without_values
from airflow_backfill_provider.warehouses.duckdb.files import StagingFolder
from airflow_backfill_provider.warehouses.duckdb.landing import TABLE, DuckDBLanding
from airflow_backfill_provider.warehouses.duckdb.publish import publish
from airflow_backfill_provider.warehouses.duckdb.session import WRITABLE, Session
from airflow_backfill_provider.warehouses.duckdb.shadow import copy_definition
from airflow_backfill_provider.warehouses.duckdb.swap import swap
from airflow_backfill_provider.warehouses.duckdb.swaps import VERSION, drop_version, old_versions
from airflow_backfill_provider.warehouses.duckdb.target import aliases
from airflow_backfill_provider.warehouses.duckdb.target import describe as describe_target
from airflow_backfill_provider.warehouses.duckdb.types import lossless
from airflow_backfill_provider.warehouses.landed import dropped_afterwards
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Replacement
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place, Table
from airflow_backfill_provider.warehouses.relational.warehouse import RelationalWarehouse
from airflow_backfill_provider.warehouses.sql import text_literal
from airflow_backfill_provider.warehouses.views import require_table, require_view
from airflow_backfill_provider.windows import Partition

_OLDEST = (2, 0)
_ROWS_PER_SECOND = 500_000
_REPLACED_PER_SECOND = 1_500_000


class DuckDBWarehouse(RelationalWarehouse[Session]):
    """A warehouse in one DuckDB file; see :class:`airflow_backfill_provider.warehouses.base.Warehouse`.

    The file is open only while a call runs: for reading shared with other processes, for publishing alone. Rows are
    compared by 64-bit hashes: two different rows look equal once in 2^64 pairs. A stage holds no constraint of the
    target, so that checks can report what breaks one.

    ``staging_dir`` defaults to ``<path>.backfill`` beside the file; ``lock_timeout`` bounds every wait for the file;
    ``config`` is DuckDB's own (``memory_limit``, ``threads``, …). ``sharers`` is how many tasks work on this host at
    once: each takes its part of the cores, since threads beyond them only get in each other's way.

    :raises WarehouseError: the installed DuckDB is older than 2.0, which cannot keep a concurrent append out.
    """

    dialect = DIALECT
    method = f"duckdb-{duckdb.__version__}"

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
        self._shadow: DuckDBWarehouse | None = None
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
            dialect=DIALECT.name,
            rows_per_second=_ROWS_PER_SECOND,
            replaced_per_second=_REPLACED_PER_SECOND,
            one_host=True,
            unproven=(
                "DuckDB lets one process write or many read: while a transform statement runs, no other process can "
                "write the file, and during the publish none can open it.",
                "Rows are compared by 64-bit hashes.",
            ),
        )

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        with self._reading(f"Describing {table}", Published()) as session:
            return describe_target(session.run, table, partition_by, key, reading)

    def select_columns(self, select: str) -> tuple[Column, ...]:
        with self._reading("Binding the transform", Published()) as session:
            return catalog.select_columns(session, select)

    def aliases(self, target: Target, names: Sequence[str]) -> tuple[str, ...]:
        with self._reading(f"Looking for views of {target.table}", Published()) as session:
            return aliases(session.run, target.table, names)

    def lossless(self, source_type: str, target_type: str) -> bool:
        return lossless(source_type, target_type)

    def _shown(
        self, session: Session, target: Target, rows: Rows, partitions: Sequence[Partition]
    ) -> tuple[str, tuple[Piece, ...]]:
        sides: tuple[Piece, ...]
        attached: list[str] = []
        match rows:
            case Published():
                name = self._published(session, target, catalog.locate(session.run, target.table).short_sql)
                sides = (Piece.of(DIALECT, target, name, partitions),)
            case Source(name):
                table = catalog.find_table(session.run, name)
                sides = (self._source(table, rows, partitions, name=table.place.short_sql),)
            case Staged():
                by_location = rows.by_location(partitions)
                attached = list(by_location)
                sides = tuple(
                    Piece.of(DIALECT, target, _aside(number), own) for number, own in enumerate(by_location.values())
                )
            case Backup(location):
                attached = [location]
                sides = (Piece.of(DIALECT, target, _aside(0), partitions),)
        return "".join(map(_attach, range(len(attached)), attached)), sides

    @contextmanager
    def open_stage(
        self, target: Target, backfill_id: str, label: str, tell: Tell = untold
    ) -> Iterator[aside.DuckDBStage]:
        self._files.create()
        location = self._files.new_location("stage", backfill_id, label)
        stage: aside.DuckDBStage | None = None
        try:
            with translated(f"Staging into {location}"), self._door.session() as session:
                database = session.attach(self._files.path(location), options=WRITABLE)
                stored = partial(self._stored, session)
                landing = partial(self._landing, session, backfill_id, label)
                stage = aside.DuckDBStage(self._door, session, database, target, location, self.method, stored, landing)
                stage.create()
                with session.bulk_loading():
                    yield stage
        finally:
            if stage is None or stage.is_empty:
                self._files.drop(location)

    @contextmanager
    def _landing(self, session: Session, backfill_id: str, label: str, target: Target, fill: Fill) -> Iterator[str]:
        """Run code on a file of its own, which the session can read then; see :data:`relational.stage.Lands`."""
        location = self._files.new_location("stage", backfill_id, label)
        handed_over = self._files.path(location).with_suffix(".parquet")
        with dropped_afterwards(lambda: self._files.drop(location)):
            with self._door.session_for_code() as own, ExitStack() as inside:
                database = own.attach(self._files.path(location), options=WRITABLE)
                landing = DuckDBLanding(
                    own, database, target, lambda: inside.enter_context(self._door.reading(own)), handed_over
                )
                fill(landing)
                landing.settle()
            alias = session.attach(self._files.path(location))
            yield f"{alias}.{TABLE}"
            session.let_go(alias)

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to back up.")
        self._files.create()
        backup = Backup(self._files.new_location("backup", backfill_id, label))
        try:
            with self._reading("Backing up", Published()) as session:
                (published,) = self._pieces(session, target, Published(), partitions)
                database = session.attach(self._files.path(backup.location), options=WRITABLE)
                aside.copy_published(session, database, target, published)
            return backup, self.fingerprint(target, backup, partitions)
        except BaseException:
            self._files.drop(backup.location)
            raise

    def _keep_sample(
        self, target: Target, backfill_id: str, sides: tuple[Rows, Rows], select: Callable[[Session], str]
    ) -> str:
        self._files.create()
        location = self._files.new_location("sample", backfill_id, "rows")
        try:
            with self._reading("Keeping a sample", *sides) as session:
                rows = select(session)
                database = session.attach(self._files.path(location), options=WRITABLE)
                session.run(f"CREATE TABLE {database}.{aside.ROWS} AS {rows}")
        except BaseException:
            self._files.drop(location)
            raise
        return location

    @contextmanager
    def open_shadow(self, target: Target, backfill_id: str, partitions: Sequence[Partition]) -> Iterator[Shadow]:
        self._files.create()
        location = self._files.new_location("shadow", backfill_id, "trial")
        try:
            with self._reading("Copying into a shadow", Published()) as session:
                (published,) = self._pieces(session, target, Published(), partitions)
                database = session.attach(self._files.path(location), options=WRITABLE)
                copied = copy_definition(session, database, target, published, self._absent(session, target))
            # Not through the gate of the warehouse, which nobody is to wait at for a rehearsal.
            with TemporaryDirectory(prefix="safe-backfill-") as gate:
                shadow = self._shadow = copy(self)
                shadow._door = self._door.of(self._files.path(location), Path(gate))
                try:
                    yield Shadow(shadow, copied)
                finally:
                    self._shadow = None
                    shadow.close()
        finally:
            self._files.drop(location)

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        require_table(target)
        with self._publishing(target, publication) as (session, landing):
            return publish(session, target, publication, landing, Replacement.replace)

    def merge(self, target: Target, publication: Publication) -> Receipt:
        require_table(target)
        with self._publishing(target, publication) as (session, landing):
            return publish(session, target, publication, landing, Replacement.merge)

    def swap_view(self, target: Target, publication: Publication) -> Receipt:
        require_view(target)
        with self._publishing(target, publication) as (session, landing):
            return swap(session, target, publication, landing)

    @contextmanager
    def _publishing(self, target: Target, publication: Publication) -> Iterator[tuple[Session, tuple[Piece, ...]]]:
        """The warehouse for writing, and the rows that are to land."""
        publication.refuse_incomplete(self.method)
        self._files.create()
        with translated(f"Publishing into {target.table}"), self._door.publishing() as session:
            landing = self._pieces(session, target, publication.rows, publication.partitions)
            try:
                yield session, landing
            except duckdb.ConstraintException as exc:
                raise PublishRefused(
                    f"The staged rows break a constraint of {target.table}; nothing was written: {without_values(str(exc))}"
                ) from cause(exc)

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        with self._reading("Reading receipts", Published()) as session:
            return Receipts(DIALECT, session.run, self._find_table(session, target.table).place).read()

    def storage(self) -> tuple[StorageItem, ...]:
        with self._reading("Listing old versions", Published()) as session:
            return (*self._files.items(), *old_versions(session.run))

    def drop(self, location: str) -> None:
        if not location.startswith(VERSION):
            self._files.drop(location)
            return
        self._files.create()
        with translated(f"Dropping {location}"), self._door.publishing() as session:
            drop_version(session, location)

    def cancel(self) -> None:
        for warehouse in filter(None, (self, self._shadow)):
            warehouse._door.cancel()

    def close(self) -> None:
        """Let go of every handle; the warehouse file is open only while a call runs."""
        self._door.close()

    @contextmanager
    def _reading(self, what: str, *sides: Rows) -> Iterator[Session]:
        """A session for one call, with the warehouse in it when a side needs it."""
        self._files.create()
        with translated(what), self._door.session() as session, ExitStack() as inside:
            if any(isinstance(side, Published | Source) for side in sides):
                inside.enter_context(self._door.reading(session))
            yield session

    def _locate(self, session: Session, name: str) -> Place:
        return catalog.locate(session.run, name)

    def _find_table(self, session: Session, name: str) -> Table:
        return catalog.find_table(session.run, name)

    def _stored(self, session: Session, location: str) -> str:
        return f"{session.attach(self._files.existing(location))}.{aside.ROWS}"

    def _covered(self, session: Session, location: str, table: str) -> set[str]:
        covers = f"{table.removesuffix(aside.ROWS)}{aside.COVERS}"
        return {key for (key,) in session.run(f"SELECT partition_key FROM {covers}")}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _attach(number: int, location: str) -> str:
    """How a person gets at a file of ours."""
    return f"-- in the staging folder: ATTACH {text_literal(location)} AS aside{number} (READ_ONLY)\n"


def _aside(number: int) -> str:
    """The table of that file then."""
    return f"aside{number}.{aside.ROWS}"
