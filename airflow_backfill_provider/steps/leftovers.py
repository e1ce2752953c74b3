"""Leftovers: everything that backfills left aside in one warehouse, whose it is, and until when it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_backfill_provider.errors import PlanUnreadable
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.quantities import write_size
from airflow_backfill_provider.steps.retention import Retention, retention
from airflow_backfill_provider.warehouses.base import StorageItem, Warehouse


@dataclass(frozen=True)
class Leftover:
    """One thing in a warehouse that no consumer reads."""

    conn_id: str
    item: StorageItem
    retention: Retention | None
    """None when the ledger knows no such backfill, or cannot read its plan."""
    problem: str = ""
    """Why nothing can be said of when it may be dropped; empty when there is no such reason."""

    @property
    def until(self) -> datetime | None:
        """The instant from which it may be dropped; None when it is needed, or nobody's."""
        return None if self.retention is None else self.retention.until(self.item.kind)

    def is_due(self, now: datetime) -> bool:
        """Whether it may be dropped."""
        return self.until is not None and self.until <= now

    def line(self, now: datetime) -> str:
        """One line of text: what it is, how large and how old, whose, and until when."""
        item = self.item
        owner = item.backfill_id
        if self.retention is not None:
            backfill = self.retention.backfill
            owner = f"{backfill.backfill_id}  {backfill.name}, {backfill.state}, for {backfill.requested_by}"
        return (
            f"{self.conn_id}  {item.kind:<7}  {item.location}  {write_size(item.bytes)}  {_age(now - item.modified_at)} old  "
            f"{owner}  {self._kept(now)}"
        )

    def _kept(self, now: datetime) -> str:
        if self.problem:
            return f"never dropped while its plan cannot be read: {self.problem}"
        if self.retention is None:
            return "unknown to this ledger: never dropped by it; look whose it is, then drop it in the warehouse"
        if self.until is None:
            return f"needed: {self.retention.needed_by}"
        return f"until {self.until:%Y-%m-%dT%H:%M:%SZ}" + (", which is over" if self.until <= now else "")


def leftovers(ledger: Ledger, warehouse: Warehouse, conn_id: str) -> tuple[Leftover, ...]:
    """Every stage, backup, shadow, set of spare tables and old version in the warehouse; changes nothing."""
    known: dict[str, tuple[Retention | None, str]] = {}
    found = []
    for item in warehouse.storage():
        if item.backfill_id not in known:
            known[item.backfill_id] = _retention(ledger, item.backfill_id)
        found.append(Leftover(conn_id, item, *known[item.backfill_id]))
    return tuple(found)


def _retention(ledger: Ledger, backfill_id: str) -> tuple[Retention | None, str]:
    """What decides until when its storage is kept, or why that cannot be said."""
    try:
        return retention(ledger, backfill_id), ""
    except PlanUnreadable as error:
        return None, str(error)


def _age(age: timedelta) -> str:
    if age < timedelta(hours=1):
        return f"{max(0, age // timedelta(minutes=1))} min"
    return f"{age // timedelta(hours=1)} h" if age < timedelta(days=2) else f"{age.days} d"
