"""Replacing a range of the published table: one transaction, from the guard to the receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, StageChanged, TargetMoved
from airflow_backfill_provider.warehouses.base import (
    Action,
    Fingerprint,
    Publication,
    Receipt,
    Target,
)
from airflow_backfill_provider.warehouses.clocks import UTC_TIMESTAMP
from airflow_backfill_provider.warehouses.duckdb.catalog import Place, Run, columns, comment, locate
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.sql import (
    EMPTY_DIGEST,
    Buckets,
    Piece,
    fingerprints,
    keys_outside,
    keys_repeated,
    row_hash,
)
from airflow_backfill_provider.warehouses.sql import instant, literal, quote, quote_all, quote_path, text_literal

RECEIPTS = ("safe_backfill", "receipts")
"""Schema and name of the table that holds the receipts; in the warehouse, because one commit writes one file."""
_RECEIPT_COLUMNS = (
    "sequence BIGINT PRIMARY KEY, table_schema VARCHAR NOT NULL, table_name VARCHAR NOT NULL, "
    "backfill_id VARCHAR NOT NULL, action VARCHAR NOT NULL, plan_hash VARCHAR NOT NULL, "
    "partition_keys VARCHAR[] NOT NULL, deleted BIGINT NOT NULL, inserted BIGINT NOT NULL, "
    "committed_at TIMESTAMP NOT NULL"
)
_NAMED_AT_MOST = 5


class Replacement:
    """The steps of one replacement, each a method, in the order of :meth:`run`. No clean-up happens among them."""

    def __init__(
        self, session: Session, target: Target, publication: Publication, landing: Sequence[Piece], method: str
    ) -> None:
        self._session = session
        self._target = target
        self._publication = publication
        self._landing = landing
        self._method = method
        self._named = locate(session.run, target.table)
        """What the receipt is of."""
        self._table = self._holder()
        """Where the rows are."""
        self._published = self._piece(self._table)
        self._buckets = Buckets(publication.partitions, [self._published])

    def _holder(self) -> Place:
        """The table that holds the published rows.

        :raises PublishRefused: what was a table when the plan was made is a view now.
        """
        if self._named.is_view:
            raise PublishRefused(
                f"{self._target.table} is a view now, and was a table when the plan was made. Nothing was written."
            )
        return self._named

    def run(self, change: Change) -> Receipt:
        """Change the range and write the receipt, all in one commit or not at all."""
        text = comment(self._session.run, self._table)
        with self._session.bulk_loading(), self._session.transaction():
            self.guard(text)
            self.refuse_other_columns()
            self.refuse_moved()
            self.refuse_repeated_keys()
            deleted, inserted = change()
            self.refuse_changed()
            self.refuse_miscounted(deleted, inserted)
            self._publication.confirm()
            receipt = self.write_receipt(deleted, inserted)
        return receipt

    def guard(self, text: str | None) -> None:
        """Make every other transaction that writes the table fail, by giving the table its own comment again.

        It must be the first statement: after an earlier read, an append between that read and the guard slips in.
        """
        self._session.run(f"COMMENT ON TABLE {self._table.sql} IS {literal(text)}")
        # From here on nobody else can change the comment; what was committed before must be what was just written.
        if (found := comment(self._session.second_look, self._table)) != text:
            raise LockTimeout(
                f"The comment of {self._target.table} was changed to {found!r} just now; nothing was written. Try again."
            )

    def refuse_other_columns(self) -> None:
        """:raises PublishRefused: the table is not the one the plan described."""
        found = columns(self._session.run, self._table)
        if found != self._target.columns:
            differing = sorted({column.name for column in set(found) ^ set(self._target.columns)})
            raise PublishRefused(
                f"{self._target.table} has other columns than when the plan was made: {', '.join(differing) or 'order'}"
                " differ. Nothing was written. Plan and stage again."
            )

    def refuse_moved(self) -> None:
        """:raises TargetMoved: the range is not what the plan's baseline says."""
        if moved := self._differing(self._publication.before):
            raise TargetMoved(
                f"{self._target.table} moved since the plan was made; nothing was written. {_name(moved)} "
                "Rebase: plan these partitions again.",
                moved,
            )

    def refuse_repeated_keys(self) -> None:
        """:raises PublishRefused: a key that lands also exists outside the range."""
        target = self._target
        # A key that holds the partition column cannot be in two partitions.
        if self._publication.keys_may_repeat or target.partition_by in target.key:
            return
        repeated = self._session.run(keys_outside(self._landing, self._published, target.key) + " LIMIT 5")
        if repeated:
            named = "; ".join(", ".join(map(str, key)) for key in repeated)
            raise PublishRefused(
                f"{target.table} has rows outside the range with the same {', '.join(target.key)} as rows that would land "
                f"(for example {named}); nothing was written. Find out which of them is right first."
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
        repeated = self._session.run(keys_repeated([self._published], key) + " LIMIT 5")
        if repeated:
            named = "; ".join(", ".join(map(str, values)) for values in repeated)
            raise PublishRefused(
                f"Published rows of {self._target.table} in the range share their {', '.join(key)} (for example {named}), so a "
                "merge cannot match them; nothing was written. Use mechanism replace_partitions."
            )
        match = " AND ".join(f"r.{quote(name)} = s.{quote(name)}" for name in key)
        gone = f"NOT EXISTS (SELECT 1 FROM ({self._landing_rows()}) AS s WHERE {match})"
        ((deleted,),) = self._session.run(
            f"DELETE FROM {self._table.sql} AS r WHERE {self._published.predicate} AND {gone}"
        )
        rest = [name for name in names if name not in key]
        # By the hash that fingerprints are made of, so that a merge and the check after it cannot disagree.
        changed = f"{row_hash(names)} <> {row_hash(names, 's.')}"
        ((written,),) = self._session.run(
            f"MERGE INTO {self._table.sql} AS r USING ({self._landing_rows()}) AS s "
            f"ON {match} AND {self._published.predicate} "
            + (f"WHEN MATCHED AND {changed} THEN UPDATE SET {_assignments(rest)} " if rest else "")
            + f"WHEN NOT MATCHED THEN INSERT ({quote_all(names)}) VALUES ({_row('s', names)})"
        )
        inserted = count_rows(self._publication.after) - (count_rows(self._publication.before) - deleted)
        updated = written - inserted
        return deleted + updated, inserted + updated

    def delete(self) -> int:
        """Delete the range; returns how many rows went."""
        ((deleted,),) = self._session.run(f"DELETE FROM {self._table.sql} AS r WHERE {self._published.predicate}")
        return int(deleted)

    def insert(self) -> int:
        """Insert what lands, by name; returns how many rows came."""
        ((inserted,),) = self._session.run(
            f"INSERT INTO {self._table.sql} ({quote_all(self._target.column_names)}) {self._landing_rows()}"
        )
        return int(inserted)

    def refuse_changed(self) -> None:
        """:raises StageChanged: the range, as it is now, is not what was validated."""
        if changed := self._differing(self._publication.after):
            raise StageChanged(
                f"What lands in {self._target.table} is not what was validated; nothing was written. {_name(changed)} "
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

    def write_receipt(self, deleted: int, inserted: int) -> Receipt:
        """Write the receipt; it becomes visible with the rows."""
        run, publication = self._session.run, self._publication
        ledger = quote_path(self._named.database, *RECEIPTS)
        run(f"CREATE SCHEMA IF NOT EXISTS {quote_path(self._named.database, RECEIPTS[0])}")
        run(f"CREATE TABLE IF NOT EXISTS {ledger} ({_RECEIPT_COLUMNS})")
        ((sequence,),) = run(f"SELECT coalesce(max(sequence), 0) + 1 FROM {ledger}")
        receipt = Receipt(
            sequence=sequence,
            backfill_id=publication.backfill_id,
            action=publication.action,
            plan_hash=publication.plan_hash,
            keys=tuple(partition.key for partition in publication.partitions),
            deleted=deleted,
            inserted=inserted,
            committed_at=datetime.now(UTC),
        )
        values = (
            str(receipt.sequence),
            text_literal(self._named.schema),
            text_literal(self._named.name),
            text_literal(receipt.backfill_id),
            text_literal(receipt.action),
            text_literal(receipt.plan_hash),
            f"[{', '.join(text_literal(key) for key in receipt.keys)}]",
            str(deleted),
            str(inserted),
            instant(receipt.committed_at, UTC_TIMESTAMP),
        )
        run(f"INSERT INTO {ledger} VALUES ({', '.join(values)})")
        return receipt

    def _landing_rows(self) -> str:
        names = _row("r", self._target.column_names)
        return " UNION ALL ".join(
            f"SELECT {names} FROM {piece.table} AS r WHERE {piece.predicate}" for piece in self._landing
        )

    def _piece(self, table: Place) -> Piece:
        """The range in that table."""
        return Piece.of(self._target, table.sql, self._publication.partitions)

    def _differing(self, expected: Mapping[str, Fingerprint]) -> dict[str, tuple[int, int]]:
        """Rows expected and found, of each partition of the range whose fingerprint is another one."""
        return self._differing_in(self._published, expected, self._session.run)

    def _differing_in(
        self, range_: Piece, expected: Mapping[str, Fingerprint], look: Run
    ) -> dict[str, tuple[int, int]]:
        rows = look(fingerprints(self._buckets, [range_], self._target.column_names))
        found = {self._buckets.key(bucket): (count, digest) for bucket, count, digest in rows}
        return {
            key: (wanted.rows, found.get(key, (0, ""))[0])
            for key, wanted in sorted(expected.items())
            if found.get(key, (0, EMPTY_DIGEST)) != (wanted.rows, wanted.digest)
        }


Change = Callable[[], tuple[int, int]]
"""How the range comes to hold what lands, such as :meth:`Replacement.replace`; how many rows went and came."""


def count_rows(marks: Mapping[str, Fingerprint]) -> int:
    return sum(mark.rows for mark in marks.values())


def _row(alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{quote(name)}" for name in names)


def _assignments(names: Sequence[str]) -> str:
    return ", ".join(f"{quote(name)} = s.{quote(name)}" for name in names)


def read_receipts(run: Run, target: Target) -> tuple[Receipt, ...]:
    """Every receipt of the table, oldest first; empty when the receipt table does not exist.

    :raises SpecError: there is no such table.
    """
    table = locate(run, target.table)
    ((tables,),) = run(
        f"SELECT count(*) FROM duckdb_tables() WHERE database_name = {text_literal(table.database)} "
        f"AND schema_name = {text_literal(RECEIPTS[0])} AND table_name = {text_literal(RECEIPTS[1])}"
    )
    if not tables:
        return ()
    return tuple(
        Receipt(
            sequence, backfill_id, Action(action), plan_hash, tuple(keys), deleted, inserted, at.replace(tzinfo=UTC)
        )
        for sequence, backfill_id, action, plan_hash, keys, deleted, inserted, at in run(
            "SELECT sequence, backfill_id, action, plan_hash, partition_keys, deleted, inserted, committed_at "
            f"FROM {quote_path(table.database, *RECEIPTS)} WHERE table_schema = {text_literal(table.schema)} "
            f"AND table_name = {text_literal(table.name)} ORDER BY sequence"
        )
    )


def _name(differing: Mapping[str, tuple[int, int]]) -> str:
    named = [f"{key} (expected {wanted} rows, found {found})" for key, (wanted, found) in differing.items()]
    more = len(named) - _NAMED_AT_MOST
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {more} more." if more > 0 else ".")
