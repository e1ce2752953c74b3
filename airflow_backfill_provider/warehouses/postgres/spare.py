"""Spare tables: filled from the stage while the children they will be exchanged for are in use, and what is left after it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from airflow_backfill_provider.errors import PublishRefused, SpecError
from airflow_backfill_provider.warehouses.base import Fingerprint, Target
from airflow_backfill_provider.warehouses.postgres import anatomy
from airflow_backfill_provider.warehouses.postgres.children import Child
from airflow_backfill_provider.warehouses.postgres.dress import create_like, dress
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.postgres.storage import Storage
from airflow_backfill_provider.warehouses.postgres.swappable import require_swappable
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import quote, quote_all, text_literal
from airflow_backfill_provider.windows import Partition

SPARE = "spare"
"""The kind of what may be dropped: never published, or not any more."""
Marks = Callable[[str], Mapping[str, Fingerprint]]
"""The fingerprints of what is at a location, by partition key."""


def spare_location(backfill_id: str) -> str:
    """Where the spare tables of a backfill are: one place, so that two attempts at once cannot fill two."""
    return f"{SPARE}_{backfill_id[:38]}_{hashlib.sha256(backfill_id.encode()).hexdigest()[:12]}"


class Spare:
    """The spare tables of one backfill: an empty table that they inherit from, so that all can be read and dropped as one.

    The first stands for the first child of the range, and so on. They lie in the staging schema, are filled in one
    transaction, and are the backup once they were exchanged.
    """

    def __init__(self, session: Session, storage: Storage, backfill_id: str) -> None:
        self._session = session
        self._storage = storage
        self._backfill_id = backfill_id
        self.location = spare_location(backfill_id)

    def fill(
        self,
        place: Place,
        target: Target,
        partitions: Sequence[Partition],
        landing: Sequence[Piece],
        kept: Callable[[], bool],
    ) -> None:
        """Make and fill a table for each child that holds the partitions, for a transaction of the caller.

        :param kept: whether what an earlier attempt left there has the rows that are to land; it is used again then.
        :raises PublishRefused: the children cannot be exchanged any more, or were already.
        """
        self._storage.serialize_on(self._session, self.location)
        try:
            _, children = require_swappable(self._session, place, target, partitions)
        except SpecError as error:
            raise PublishRefused(f"Since the plan was made, it changed: {error} Nothing was written.") from error
        kind = self._storage.kind(self._session, self.location)
        if kind is not None:
            if kind != SPARE:
                raise PublishRefused(
                    f"{self.location} holds what backfill {self._backfill_id} replaced, so it published before. Nothing was written."
                )
            if self._stand_for(children) and kept():
                return
            self._storage.drop(self._session, self.location)
        columns = [*map(quote, target.column_names)]
        self._storage.create(
            self._session,
            SPARE,
            self._backfill_id,
            "swap",
            place,
            columns,
            [one.key for one in partitions],
            self.location,
        )
        tables = [self._storage.sql(f"{self.location}_{number}") for number, _ in enumerate(children, 1)]
        oids = [create_like(self._session, child, table) for child, table in zip(children, tables, strict=True)]
        self._pour(place, target, children, tables, landing)
        for child, oid, table in zip(children, oids, tables, strict=True):
            dress(self._session, child, oid, table)
            self._session.run(f"ALTER TABLE {table} INHERIT {self._storage.sql(self.location)}")
            self._session.run(f"ANALYZE {table}")
        pairs = [(child.oid, oid) for child, oid in zip(children, oids, strict=True)]
        if lost := anatomy.differences(self._session, pairs):
            raise PublishRefused(
                f"A table that would take the place of a partition of {place} would differ in {', '.join(lost)}. Nothing was "
                "written. Take that away, or set publish.swap: false."
            )
        for number in range(len(children) + 1):
            self._storage.refuse_wider(self._session, f"{self.location}_{number}" if number else self.location, place)

    def _pour(
        self, place: Place, target: Target, children: Sequence[Child], tables: Sequence[str], landing: Sequence[Piece]
    ) -> None:
        """Let PostgreSQL sort what lands into the tables, in one pass: for that time they are partitions of a table."""
        run = self._session.run
        funnel = self._storage.sql(f"{self.location}_0")
        ((key,),) = run(f"SELECT pg_get_partkeydef({text_literal(place.sql)}::regclass)")
        run(f"CREATE TABLE {funnel} (LIKE {place.sql} INCLUDING GENERATED) PARTITION BY {key}")
        for child, table in zip(children, tables, strict=True):
            run(f"ALTER TABLE {funnel} ATTACH PARTITION {table} {child.bound}")
        names = target.column_names
        rows = " UNION ALL ".join(
            f"SELECT {', '.join(f'r.{quote(name)}' for name in names)} FROM {piece.table} AS r WHERE {piece.predicate}"
            for piece in landing
        )
        run(f"INSERT INTO {funnel} ({quote_all(names)}) {rows}")
        for table in tables:
            run(f"ALTER TABLE {funnel} DETACH PARTITION {table}")
        run(f"DROP TABLE {funnel}")

    def tables(self) -> list[tuple[int, str]]:
        """Oid and name of each table, in order."""
        return [
            (oid, name)
            for oid, name in self._session.run(
                "SELECT c.oid, c.relname FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid "
                f"WHERE i.inhparent = {self._storage.oid(self.location)} ORDER BY length(c.relname), c.relname"
            )
        ]

    def _stand_for(self, children: Sequence[Child]) -> bool:
        """Whether each table has all that its child has."""
        there = self.tables()
        if len(there) != len(children):
            return False
        pairs = [(child.oid, oid) for child, (oid, _) in zip(children, there, strict=True)]
        return not anatomy.differences(self._session, pairs)
