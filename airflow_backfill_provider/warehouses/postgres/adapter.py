"""PostgreSQL 15 or later: stages and backups are tables of a schema of their own, in the database of the target."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial

import psycopg
from psycopg import errors

from airflow_backfill_provider.errors import (
    BackfillError,
    LockTimeout,
    PublishRefused,
    TransformRefused,
    WarehouseError,
)
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Capabilities,
    ChildSwap,
    Column,
    Fill,
    Fingerprint,
    Publication,
    Published,
    Receipt,
    Rows,
    Shadow,
    Staged,
    StorageItem,
    Target,
    Tell,
    untold,
)
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Reading
from airflow_backfill_provider.warehouses.landed import dropped_afterwards
from airflow_backfill_provider.warehouses.postgres import catalog
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.errors import cause, told, translated
from airflow_backfill_provider.warehouses.postgres.exclusive import Occupied, lock_everybody_out
from airflow_backfill_provider.warehouses.postgres.landing import PostgresLanding
from airflow_backfill_provider.warehouses.postgres.locks import Locked, Watch, lock_alone
from airflow_backfill_provider.warehouses.postgres.replacement import ReadFirst
from airflow_backfill_provider.warehouses.postgres.rights import preflight, require_owner
from airflow_backfill_provider.warehouses.postgres.session import Connect, Session, Sessions
from airflow_backfill_provider.warehouses.postgres.spare import Spare
from airflow_backfill_provider.warehouses.postgres.stage import PostgresStage
from airflow_backfill_provider.warehouses.postgres.storage import Storage
from airflow_backfill_provider.warehouses.postgres.subscribers import reader_cautions
from airflow_backfill_provider.warehouses.postgres.swap import Exchange
from airflow_backfill_provider.warehouses.postgres.swappable import plan_swap
from airflow_backfill_provider.warehouses.postgres.types import lossless
from airflow_backfill_provider.warehouses.postgres.upkeep import upkeep
from airflow_backfill_provider.warehouses.relational.added import add_columns, listed
from airflow_backfill_provider.warehouses.relational.receipts import HOME, Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Change
from airflow_backfill_provider.warehouses.relational.tables import Place, Table
from airflow_backfill_provider.warehouses.relational.warehouse import RelationalWarehouse
from airflow_backfill_provider.warehouses.sql import quote, quote_all
from airflow_backfill_provider.windows import Partition

_OLDEST = 15
_ROWS_PER_SECOND = 100_000
_REPLACED_PER_SECOND = 200_000
Alone = Callable[[Session, Place, Target, Publication, Receipts], tuple[Receipt, Locked]]
"""A whole publication, for a transaction that another one follows when a lock could not be had."""
LOCK_ATTEMPTS = 3
"""How often the lock of the table is tried for; writers that wait behind us get their turn between two attempts."""


class PostgresWarehouse(RelationalWarehouse[Session]):
    """A warehouse in one PostgreSQL database; see :class:`airflow_backfill_provider.warehouses.base.Warehouse`.

    Rows are compared by 64-bit hashes: two different rows look equal once in 2^64 pairs. A stage holds no constraint of
    the target, so that checks can report what breaks one.

    ``connect`` opens a connection. ``lock_timeout`` bounds the whole wait for the table's lock, which is tried for
    :data:`LOCK_ATTEMPTS` times, and every other wait for a lock; no SELECT of anybody ever waits for us. ``staging_schema`` is made when it is missing.
    ``sharers`` is of no meaning here: the server computes.
    """

    dialect = DIALECT
    _receipts_home = HOME
    """Schema and name of the table of receipts."""

    def __init__(
        self,
        connect: Connect,
        *,
        staging_schema: str = "safe_backfill_staging",
        lock_timeout: timedelta = timedelta(minutes=2),
        statement_timeout: timedelta | None = None,
        sharers: int = 1,
    ) -> None:
        self._sessions = Sessions(connect, statement_timeout, lock_timeout)
        self._storage = Storage(staging_schema)
        self._lock_timeout = lock_timeout

    @cached_property
    def _version(self) -> int:
        """The server's major version.

        :raises WarehouseError: it is too old.
        """
        with translated("Connecting"), self._sessions.session() as session:
            version = session.server_version // 10_000
        if version < _OLDEST:
            raise WarehouseError(f"The server is PostgreSQL {version}; {_OLDEST} or later is needed, for MERGE.")
        return version

    @property
    def method(self) -> str:  # type: ignore[override]
        return f"postgresql-{self._version}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            engine=f"PostgreSQL {self._version}",
            mechanisms=frozenset({"replace_partitions", "merge"}),
            dialect=DIALECT.name,
            rows_per_second=_ROWS_PER_SECOND,
            replaced_per_second=_REPLACED_PER_SECOND,
            unproven=(
                "While the publish runs, nobody else can write the table (SHARE ROW EXCLUSIVE); everybody can read it, but for the "
                "moment in which it adds columns or exchanges partitions (ACCESS EXCLUSIVE).",
                "Rows are compared by 64-bit hashes, and values that PostgreSQL calls equal are identical: 1.0 and 1.00, "
                "24 hours and one day, citext in any case.",
            ),
        )

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        with self._reading(f"Describing {table}", Published()) as session:
            place = catalog.locate(session, table)
            # Before the table is read, which is one of the rights; a view is refused for what it is.
            if not place.is_view:
                preflight(session, place, self._storage.schema)
            return catalog.describe(session, table, partition_by, key, reading)

    def select_columns(self, select: str) -> tuple[Column, ...]:
        with self._reading("Binding the transform", Published()) as session:
            if (text := session.one_select(select)) is None:
                raise TransformRefused("The transform is not one SELECT statement and nothing else.")
            try:
                described = session.columns(text)
            except (errors.LockNotAvailable, errors.QueryCanceled, errors.InsufficientPrivilege):
                raise
            except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as exc:
                raise TransformRefused(f"PostgreSQL cannot bind the transform: {exc}") from exc
        return tuple(Column(name, spelled) for name, spelled in described)

    def aliases(self, target: Target, names: Sequence[str]) -> tuple[str, ...]:
        with self._reading(f"Looking for views of {target.table}", Published()) as session:
            return catalog.aliases(session, target.table, names)

    def reader_cautions(self, target: Target) -> tuple[str, ...]:
        with self._reading(f"Looking at who is sent {target.table}", Published()) as session:
            return tuple(reader_cautions(session, catalog.locate(session, target.table)))

    def upkeep(self, target: Target, *, deleted: int) -> tuple[str, ...]:
        with self._reading(f"Looking at the dead rows of {target.table}", Published()) as session:
            return tuple(upkeep(session, catalog.locate(session, target.table), deleted))

    def growth_cautions(self, target: Target) -> tuple[str, ...]:
        with self._reading(f"Looking at the owner of {target.table}", Published()) as session:
            place = catalog.locate(session, target.table)
            require_owner(session, place)
        return (
            f"Nobody can read {target.table} either from when the columns are added to the commit. Nobody is made to wait in a "
            "queue for that: the publish takes a moment without readers, and gives up after publish.lock_timeout.",
        )

    def lossless(self, source_type: str, target_type: str) -> bool:
        if lossless(source_type, target_type):
            return True
        # A SELECT returns a value of a domain as one of the type under it.
        with self._reading(f"Looking up the type {target_type}", Published()) as session:
            under = catalog.type_under(session, target_type)
        return under is not None and lossless(source_type, under)

    @contextmanager
    def open_stage(self, target: Target, backfill_id: str, label: str, tell: Tell = untold) -> Iterator[PostgresStage]:
        method = self.method
        stage: PostgresStage | None = None
        try:
            with translated(f"Staging batch {label}"), self._sessions.session() as session:
                self._storage.prepare(session)
                with session.transaction():
                    place = catalog.locate(session, target.table)
                    columns = listed(target, self._absent(session, target), DIALECT.spelling)
                    location = self._storage.create(session, "stage", backfill_id, label, place, columns)
                    self._storage.refuse_wider(session, location, place)
                stored = partial(self._stored, session)
                landing = partial(self._landing, session, backfill_id, label)
                stage = PostgresStage(session, self._storage.sql(location), target, location, method, stored, landing)
                yield stage
                self._storage.analyze(session, location)
        finally:
            if stage is not None and stage.is_empty:
                self._drop_quietly(stage.location)

    @contextmanager
    def _landing(self, session: Session, backfill_id: str, label: str, target: Target, fill: Fill) -> Iterator[str]:
        """Run code on a table of its own; see :data:`relational.stage.Lands`."""
        with session.transaction():
            place = catalog.locate(session, target.table)
            columns = listed(target, self._absent(session, target), DIALECT.spelling)
            location = self._storage.create(session, "stage", backfill_id, label, place, columns)
            self._storage.refuse_wider(session, location, place)
        table = self._storage.sql(location)
        with dropped_afterwards(lambda: self._storage.drop(session, location)):
            with ExitStack() as inside:
                landing = PostgresLanding(
                    table, target, lambda: inside.enter_context(self._sessions.session_for_code())
                )
                fill(landing)
                landing.settle()
            yield table

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to back up.")
        with translated("Backing up"), self._sessions.session() as session:
            self._storage.prepare(session)
            with session.transaction():
                place = catalog.locate(session, target.table)
                columns = listed(target, self._absent(session, target), DIALECT.spelling)
                keys = [partition.key for partition in partitions]
                location = self._storage.create(session, "backup", backfill_id, label, place, columns, keys)
                self._storage.refuse_wider(session, location, place)
                (published,) = self._pieces(session, target, Published(), partitions)
                names = ", ".join(f"r.{quote(name)}" for name in target.column_names)
                session.run(
                    f"INSERT INTO {self._storage.sql(location)} ({quote_all(target.column_names)}) "
                    f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}"
                )
            self._storage.analyze(session, location)
        backup = Backup(location)
        try:
            return backup, self.fingerprint(target, backup, partitions)
        except BaseException:
            self._drop_quietly(location)
            raise

    def _keep_sample(
        self, target: Target, backfill_id: str, sides: tuple[Rows, Rows], select: Callable[[Session], str]
    ) -> str:
        with translated("Keeping a sample"), self._sessions.session() as session:
            self._storage.prepare(session)
            with session.transaction():
                place = catalog.locate(session, target.table)
                location = self._storage.create_from(session, "sample", backfill_id, "rows", select(session))
                self._storage.refuse_wider(session, location, place)
        return location

    @contextmanager
    def open_shadow(self, target: Target, backfill_id: str, partitions: Sequence[Partition]) -> Iterator[Shadow]:
        with translated("Copying into a shadow"), self._sessions.session() as session:
            self._storage.prepare(session)
            with session.transaction():
                place = catalog.locate(session, target.table)
                location = self._storage.create_like(session, "shadow", backfill_id, "trial", place)
                self._storage.refuse_wider(session, location, place)
                (published,) = self._pieces(session, target, Published(), partitions)
                names = quote_all(target.without(self._absent(session, target)).column_names)
                try:
                    session.run(
                        f"INSERT INTO {self._storage.sql(location)} ({names}) {DIALECT.overriding} "
                        f"SELECT {names} FROM {published.table} AS r WHERE {published.predicate}"
                    )
                except psycopg.IntegrityError as exc:
                    raise PublishRefused(
                        f"Published rows of {target.table} break a constraint of it, so no rollback could put them back: {told(exc)}"
                    ) from cause(exc)
            self._storage.analyze(session, location)
        shadow = copy(self)
        shadow._receipts_home = self._storage.receipts_of(location)
        try:
            yield Shadow(shadow, replace(target, table=f"{self._storage.schema}.{location}"))
        finally:
            self.drop(location)

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        return self._publish(target, publication, partial(self._publish_alone, lambda steps: steps.replace()))

    def merge(self, target: Target, publication: Publication) -> Receipt:
        return self._publish(target, publication, partial(self._publish_alone, lambda steps: steps.merge()))

    def plan_swap(self, target: Target, partitions: Sequence[Partition]) -> ChildSwap:
        with self._reading(f"Looking at the partitions of {target.table}", Published()) as session:
            return plan_swap(session, catalog.locate(session, target.table), target, partitions)

    def fill_children(self, target: Target, backfill_id: str, staged: Staged) -> Backup:
        partitions = [entry.partition for entry in staged.partitions]
        expected = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
        with translated(f"Filling partitions for {target.table}"), self._sessions.session() as session:
            self._storage.prepare(session)
            spare = Spare(session, self._storage, backfill_id)
            backup = Backup(spare.location)
            try:
                with session.transaction():
                    spare.fill(
                        catalog.locate(session, target.table),
                        target,
                        partitions,
                        self._pieces(session, target, staged, partitions),
                        lambda: self.fingerprint(target, backup, partitions) == expected,
                    )
            except psycopg.IntegrityError as exc:
                raise PublishRefused(
                    f"The staged rows break a constraint of {target.table}; nothing was written: {told(exc)}"
                ) from cause(exc)
        return backup

    def swap_children(self, target: Target, publication: Publication) -> Receipt:
        exchanges: list[Exchange] = []

        def exchange(
            session: Session, place: Place, target: Target, publication: Publication, receipts: Receipts
        ) -> tuple[Receipt, Locked]:
            exchanges.append(self._exchange(session, place, target, publication))
            return exchanges[-1].run(self._pieces(session, target, publication.rows, publication.partitions), receipts)

        if publication.action is Action.ROLLBACK and not self._leads_back(target, publication):
            return self.replace_partitions(target, publication)
        receipt = self._publish(target, publication, exchange)
        return replace(receipt, locked_for=exchanges[-1].locked_for)

    def _leads_back(self, target: Target, publication: Publication) -> bool:
        with translated(f"Publishing into {target.table}"), self._sessions.session() as session, session.transaction():
            return self._exchange(session, catalog.locate(session, target.table), target, publication).leads_back()

    def _exchange(self, session: Session, place: Place, target: Target, publication: Publication) -> Exchange:
        return Exchange(session, self._storage, place, target, publication, self._lock_timeout / LOCK_ATTEMPTS)

    def _publish(self, target: Target, publication: Publication, alone: Alone) -> Receipt:
        publication.refuse_incomplete(self.method)
        with translated(f"Publishing into {target.table}"), self._sessions.session() as session:
            place = catalog.locate(session, target.table)
            receipts = Receipts(DIALECT, session.run, place, self._receipts_home)
            self._storage.prepare(session)
            with session.transaction():
                self._storage.serialize(session)
                receipts.create()
            try:
                with self._sessions.session() as beside:
                    watch = Watch(beside)
                    first = time.monotonic()
                    for timeout in self._waits():
                        begun = time.monotonic()
                        try:
                            with watch, session.transaction(lock_timeout=timeout):
                                watch.follow(session.pid, timeout)
                                receipt, locked = alone(session, place, target, publication, receipts)
                        except (errors.LockNotAvailable, errors.DeadlockDetected) as exc:
                            met = exc
                        else:
                            return replace(
                                receipt,
                                lock_wait=timedelta(seconds=begun - first + locked.had_at - locked.asked_at),
                                write_block=timedelta(seconds=time.monotonic() - locked.had_at),
                            )
            except psycopg.IntegrityError as exc:
                raise PublishRefused(
                    f"The staged rows break a constraint of {target.table}; nothing was written: {told(exc)}"
                ) from cause(exc)
            except errors.GeneratedAlways as exc:
                raise PublishRefused(
                    f"{target.table} numbers a column itself, so a merge cannot update it; nothing was written: {told(exc)} "
                    "Use mechanism replace_partitions, or make the column GENERATED BY DEFAULT."
                ) from exc
        why = str(met) if isinstance(met, Occupied) else watch.blockers
        raise LockTimeout(
            f"The lock of {target.table} could not be had within {self._lock_timeout}, in {LOCK_ATTEMPTS} attempts; nothing "
            f"was written. {why} Try again when that is over, or raise publish.lock_timeout."
        )

    def _publish_alone(
        self,
        change: Change,
        session: Session,
        place: Place,
        target: Target,
        publication: Publication,
        receipts: Receipts,
    ) -> tuple[Receipt, Locked]:
        """A replacement or a merge."""
        landing = self._pieces(session, target, publication.rows, publication.partitions)
        _refuse_obstacles(session, place)
        steps = ReadFirst(session, target, publication, landing)
        steps.read()
        locked = lock_alone(session, place)
        # With the lock, nobody can add to them any more.
        _refuse_obstacles(session, place)
        if lacking := self._absent(session, target):
            lock_everybody_out(session, catalog.family(session, place), wait=self._lock_timeout / LOCK_ATTEMPTS)
            add_columns(session.run, place, lacking)
        session.run("SET CONSTRAINTS ALL DEFERRED")
        try:
            receipt = steps.run(change, receipts)
            # Not left to the commit, which no timeout ends.
            session.run("SET CONSTRAINTS ALL IMMEDIATE")
        except errors.UniqueViolation as exc:
            raise PublishRefused(
                f"{target.table} lets no key repeat, and a row that would land has one of a row outside the range; nothing was "
                f"written. {told(exc)} Find out which of the rows is right first."
            ) from cause(exc)
        return receipt, locked

    def _waits(self) -> Iterator[timedelta]:
        """How long each attempt may wait for the lock; all of them and the pauses between take the lock timeout."""
        pause = self._lock_timeout / 20
        share = (self._lock_timeout - pause * (LOCK_ATTEMPTS - 1)) / LOCK_ATTEMPTS
        for attempt in range(LOCK_ATTEMPTS):
            if attempt:
                time.sleep(pause.total_seconds() * random.uniform(0.5, 1.0))
            yield share

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        with self._reading("Reading receipts", Published()) as session:
            place = self._find_table(session, target.table).place
            return Receipts(DIALECT, session.run, place, self._receipts_home).read()

    def storage(self) -> tuple[StorageItem, ...]:
        with self._reading("Listing stages and backups", Published()) as session:
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

    def close(self) -> None:
        """Let go of every connection that is not in use."""
        self._sessions.close()

    @contextmanager
    def _reading(self, what: str, *sides: Rows) -> Iterator[Session]:
        with translated(what), self._sessions.session() as session, session.transaction(read_only=True):
            yield session

    def _locate(self, session: Session, name: str) -> Place:
        return catalog.locate(session, name)

    def _has_each_key_once(self, session: Session, target: Target) -> bool:
        return catalog.is_unique(session, catalog.locate(session, target.table), target.key)

    def _find_table(self, session: Session, name: str) -> Table:
        return catalog.find_table(session, name)

    def _stored(self, session: Session, location: str) -> str:
        return self._storage.existing(session, location)

    def _covered(self, session: Session, location: str, table: str) -> set[str]:
        return self._storage.covered(session, location)


def _refuse_obstacles(session: Session, place: Place) -> None:
    """:raises PublishRefused: a publish would do more, or less, than replace rows."""
    if obstacles := catalog.obstacles(session, place):
        raise PublishRefused(f"{place} cannot be published into any more; nothing was written: {'; '.join(obstacles)}.")
