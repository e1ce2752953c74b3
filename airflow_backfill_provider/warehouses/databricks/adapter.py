"""Databricks SQL: stages and backups are Delta tables of a schema of their own, and every write is one statement."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from databricks.sql.exc import Error

from airflow_backfill_provider.errors import BackfillError, LockTimeout, PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.warehouses import user_metadata
from airflow_backfill_provider.warehouses.base import (
    Backup,
    Capabilities,
    Column,
    Fingerprint,
    Publication,
    Published,
    Receipt,
    Rows,
    Running,
    Shadow,
    Source,
    StagedPartition,
    StorageItem,
    Target,
    Tell,
    Versions,
    untold,
)
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Reading
from airflow_backfill_provider.warehouses.databricks import catalog, receipts
from airflow_backfill_provider.warehouses.databricks.aliases import aliases
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.databricks.errors import is_absent, translated
from airflow_backfill_provider.warehouses.databricks.landing import NO_CODE
from airflow_backfill_provider.warehouses.databricks.publish import Conflict, Write, publish
from airflow_backfill_provider.warehouses.databricks.session import Connect, Session, Sessions
from airflow_backfill_provider.warehouses.databricks.stage import DatabricksStage
from airflow_backfill_provider.warehouses.databricks.statements import StatementApi, Statements
from airflow_backfill_provider.warehouses.databricks.storage import Storage
from airflow_backfill_provider.warehouses.databricks.types import lossless
from airflow_backfill_provider.warehouses.databricks.versions import (
    as_of,
    reader_cautions,
    receipt_cautions,
    require_versions,
    source_cautions,
    source_versions,
)
from airflow_backfill_provider.warehouses.databricks.writes import count_identical, merging, replacing
from airflow_backfill_provider.warehouses.relational.replacement import count_rows
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place, Table
from airflow_backfill_provider.warehouses.relational.warehouse import RelationalWarehouse
from airflow_backfill_provider.windows import Partition

_ROWS_PER_SECOND = 1_000_000
_NO_SWAP = (
    "CREATE OR REPLACE VIEW cannot be bound to what the view was, and nothing can be locked: rows that a pipeline writes to the old "
    "version while the new one is filled would be gone for readers, and a view that somebody else replaced meanwhile would be "
    "replaced again without a word. replace_partitions is one commit here too, and loses neither."
)
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.5, 5.0


class DatabricksWarehouse(RelationalWarehouse[Session]):
    """A Databricks SQL warehouse; see :class:`airflow_backfill_provider.warehouses.base.Warehouse`.

    Rows are compared by 64-bit hashes: two different rows look equal once in 2^64 pairs. A stage holds no constraint of
    the target, so that checks can report what breaks one.

    ``connect`` opens a connection with parameters of the session. With ``statement_api``, stages are filled by statements
    that go on when this process is gone, and that another can take over. ``staging_schema`` is ``schema`` or ``catalog.schema``
    and is made when it is missing. ``lock_timeout`` bounds how long a publish goes on that other writers of the range's
    files keep getting before; ``sharers`` is of no meaning here: the warehouse computes.
    """

    dialect = DIALECT
    # A function of the language, whose values no release changes: a warehouse is upgraded while a backfill runs.
    method = "databricks-xxhash64"

    def __init__(
        self,
        connect: Connect,
        *,
        statement_api: StatementApi | None = None,
        staging_schema: str = "backfill_staging",
        lock_timeout: timedelta = timedelta(minutes=2),
        statement_timeout: timedelta | None = None,
        sharers: int = 1,
    ) -> None:
        self._sessions = Sessions(connect, statement_timeout)
        self._storage = Storage(staging_schema)
        self._lock_timeout = lock_timeout
        self._statement_api = statement_api
        self._statement_timeout = statement_timeout
        self._submitting: set[Statements] = set()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            engine="Databricks SQL",
            mechanisms=frozenset({"replace_partitions", "merge"}),
            cannot={"view_swap": _NO_SWAP},
            dialect=DIALECT.name,
            rows_per_second=_ROWS_PER_SECOND,
            replaced_per_second=None,
            takes_no_code=NO_CODE,
            unproven=(
                "Rows are compared by 64-bit hashes.",
                "Receipts live in the table's history, as long as delta.logRetentionDuration keeps it (30 days by default).",
                "A key that another writer appends outside the range during the commit itself is not noticed; nor is an "
                "append inside it, where the table's isolation level is WriteSerializable.",
            ),
        )

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        with self._reading(f"Describing {table}") as session:
            return catalog.describe(session, table, partition_by, key, reading)

    def select_columns(self, select: str) -> tuple[Column, ...]:
        with self._reading("Binding the transform") as session:
            return catalog.select_columns(session, select)

    def aliases(self, target: Target, names: Sequence[str]) -> tuple[str, ...]:
        with self._reading(f"Looking for views of {target.table}") as session:
            return aliases(session, target.table, names)

    def source_versions(self, selects: Sequence[str], tables: Sequence[str]) -> dict[str, int]:
        with self._reading("Reading the versions of the sources") as session:
            return source_versions(session, selects, tables)

    def require_versions(self, versions: Versions) -> None:
        with self._reading("Reading the versions of the sources") as session:
            require_versions(session, versions)

    def source_cautions(self, versions: Versions, *, since: datetime | None, needed: timedelta) -> tuple[str, ...]:
        with self._reading("Reading the history of the sources") as session:
            return tuple(source_cautions(session, versions, since, needed))

    def receipt_cautions(self, target: Target, *, needed: timedelta) -> tuple[str, ...]:
        """See :meth:`Warehouse.receipt_cautions`.

        :raises SpecError: the compute keeps no receipts at all.
        """
        metadata = "safe_backfill"
        with translated("Looking for receipts"), self._sessions.session({receipts.USER_METADATA: metadata}) as probe:
            try:
                receipts.require_kept(probe, metadata)
            except PublishRefused as refused:
                raise SpecError(str(refused)) from refused
        with self._reading("Reading the table's properties") as session:
            return tuple(receipt_cautions(session, target.table, needed))

    def reader_cautions(self, target: Target) -> tuple[str, ...]:
        with self._reading("Reading the table's properties") as session:
            return tuple(reader_cautions(session, target.table))

    def growth_cautions(self, target: Target) -> tuple[str, ...]:
        """Refuse: a column is added in a commit of its own here, so that a publish could not take it back.

        :raises SpecError: always.
        """
        added = ", ".join(
            f"{SPELLING.quote(column.name)} {column.type} COMMENT {SPELLING.text_literal(column.added)}"
            for column in target.added
        )
        raise SpecError(
            "schema.mode evolve is not for Databricks, which adds a column in a commit of its own. Nothing was done. Run: "
            f"ALTER TABLE {target.table} ADD COLUMNS ({added}); and leave evolve out."
        )

    def lossless(self, source_type: str, target_type: str) -> bool:
        return lossless(source_type, target_type)

    @contextmanager
    def open_stage(
        self, target: Target, backfill_id: str, label: str, tell: Tell = untold
    ) -> Iterator[DatabricksStage]:
        location = self._storage.new_location("stage", backfill_id, label)
        stage: DatabricksStage | None = None
        statements: Statements | None = None
        try:
            with translated(f"Staging batch {label}"), self._sessions.session() as session:
                with self._statements() as statements:
                    stage = DatabricksStage(
                        session,
                        statements,
                        tell,
                        self._storage,
                        target,
                        backfill_id,
                        location,
                        self.method,
                        self._drop_quietly,
                    )
                    yield stage
        finally:
            # What may still fill it is the next attempt's to take over.
            if (stage is None or stage.is_empty) and not (statements and statements.goes_on):
                self._drop_quietly(location)

    def take_over(
        self, target: Target, backfill_id: str, running: Running, partitions: Sequence[Partition]
    ) -> tuple[StagedPartition, ...]:
        with (
            translated(f"Waiting for the statement {running.statement}"),
            self._sessions.session() as session,
            self._statements() as statements,
        ):
            if statements is None or not statements.ended_well(running.statement):
                return ()
            stage = DatabricksStage(
                session,
                statements,
                untold,
                self._storage,
                target,
                backfill_id,
                running.location,
                self.method,
                self._drop_quietly,
            )
            try:
                return stage.filled(partitions)
            except Error as error:
                if not is_absent(error):
                    raise
                return ()

    @contextmanager
    def _statements(self) -> Iterator[Statements | None]:
        """The way to statements that go on by themselves; None without the API."""
        if self._statement_api is None:
            yield None
            return
        statements = Statements(self._statement_api, self._statement_timeout)
        self._submitting.add(statements)
        try:
            yield statements
        finally:
            self._submitting.discard(statements)

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to back up.")
        backup = Backup(self._storage.new_location("backup", backfill_id, label))
        try:
            with self._reading("Backing up") as session:
                (published,) = self._pieces(session, target, Published(), partitions)
                names = ", ".join(f"r.{SPELLING.quote(name)}" for name in target.column_names)
                self._storage.create(
                    session,
                    backup.location,
                    backfill_id,
                    "USING delta",
                    covered=[partition.key for partition in partitions],
                    rows=f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}",
                )
            return backup, self.fingerprint(target, backup, partitions)
        except BaseException:
            self._drop_quietly(backup.location)
            raise

    def _keep_sample(
        self, target: Target, backfill_id: str, sides: tuple[Rows, Rows], select: Callable[[Session], str]
    ) -> str:
        location = self._storage.new_location("sample", backfill_id, "rows")
        try:
            with self._reading("Keeping a sample", *sides) as session:
                self._storage.create(session, location, backfill_id, "USING delta", rows=select(session))
        except BaseException:
            self._drop_quietly(location)
            raise
        return location

    @contextmanager
    def open_shadow(self, target: Target, backfill_id: str, partitions: Sequence[Partition]) -> Iterator[Shadow]:
        location = self._storage.new_location("shadow", backfill_id, "trial")
        try:
            with self._reading("Copying into a shadow") as session:
                (published,) = self._pieces(session, target, Published(), partitions)
                self._storage.create_like(session, location, backfill_id, published.table)
                names = ", ".join(f"r.{SPELLING.quote(name)}" for name in target.column_names)
                within = SPELLING.within(
                    DIALECT.ordered(SPELLING.quote(target.partition_by), target.clock), partitions, target.clock
                )
                # The connector sends a statement again when the connection breaks under it.
                session.run(
                    f"INSERT INTO {self._storage.sql(location)} BY NAME REPLACE WHERE {within} "
                    f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}"
                )
            yield Shadow(self, replace(target, table=f"{self._storage.schema}.{location}"))
        finally:
            self.drop(location)

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        deleted, inserted = count_rows(publication.before), count_rows(publication.after)
        return self._publish(target, publication, replacing, lambda: (deleted, inserted))

    def merge(self, target: Target, publication: Publication) -> Receipt:
        def count() -> tuple[int, int]:
            with self._reading("Comparing") as session:
                name = self._locate(session, target.table).sql
                landing = self._pieces(session, target, publication.rows, publication.partitions)
                same = count_identical(session.run, name, target, publication, landing)
            return count_rows(publication.before) - same, count_rows(publication.after) - same

        return self._publish(target, publication, merging, count)

    def _publish(
        self, target: Target, publication: Publication, write: Write, count: Callable[[], tuple[int, int]]
    ) -> Receipt:
        """Publish by that statement, again and again when others get before.

        :param count: how many rows will go and come.
        """
        publication.refuse_incomplete(self.method)
        deadline = time.monotonic() + self._lock_timeout.total_seconds()
        pause = _FIRST_PAUSE_SECONDS
        self._sessions.cancelled.clear()
        while True:
            attempt = uuid4().hex
            deleted, inserted = count()
            metadata = user_metadata.written(publication, attempt, deleted, inserted)
            settings = {receipts.USER_METADATA: metadata}
            with translated(f"Publishing into {target.table}"), self._sessions.session(settings) as session:
                receipts.require_kept(session, metadata)
                landing = self._pieces(session, target, publication.rows, publication.partitions)
                try:
                    # A MERGE that changes nothing commits nothing, and so would leave no receipt.
                    writes = write if deleted or inserted else replacing
                    return publish(session, target, publication, landing, attempt, writes)
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

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        with self._reading("Reading receipts") as session:
            return receipts.read(session, self._locate(session, target.table).sql)

    def storage(self) -> tuple[StorageItem, ...]:
        with self._reading("Listing stages and backups") as session:
            return self._storage.items(session)

    def drop(self, location: str) -> None:
        with translated(f"Dropping {location}"), self._sessions.session() as session:
            self._storage.drop(session, location)

    def _drop_quietly(self, location: str) -> None:
        """Drop it while another error is on its way, which is the one that matters."""
        with suppress(BackfillError):
            self.drop(location)

    def cancel(self) -> None:
        self._sessions.cancel()
        for statements in tuple(self._submitting):
            statements.cancel()

    def close(self) -> None:
        """Let go of every connection that is not in use."""
        self._sessions.close()

    @contextmanager
    def _reading(self, what: str, *sides: Rows) -> Iterator[Session]:
        with translated(what), self._sessions.session() as session:
            yield session

    def _locate(self, session: Session, name: str) -> Place:
        return catalog.describe_table(session, name).place

    def _source(self, table: Table, source: Source, partitions: Sequence[Partition], *, name: str = "") -> Piece:
        known = {one.casefold(): version for one, version in source.versions.items()}
        version = known.get(source.table.casefold())
        read = table.place.sql if version is None else f"{table.place.sql}{as_of(version)}"
        return super()._source(table, source, partitions, name=name or read)

    def _find_table(self, session: Session, name: str) -> Table:
        return catalog.find_table(session, name)

    def _stored(self, session: Session, location: str) -> str:
        return self._storage.sql(location)

    def _covered(self, session: Session, location: str, table: str) -> set[str]:
        return self._storage.covered(session, location)
