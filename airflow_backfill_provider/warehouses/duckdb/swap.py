"""Publishing behind a view: a new version of its table is built, and the view pointed to it, in one commit.

Beside each receipt that moved a view stands which table it left, so that a rollback finds it, and clean-up too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.warehouses.base import Publication, Receipt, StorageItem, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import Place, Run, columns, comment, places
from airflow_backfill_provider.warehouses.duckdb.publish import RECEIPTS, Replacement, count_rows, read_receipts
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.sql import EMPTY_DIGEST, Piece, row_hash
from airflow_backfill_provider.warehouses.duckdb.versions import create_like, dress_like, point, readers, shown_by
from airflow_backfill_provider.warehouses.sql import literal, quote_all, quote_path, text_literal
from airflow_backfill_provider.warehouses.views import refuse_newer_version

VERSION = "version:"
"""How the location of an old version starts; the rest is its name as SQL."""
_SWAPS = (RECEIPTS[0], "swaps")
_SWAP_COLUMNS = (
    "sequence BIGINT PRIMARY KEY, left_schema VARCHAR NOT NULL, left_name VARCHAR NOT NULL, "
    "shown_schema VARCHAR NOT NULL, shown_name VARCHAR NOT NULL"
)


class Swap(Replacement):
    """The steps of a replacement behind a view. The table that it shows at first is guarded and checked as any other."""

    def __init__(
        self, session: Session, target: Target, publication: Publication, landing: Sequence[Piece], method: str
    ) -> None:
        super().__init__(session, target, publication, landing, method)
        self._shown_first = self._table

    def _holder(self) -> Place:
        if not self._named.is_view:
            raise PublishRefused(
                f"{self._target.table} is a table now, and was a view when the plan was made. Nothing was written."
            )
        try:
            return shown_by(self._session.run, self._named)
        except SpecError as error:
            raise PublishRefused(f"Since the plan was made, it changed: {error} Nothing was written.") from error

    def guard(self, text: str | None) -> None:
        super().guard(text)
        if (shown := self._holder()) != self._table:
            raise LockTimeout(f"{self._target.table} was pointed to {shown} just now; nothing was written. Try again.")

    def build(self) -> tuple[int, int]:
        """Build a new version from the rows outside the range and those that land, and show it.

        :raises PublishRefused: it would not hold the rows outside the range as they are.
        """
        run, old = self._session.run, self._table
        names = quote_all(self._target.column_names)
        outside = f"SELECT {names} FROM {old.sql} AS r WHERE {self._published.predicate} IS NOT TRUE"
        new = create_like(run, old, self._named, self._publication.backfill_id)
        run(f"INSERT INTO {new.sql} ({names}) {outside}")
        self._move_to(new)
        inserted = self.insert()
        if self._outside(run, new) != self._outside(run, old):
            raise PublishRefused(
                f"The new version {new} does not hold the rows of {old} outside the range as they are; nothing was written."
            )
        dress_like(run, old, new, self._publication.backfill_id)
        point(run, self._named, new)
        return count_rows(self._publication.before), inserted

    def turn_back(self) -> tuple[int, int]:
        """Show the version before again, or, where that would lose rows, restore the range in the one that is shown.

        :raises PublishRefused: another backfill published a newer version.
        """
        run, publication = self._session.run, self._publication
        refuse_newer_version(self._target, publication.backfill_id, read_receipts(run, self._target))
        before = self._version_before()
        if before is None or not self._differs_in_the_range_alone(before):
            return self.replace()
        self._move_to(before)
        point(run, self._named, before)
        return count_rows(publication.before), count_rows(publication.after)

    def write_receipt(self, deleted: int, inserted: int) -> Receipt:
        receipt = super().write_receipt(deleted, inserted)
        left, shown = self._shown_first, self._table
        if shown != left:
            run = self._session.run
            swaps = quote_path(self._named.database, *_SWAPS)
            run(f"CREATE TABLE IF NOT EXISTS {swaps} ({_SWAP_COLUMNS})")
            names = map(text_literal, (left.schema, left.name, shown.schema, shown.name))
            run(f"INSERT INTO {swaps} VALUES ({receipt.sequence}, {', '.join(names)})")
        return receipt

    def _move_to(self, table: Place) -> None:
        """Have the remaining steps look at this table, which the view shows once all is committed."""
        self._table = table
        self._published = self._piece(table)

    def _version_before(self) -> Place | None:
        """The version that this backfill replaced, when the view still shows its own and that one is still there."""
        for swap in reversed(_swaps(self._session.run, self._named.database)):
            if swap.view == self._named and swap.backfill_id == self._publication.backfill_id:
                still_there = swap.shown == self._table and swap.left in places(self._session.run)
                return swap.left if still_there else None
        return None

    def _differs_in_the_range_alone(self, before: Place) -> bool:
        """Whether the version before holds what lands, and outside the range what is shown now."""
        run, look = self._session.run, self._session.second_look
        run(f"COMMENT ON TABLE {before.sql} IS {literal(comment(run, before))}")
        # Nobody else can write it from here on. This transaction may be older than its last row; a new look is not.
        return (
            columns(look, before) == self._target.columns
            and not self._differing_in(self._piece(before), self._publication.after, look)
            and self._outside(look, before) == self._outside(run, self._table)
        )

    def _outside(self, look: Run, table: Place) -> tuple[int, str]:
        """Row count and digest of everything that is not in the range."""
        ((rows, digest),) = look(
            f"SELECT count(*), CAST(sum({row_hash(self._target.column_names)}) AS VARCHAR) FROM {table.sql} AS r "
            f"WHERE {self._published.predicate} IS NOT TRUE"
        )
        return rows, digest or EMPTY_DIGEST


@dataclass(frozen=True)
class _Moved:
    """One move of a view from one table to another."""

    view: Place
    left: Place
    shown: Place
    backfill_id: str
    at: datetime


def _swaps(run: Run, database: str) -> list[_Moved]:
    """Every move of a view, oldest first."""
    log = Place(database, *_SWAPS, is_view=False)
    if log not in places(run):
        return []
    return [
        _Moved(
            Place(database, schema, name, is_view=True),
            Place(database, left_schema, left_name, is_view=False),
            Place(database, shown_schema, shown_name, is_view=False),
            backfill_id,
            at.replace(tzinfo=UTC),
        )
        for schema, name, left_schema, left_name, shown_schema, shown_name, backfill_id, at in run(
            "SELECT table_schema, table_name, left_schema, left_name, shown_schema, shown_name, backfill_id, committed_at "
            f"FROM {log.sql} JOIN {quote_path(database, *RECEIPTS)} USING (sequence) ORDER BY sequence"
        )
    ]


def old_versions(run: Run) -> tuple[StorageItem, ...]:
    """Every table that a view was pointed away from, that is still there and not shown again."""
    return tuple(
        StorageItem(moved.backfill_id, "version", _location(table), _bytes(run, table), moved.at)
        for table, moved in _left(run).items()
    )


def drop_version(session: Session, location: str) -> None:
    """Drop that old version; silent when there is none.

    :raises WarehouseError: a view reads it.
    """
    with session.transaction():
        table = next((one for one in _left(session.run) if _location(one) == location), None)
        if table is None:
            return
        if found := readers(session.run, table):
            raise WarehouseError(f"{table} is read by {', '.join(map(str, found))}, so it was not dropped.")
        session.run(f"DROP TABLE {table.sql}")


def _left(run: Run) -> dict[Place, _Moved]:
    ((database,),) = run("SELECT current_database()")
    last = {moved.left: moved for moved in _swaps(run, database)}
    there = places(run)
    return {
        table: moved
        for table, moved in last.items()
        if table in there and not (moved.view in there and table in _shown(run, moved.view))
    }


def _shown(run: Run, view: Place) -> list[Place]:
    try:
        return [shown_by(run, view)]
    except SpecError:
        return []


def _location(table: Place) -> str:
    return f"{VERSION}{table.short_sql}"


def _bytes(run: Run, table: Place) -> int:
    """Of the blocks that hold its columns, which may be shared with another table's."""
    ((size,),) = run(
        f"SELECT count(DISTINCT block_id) * (SELECT max(block_size) FROM pragma_database_size()) "
        f"FROM pragma_storage_info({text_literal(table.sql)}) WHERE persistent"
    )
    return int(size)
