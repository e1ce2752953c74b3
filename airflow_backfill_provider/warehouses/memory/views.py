"""The views of an in-memory warehouse: which table each shows, and which tables they were pointed away from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Receipt
from airflow_backfill_provider.warehouses.memory.select import DIALECT
from airflow_backfill_provider.warehouses.sql import quote_path
from airflow_backfill_provider.warehouses.views import table_shown, tables_read


@dataclass(frozen=True)
class Moved:
    """One move of a view from one table to another."""

    view: str
    left: str
    shown: str
    backfill_id: str
    at: datetime


class Views:
    """Names are dotted; a view that does more than show one table can be described and refused, and not be read."""

    def __init__(self) -> None:
        self._selects: dict[str, str] = {}
        self._moves: list[Moved] = []

    def __contains__(self, name: str) -> bool:
        return name in self._selects

    def create(self, name: str, select: str) -> None:
        """Make the view, or make it anew."""
        self._selects[name] = select

    def shown_by(self, name: str) -> str:
        """The table that the view shows all of.

        :raises SpecError: it shows anything else.
        """
        return ".".join(table_shown(name, self._selects[name], DIALECT))

    @property
    def plain(self) -> dict[str, str]:
        """By view the table that it shows, of those that show one."""
        found = {}
        for name in self._selects:
            try:
                found[name] = self.shown_by(name)
            except SpecError:
                continue
        return found

    def readers(self, table: str) -> list[str]:
        """The views that name the table."""
        return sorted(
            name for name, select in self._selects.items() if table in map(".".join, tables_read(select, DIALECT))
        )

    def over(self, table: str) -> set[str]:
        """The views that read the table, also through other views."""
        found: set[str] = set()
        new = {table}
        while new:
            new = {view for name in new for view in self.readers(name)} - found
            found |= new
        return found

    def move(self, view: str, table: str, receipt: Receipt) -> None:
        """Point the view to another table, and keep in mind which one it left."""
        self._moves.append(Moved(view, self.shown_by(view), table, receipt.backfill_id, receipt.committed_at))
        self.create(view, f"SELECT * FROM {quote_path(*table.split('.'))}")

    def replaced_by(self, view: str, backfill_id: str) -> str | None:
        """The table that the backfill pointed the view away from, when the view still shows the one it put there."""
        for moved in reversed(self._moves):
            if (moved.view, moved.backfill_id) == (view, backfill_id):
                return moved.left if moved.shown == self.shown_by(view) else None
        return None

    def left(self) -> dict[str, Moved]:
        """Every table that a view was pointed away from and does not show again, with the last move away from it."""
        shown = self.plain
        return {moved.left: moved for moved in self._moves if shown.get(moved.view) != moved.left}
