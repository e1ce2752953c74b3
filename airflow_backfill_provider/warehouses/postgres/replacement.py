"""A replacement that reads before it locks, so that writers wait for the DELETE and the INSERT, and for little else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from airflow_backfill_provider.warehouses.base import Fingerprint, Publication, Target
from airflow_backfill_provider.warehouses.postgres import catalog
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.horizon import Horizon
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.replacement import Replacement, count_rows
from airflow_backfill_provider.warehouses.relational.statements import Piece


class ReadFirst(Replacement):
    """A replacement of which :meth:`read` proves, in the same transaction, what can be proven without the table's lock."""

    def __init__(self, session: Session, target: Target, publication: Publication, landing: Sequence[Piece]) -> None:
        self._find_table = partial(catalog.find_table, session, target.table)
        self._is_unique = partial(catalog.is_unique, session)
        super().__init__(DIALECT, session, self._find_table(), target, publication, landing)
        self._horizon = Horizon(session, self._name)
        self._lands_whole = False

    def read(self) -> None:
        """Hold both sides against the plan, and keep everybody from what lands until the transaction ends.

        :raises PublishRefused: the table has other columns than when the plan was made.
        :raises TargetMoved: the range is not what the plan's baseline says.
        :raises StageChanged: what would land is not what was validated.
        :raises psycopg.errors.LockNotAvailable: somebody writes into what lands.
        """
        super().refuse_other_columns()
        super().refuse_moved()
        self._session.run(f"LOCK TABLE {', '.join(piece.table for piece in self._landing)} IN SHARE MODE")
        self.refuse_unvalidated()

    def refuse_other_columns(self) -> None:
        """As in any replacement, by the catalog of this moment: the table may have changed before it was locked."""
        self._take(self._find_table())
        super().refuse_other_columns()

    def refuse_moved(self, known: Mapping[str, Fingerprint] | None = None) -> None:
        """As in any replacement; what was read before the lock is not read again when nobody wrote since."""
        if not self._horizon.proves(self._published, count_rows(self._publication.before)):
            super().refuse_moved(known)

    def refuse_repeated_keys(self) -> None:
        """As in any replacement, unless an index lets no key repeat, which speaks up when the rows land.

        It has read nothing by then, while a search through the whole table would keep writers out for as long as it takes.
        """
        if not self._is_unique(self._table.place, self._target.key):
            super().refuse_repeated_keys()

    def replace(self) -> tuple[int, int]:
        self._lands_whole = True
        return super().replace()

    def refuse_changed(self) -> None:
        """As in any replacement; where all that landed is what was held against the plan, it is not read again.

        Nobody could write it since, the table has its columns, and neither triggers nor rules, and as many rows went and
        came as must.
        """
        if not self._lands_whole:
            super().refuse_changed()
