"""Exchanging the children of a partitioned table for spare tables, in one commit with the receipt."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from psycopg import errors

from airflow_backfill_provider.errors import PublishRefused, SpecError
from airflow_backfill_provider.warehouses.base import Action, Backup, Publication, Receipt, Target
from airflow_backfill_provider.warehouses.postgres import anatomy, catalog
from airflow_backfill_provider.warehouses.postgres.anatomy import BOUND
from airflow_backfill_provider.warehouses.postgres.children import Child, Family
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.dress import Names
from airflow_backfill_provider.warehouses.postgres.exclusive import lock_everybody_out
from airflow_backfill_provider.warehouses.postgres.locks import Locked, lock_alone
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.postgres.spare import SPARE, Spare
from airflow_backfill_provider.warehouses.postgres.storage import Storage
from airflow_backfill_provider.warehouses.postgres.swappable import require_swappable
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Replacement, count_rows
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, quote_path

BACKUP = "backup"
"""The kind of what was published before; there is no other copy of it."""
Pair = tuple[Child, int, str]
"""A child, and oid and name of the spare table that takes its place."""


class Exchange:
    """One exchange of the children that hold a range for the spare tables of a backfill.

    What takes the place of a child has its name, rights and indexes from then on. The child is kept under the name of the
    spare table, so that the same exchange leads back.
    """

    def __init__(
        self,
        session: Session,
        storage: Storage,
        place: Place,
        target: Target,
        publication: Publication,
        wait: timedelta,
    ) -> None:
        self._session = session
        self._storage = storage
        self._place = place
        self._target = target
        self._publication = publication
        self._wait = wait
        self._spare = Spare(session, storage, publication.backfill_id)
        self._locked_at: float | None = None

    @property
    def locked_for(self) -> timedelta | None:
        """How long nobody else could read the table until now; None when readers were never held."""
        return None if self._locked_at is None else timedelta(seconds=time.monotonic() - self._locked_at)

    def run(self, landing: Sequence[Piece], receipts: Receipts) -> tuple[Receipt, Locked]:
        """The whole exchange, for a transaction of the caller, which commits right after it; and since when writers are kept out.

        Whatever has to be read is read before anybody is kept from reading.

        :raises PublishRefused: table or spare tables are not what they were when those were filled.
        :raises psycopg.errors.LockNotAvailable: a lock could not be had in time; for Occupied, its message says who was there.
        """
        publication = self._publication
        self.take_spare()
        self._steps(landing).refuse_unvalidated()
        locked = lock_alone(self._session, self._place)
        left = self._wait - timedelta(seconds=locked.had_at - locked.asked_at)
        family, pairs = self.pair()
        steps = self._steps(landing)
        steps.refuse_other_columns()
        steps.refuse_moved()
        steps.refuse_repeated_keys()
        publication.confirm()
        receipt = receipts.write(publication, count_rows(publication.before), count_rows(publication.after))
        # What is done to the spare tables alone holds nobody up.
        self._session.run("; ".join(one for pair in pairs for one in self._bring(*pair)))
        statements = "; ".join(self._statements(family, pairs))
        self.lock_out(family, pairs, left)
        self._session.run(statements)
        return receipt, locked

    def _steps(self, landing: Sequence[Piece]) -> Replacement:
        """The guards of a replacement, of the table as it is now."""
        table = catalog.find_table(self._session, self._target.table)
        return Replacement(DIALECT, self._session, table, self._target, self._publication, landing)

    def take_spare(self) -> None:
        """Keep everybody from the spare tables, whose rows are the backup once they were exchanged, and the other way round.

        :raises PublishRefused: they are gone, or were exchanged.
        """
        self._refuse_other_rows()
        kinds = (SPARE, BACKUP) if self._publication.action is Action.PUBLISH else (BACKUP, SPARE)
        self._storage.serialize_on(self._session, self._spare.location)
        if not self._storage.turn(self._session, self._spare.location, *kinds):
            raise PublishRefused(
                f"There is no {kinds[0]} at {self._spare.location}; nothing was written. It was dropped, or exchanged before. "
                "Clear this task to try again."
            )
        spare = [self._spare.location, *(name for _, name in self._spare.tables())]
        tables = ", ".join(f"ONLY {self._storage.sql(name)}" for name in spare)
        self._session.run(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")

    def _refuse_other_rows(self) -> None:
        if self._publication.rows != Backup(self._spare.location):
            raise PublishRefused(
                f"Partitions are exchanged for what was filled at {self._spare.location}, and {self._publication.rows} was "
                "given. Nothing was written."
            )

    def pair(self) -> tuple[Family, list[Pair]]:
        """Each child of the range with the table that takes its place.

        :raises PublishRefused: the children cannot be exchanged, or one of them is not as its table is.
        """
        if found := catalog.obstacles(self._session, self._place):
            raise PublishRefused(
                f"{self._target.table} cannot be published into any more; nothing was written: {'; '.join(found)}."
            )
        try:
            family, children = require_swappable(self._session, self._place, self._target, self._publication.partitions)
        except SpecError as error:
            raise PublishRefused(f"Since the plan was made, it changed: {error} Nothing was written.") from error
        spare = self._spare.tables()
        if len(spare) != len(children):
            raise PublishRefused(
                f"{self._target.table} has {len(children)} partitions in the range, and {len(spare)} were filled to take their "
                "place. Nothing was written. Clear this task to fill them again."
            )
        pairs = [(child, oid, name) for child, (oid, name) in zip(children, spare, strict=True)]
        if unlike := anatomy.differences(self._session, [(child.oid, oid) for child, oid, _ in pairs]):
            raise PublishRefused(
                f"Partitions of {self._target.table} changed since the tables that take their place were filled: "
                f"{', '.join(unlike)}. Nothing was written. Clear this task to fill them again."
            )
        return family, pairs

    def lock_out(self, family: Family, pairs: Sequence[Pair], wait: timedelta) -> None:
        """Keep readers out too, of the range's children and of the table itself."""
        default = [] if family.default is None else [family.default.place.sql]
        tables = [family.place.sql, *(child.place.sql for child, _, _ in pairs), *default]
        lock_everybody_out(self._session, tables, newest=pairs[0][1], wait=wait)
        self._locked_at = time.monotonic()

    def _statements(self, family: Family, pairs: Sequence[Pair]) -> Iterator[str]:
        """All that is done while nobody can read: first every child leaves, which makes each step cheaper, then all come."""
        if default := family.default:
            # Read once here, and not by each ATTACH.
            none = " AND ".join(f"NOT ({child.holds})" for child, _, _ in pairs)
            yield f"ALTER TABLE {default.place.sql} ADD CONSTRAINT {quote(BOUND)} CHECK ({none})"
        for child, _, _ in pairs:
            yield f"ALTER TABLE {family.place.sql} DETACH PARTITION {child.place.sql}"
        known = Names.read(self._session, [oid for child, spare, _ in pairs for oid in (child.oid, spare)])
        for pair in pairs:
            yield from self._exchange_names(known, *pair)
        for child, _, spare in pairs:
            yield f"ALTER TABLE {self._storage.sql(spare)} INHERIT {self._storage.sql(self._spare.location)}"
            yield f"ALTER TABLE {family.place.sql} ATTACH PARTITION {child.place.sql} {child.bound}"
            yield f"ALTER TABLE {child.place.sql} DROP CONSTRAINT {quote(BOUND)}"
        if default:
            yield f"ALTER TABLE {default.place.sql} DROP CONSTRAINT {quote(BOUND)}"

    def _bring(self, child: Child, oid: int, spare: str) -> Iterator[str]:
        """The spare table goes to where the child is."""
        yield f"ALTER TABLE {self._storage.sql(spare)} NO INHERIT {self._storage.sql(self._spare.location)}"
        yield f"ALTER TABLE {self._storage.sql(spare)} SET SCHEMA {quote(child.place.schema)}"

    def _exchange_names(self, known: Names, child: Child, oid: int, spare: str) -> Iterator[str]:
        """The child goes to where the spare table was, and each gets the other's names."""
        here, aside = child.place.schema, self._storage.schema
        yield f"ALTER TABLE {child.place.sql} SET SCHEMA {quote(aside)}"
        yield f"ALTER TABLE {quote_path(aside, child.place.name)} RENAME TO {quote(spare)}"
        yield f"ALTER TABLE {quote_path(here, spare)} RENAME TO {quote(child.place.name)}"
        for old, new in zip(known.indexes[child.oid], known.indexes[oid], strict=True):
            yield f"ALTER INDEX {quote_path(aside, old)} RENAME TO {quote(new)}"
            yield f"ALTER INDEX {quote_path(here, new)} RENAME TO {quote(old)}"
        # Those do not go with their table.
        for ours, theirs in zip(known.statistics[child.oid], known.statistics[oid], strict=True):
            for one, other in ((ours, theirs), (theirs, ours)):
                if one[0] != other[0]:
                    yield f"ALTER STATISTICS {quote_path(*one)} SET SCHEMA {quote(other[0])}"
            for one, other in ((ours, theirs), (theirs, ours)):
                yield f"ALTER STATISTICS {quote_path(other[0], one[1])} RENAME TO {quote(other[1])}"
        if known.owners[child.oid] != known.owners[oid]:
            yield f"ALTER TABLE {child.place.sql} OWNER TO {quote(known.owners[child.oid])}"

    def leads_back(self) -> bool:
        """Whether what was exchanged can be exchanged again, for a transaction of the caller.

        The tables are proven to fit where they were, so that attaching them need not read them again.
        """
        self._storage.serialize_on(self._session, self._spare.location)
        if self._storage.kind(self._session, self._spare.location) != BACKUP:
            return False
        try:
            self._refuse_other_rows()
            _, pairs = self.pair()
        except PublishRefused:
            return False
        try:
            with self._session.attempt():
                for child, _, name in pairs:
                    table = self._storage.sql(name)
                    self._session.run(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {quote(BOUND)}")
                    self._session.run(f"ALTER TABLE {table} ADD CONSTRAINT {quote(BOUND)} CHECK ({child.holds})")
        except errors.CheckViolation:
            return False
        return True
