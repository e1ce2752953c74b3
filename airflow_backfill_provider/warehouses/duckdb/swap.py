"""Publishing behind a view: a new version of its table is built, and the view pointed to it, in one commit."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, SpecError
from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import columns, comment, locate, places
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.publish import guard
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.swaps import read_moves, write_move
from airflow_backfill_provider.warehouses.duckdb.versions import create_like, dress_like, point, shown_by
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Replacement, count_rows
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place, Table
from airflow_backfill_provider.warehouses.sql import literal, quote_all
from airflow_backfill_provider.warehouses.views import refuse_newer_version


def swap(session: Session, target: Target, publication: Publication, landing: Sequence[Piece]) -> Receipt:
    """Show other rows of the range and write the receipt, all in one commit or not at all."""
    view = locate(session.run, target.table)
    if not view.is_view:
        raise PublishRefused(f"{view} is a table now, and was a view when the plan was made. Nothing was written.")
    old = _shown(session, view)
    text = comment(session.run, old)
    with session.bulk_loading(), session.transaction():
        guard(session, old, text)
        if (shown := _shown(session, view)) != old:
            raise LockTimeout(f"{view} was pointed to {shown} just now; nothing was written. Try again.")
        steps = Swap(session, view, Table(old, columns(session.run, old)), target, publication, landing)
        return steps.show()


def _shown(session: Session, view: Place) -> Place:
    try:
        return shown_by(session.run, view)
    except SpecError as error:
        raise PublishRefused(f"Since the plan was made, it changed: {error} Nothing was written.") from error


class Swap(Replacement):
    """The steps of a replacement behind a view; ``table`` is the one that it shows at first, guarded as any other."""

    def __init__(
        self,
        session: Session,
        view: Place,
        table: Table,
        target: Target,
        publication: Publication,
        landing: Sequence[Piece],
    ) -> None:
        super().__init__(DIALECT, session, table, target, publication, landing)
        self._looks = session
        self._view = view
        self._receipts = Receipts(DIALECT, session.run, view)

    def show(self) -> Receipt:
        """Publish or roll back, and write which table the view left beside the receipt."""
        left = self._table.place
        change = self.build if self._publication.action is Action.PUBLISH else self.turn_back
        receipt = self.run(lambda _: change(), self._receipts)
        if (shown := self._table.place) != left:
            write_move(self._session.run, self._view, left, shown, receipt)
        return receipt

    def build(self) -> tuple[int, int]:
        """Build a new version from the rows outside the range and those that land, and show it.

        :raises PublishRefused: it would not hold the rows outside the range as they are.
        """
        run, old = self._session.run, self._table.place
        names = quote_all(self._target.column_names)
        outside = f"SELECT {names} FROM {old.sql} AS r WHERE {self._published.predicate} IS NOT TRUE"
        new = create_like(run, old, self._view, self._publication.backfill_id)
        run(f"INSERT INTO {new.sql} ({names}) {outside}")
        self._move_to(new)
        inserted = self.insert()
        if self._outside(run, new) != self._outside(run, old):
            raise PublishRefused(
                f"The new version {new} does not hold the rows of {old} outside the range as they are; nothing was written."
            )
        dress_like(run, old, new, self._publication.backfill_id)
        point(run, self._view, new)
        return count_rows(self._publication.before), inserted

    def turn_back(self) -> tuple[int, int]:
        """Show the version before again, or, where that would lose rows, restore the range in the one that is shown.

        :raises PublishRefused: another backfill published a newer version.
        """
        run, publication = self._session.run, self._publication
        refuse_newer_version(self._target, publication.backfill_id, self._receipts.read())
        before = self._version_before()
        # The version before has no column that came later, whose values outside the range would be gone.
        if before is None or self._later or not self._differs_in_the_range_alone(before):
            return self.replace()
        self._move_to(before)
        point(run, self._view, before)
        return count_rows(publication.before), count_rows(publication.after)

    def _move_to(self, table: Place) -> None:
        """Have the remaining steps look at this table, which the view shows once all is committed."""
        self._table = Table(table, self._table.columns)
        self._name = table.sql
        self._published = self._piece(table.sql)

    def _version_before(self) -> Place | None:
        """The version that this backfill replaced, when the view still shows its own and that one is still there."""
        for moved in reversed(read_moves(self._session.run, self._view.database)):
            if moved.view == self._view and moved.backfill_id == self._publication.backfill_id:
                still_there = moved.shown == self._table.place and moved.left in places(self._session.run)
                return moved.left if still_there else None
        return None

    def _differs_in_the_range_alone(self, before: Place) -> bool:
        """Whether the version before holds what lands, and outside the range what is shown now."""
        run, look = self._session.run, self._looks.second_look
        run(f"COMMENT ON TABLE {before.sql} IS {literal(comment(run, before))}")
        # Nobody else can write it from here on. This transaction may be older than its last row; a new look is not.
        return (
            columns(look, before) == self._target.columns
            and not self._differing(self._publication.after, [self._piece(before.sql)], look)
            and self._outside(look, before) == self._outside(run, self._table.place)
        )

    def _outside(self, look: Run, table: Place) -> tuple[int, str]:
        """Row count and digest of everything that is not in the range."""
        ((rows, digest),) = look(
            f"SELECT count(*), CAST(sum({self._dialect.row_hash(self._target.column_names)}) AS VARCHAR) FROM {table.sql} AS r "
            f"WHERE {self._published.predicate} IS NOT TRUE"
        )
        return rows, digest or EMPTY_DIGEST
