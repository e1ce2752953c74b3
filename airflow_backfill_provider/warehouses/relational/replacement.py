"""Replacing a range of the published table, step by step, inside the transaction that keeps every other writer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_backfill_provider.errors import PublishRefused, StageChanged, TargetMoved
from airflow_backfill_provider.warehouses.base import Action, Fingerprint, Publication, Receipt, Target
from airflow_backfill_provider.warehouses.later_columns import later, later_column_filled
from airflow_backfill_provider.warehouses.relational.added import absent, nothing, with_absent
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST, Dialect
from airflow_backfill_provider.warehouses.relational.keys import find_keys_outside
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.session import Run, Session
from airflow_backfill_provider.warehouses.relational.statements import (
    Buckets,
    Piece,
    fingerprints,
    keys_repeated,
)
from airflow_backfill_provider.warehouses.relational.tables import Table
from airflow_backfill_provider.warehouses.sql import Spelling, quote, quote_all
from airflow_backfill_provider.windows import Partition

_NAMED_AT_MOST = 5
_WAYS_ON = {
    True: "Plan and stage again.",
    False: "The way back keeps only columns that were added since and take a NULL. A new backfill, with the SQL as it was, "
    "brings back what that gives.",
}

_LOOKED_AT = {True: "the plan was made", False: "it was looked at"}


class Replacement:
    """The steps of one replacement, each a method, in the order of :meth:`run`. No clean-up happens among them."""

    def __init__(
        self,
        dialect: Dialect,
        session: Session,
        table: Table,
        target: Target,
        publication: Publication,
        landing: Sequence[Piece],
        *,
        bears_later_columns: bool = True,
    ) -> None:
        """Set up only.

        :param bears_later_columns: whether what writes the range gives NULL to the columns that came after the plan.
        """
        self._bears_later_columns = bears_later_columns and publication.action is not Action.PUBLISH
        self._dialect = dialect
        self._spelling = dialect.spelling
        self._session = session
        self._name = table.place.sql
        self._target = target
        self._publication = publication
        self._landing = landing
        self._take(table)

    def _take(self, table: Table) -> None:
        """The table is this; the columns that it lacks, of those to be added, are NULL."""
        self._table = table
        self._lacking = absent(self._target, table.column_names)
        self._later = later(self._target, table.columns) if self._bears_later_columns else ()
        self._published = self._piece(with_absent(table.place.sql, self._lacking, self._spelling))

    def run(self, change: Change, receipts: Receipts) -> Receipt:
        """Change the range and write the receipt; for the transaction that keeps every other writer out of the table."""
        self.refuse_other_columns()
        self.refuse_moved()
        self.refuse_repeated_keys()
        deleted, inserted = change(self)
        self.refuse_changed()
        self.refuse_miscounted(deleted, inserted)
        self._publication.confirm()
        return receipts.write(self._publication, deleted, inserted)

    def refuse_other_columns(self) -> None:
        """On the way back, a column that came since may stay, where it is NULL in every row of the range.

        :raises PublishRefused: the table is not the one the plan described.
        """
        found = tuple(column for column in self._table.columns if column not in self._later)
        expected = self._target.without(self._lacking).columns
        if found != expected:
            differing = sorted({column.name for column in set(found) ^ set(expected)})
            raise PublishRefused(
                f"{self._target.table} has other columns than when the plan was made: {', '.join(differing) or 'order'}"
                f" differ. Nothing was written. {_WAYS_ON[self._publication.action is Action.PUBLISH]}"
            )
        self._refuse_filled()

    def _refuse_filled(self) -> None:
        if not self._later:
            return
        names = [column.name for column in self._later]
        counts = ", ".join(f"count(r.{self._spelling.quote(name)})" for name in names)
        table, within = self._published.table, self._published.predicate
        (values,) = self._session.run(f"SELECT {counts} FROM {table} AS r WHERE {within}")
        if filled := [(name, rows) for name, rows in zip(names, values, strict=True) if rows]:
            raise later_column_filled(self._target, filled)

    def refuse_moved(self, known: Mapping[str, Fingerprint] | None = None) -> None:
        """Compare the range with the plan's baseline.

        :param known: what every partition holds, where that was read already; by default it is read now.
        :raises TargetMoved: the range is not what the baseline says.
        """
        before = self._publication.before
        if known is None:
            moved = self._differing(before, [self._published])
        else:
            moved = {key: (mark.rows, known[key].rows) for key, mark in sorted(before.items()) if known[key] != mark}
        if moved:
            raise TargetMoved(
                f"{self._target.table} moved since {_LOOKED_AT[self._publication.action is Action.PUBLISH]}; nothing was written. "
                f"{_named(moved)}",
                moved,
            )

    def refuse_repeated_keys(self) -> None:
        """:raises PublishRefused: a key that lands also exists outside the partitions that are replaced."""
        target = self._target
        # A key that holds the partition column cannot be in two partitions.
        if self._publication.keys_may_repeat or target.partition_by in target.key:
            return
        if find_keys_outside(self._dialect, self._session.run, target, self._landing, self._published, limit=1):
            raise PublishRefused(
                f"{target.table} has rows outside {_reach(self._publication.partitions)} with the same {', '.join(target.key)} as rows that "
                "would land there; nothing was written. Find out which of them is right first."
            )

    def replace(self) -> tuple[int, int]:
        """Delete the range and insert what lands; returns how many rows went and came.

        :raises TargetMoved: other rows were deleted than the baseline holds.
        """
        deleted, wanted = self.delete(), count_rows(self._publication.before)
        if deleted != wanted:
            raise TargetMoved(
                f"{deleted} rows of {self._target.table} would be deleted where {wanted} were expected; nothing was written.",
                {"deleted": (wanted, deleted)},
            )
        return deleted, self.insert()

    def merge(self) -> tuple[int, int]:
        """Update what differs, insert what is new, delete what is gone; returns how many rows went and came.

        :raises PublishRefused: published rows of the range share a key.
        """
        names, key = self._target.column_names, self._target.key
        if self._session.run(keys_repeated([self._published], key) + " LIMIT 1"):
            named = ", ".join(key)
            raise PublishRefused(
                f"Published rows of {self._target.table} in the range share their {named}, so a merge cannot match them; nothing was "
                f"written. SELECT {named} FROM {self._target.table} GROUP BY {named} HAVING count(*) > 1 shows them. Use mechanism "
                "replace_partitions."
            )
        match = " AND ".join(f"r.{quote(name)} = s.{quote(name)}" for name in key)
        gone = f"NOT EXISTS (SELECT 1 FROM ({self.landing_rows()}) AS s WHERE {match})"
        ((deleted,),) = self._session.run(f"DELETE FROM {self._name} AS r WHERE {self._published.predicate} AND {gone}")
        rest = [name for name in names if name not in key]
        # By the hash that fingerprints are made of, so that a merge and the check after it cannot disagree.
        changed = f"{self._dialect.row_hash(names)} <> {self._dialect.row_hash(names, 's.')}"
        ((written,),) = self._session.run(
            f"MERGE INTO {self._name} AS r USING ({self.landing_rows()}) AS s "
            f"ON {match} AND {self._published.predicate} "
            + (f"WHEN MATCHED AND {changed} THEN UPDATE SET {_assignments(rest)} " if rest else "")
            + f"WHEN NOT MATCHED THEN INSERT ({quote_all(self._written)}) {self._dialect.overriding} "
            f"VALUES ({_row(self._spelling, 's', self._written)})"
        )
        inserted = count_rows(self._publication.after) - (count_rows(self._publication.before) - deleted)
        updated = written - inserted
        return deleted + updated, inserted + updated

    def delete(self) -> int:
        """Delete the range; returns how many rows went."""
        ((deleted,),) = self._session.run(f"DELETE FROM {self._name} AS r WHERE {self._published.predicate}")
        return int(deleted)

    def insert(self) -> int:
        """Insert what lands, by name; returns how many rows came."""
        ((inserted,),) = self._session.run(
            f"INSERT INTO {self._name} ({quote_all(self._written)}) {self._dialect.overriding} {self.landing_rows()}"
        )
        return int(inserted)

    def refuse_changed(self) -> None:
        """:raises StageChanged: the range, as it is now, is not what was validated."""
        self._refuse_other_than_validated([self._published])

    def refuse_unvalidated(self) -> None:
        """As :meth:`refuse_changed`, before anything is written: by the rows that would land.

        :raises StageChanged: they are not what was validated.
        """
        self._refuse_other_than_validated(self._landing)

    def _refuse_other_than_validated(self, pieces: Sequence[Piece]) -> None:
        if changed := self._differing(self._publication.after, pieces):
            raise StageChanged(
                f"What lands in {self._target.table} is not what was validated; nothing was written. {_named(changed)} "
                "Stage and validate these partitions again.",
                changed,
            )

    def refuse_miscounted(self, deleted: int, inserted: int) -> None:
        """:raises StageChanged: more or fewer rows landed than the range has now, so some landed outside it."""
        wanted = count_rows(self._publication.after) - count_rows(self._publication.before) + deleted
        if inserted != wanted:
            raise StageChanged(
                f"{inserted} rows of {self._target.table} would be inserted where {wanted} were expected; nothing was written.",
                {"inserted": (wanted, inserted)},
            )

    @property
    def _written(self) -> list[str]:
        """The columns of :meth:`landing_rows`."""
        return [*self._target.column_names, *(column.name for column in self._later)]

    def landing_rows(self) -> str:
        """A SELECT of the rows that land: those of the range, by name, in the target's order, and NULL for what came later."""
        names = ", ".join([_row(self._spelling, "r", self._target.column_names), *nothing(self._later, self._spelling)])
        return " UNION ALL ".join(
            f"SELECT {names} FROM {piece.table} AS r WHERE {piece.predicate}" for piece in self._landing
        )

    def _piece(self, table: str) -> Piece:
        """The range in that table."""
        return Piece.of(self._dialect, self._target, table, self._publication.partitions)

    def _differing(
        self, expected: Mapping[str, Fingerprint], pieces: Sequence[Piece], look: Run | None = None
    ) -> dict[str, tuple[int, int]]:
        """Rows expected and found in the pieces, of each partition of the range whose fingerprint is another one."""
        buckets = Buckets(self._publication.partitions, pieces)
        rows = (look or self._session.run)(fingerprints(self._dialect, buckets, pieces, self._target.column_names))
        found = {buckets.key(bucket): (count, digest) for bucket, count, digest in rows}
        return {
            key: (wanted.rows, found.get(key, (0, ""))[0])
            for key, wanted in sorted(expected.items())
            if found.get(key, (0, EMPTY_DIGEST)) != (wanted.rows, wanted.digest)
        }


Change = Callable[[Replacement], tuple[int, int]]
"""How the range comes to hold what lands: :meth:`Replacement.replace` or :meth:`Replacement.merge`."""


def count_rows(marks: Mapping[str, Fingerprint]) -> int:
    """Rows of all partitions together."""
    return sum(mark.rows for mark in marks.values())


def _row(spelling: Spelling, alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{spelling.quote(name)}" for name in names)


def _assignments(names: Sequence[str]) -> str:
    return ", ".join(f"{quote(name)} = s.{quote(name)}" for name in names)


def _reach(partitions: Sequence[Partition]) -> str:
    """The partitions that are replaced together, in words; there may be others among them."""
    first, last = partitions[0].key, partitions[-1].key
    return f"the partition {first}" if first == last else f"the {len(partitions)} partitions {first} … {last}"


def _named(differing: Mapping[str, tuple[int, int]]) -> str:
    named = [f"{key} (expected {wanted} rows, found {found})" for key, (wanted, found) in differing.items()]
    more = len(named) - _NAMED_AT_MOST
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {more} more." if more > 0 else ".")
