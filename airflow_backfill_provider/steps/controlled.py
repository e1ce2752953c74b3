"""What became of the control period of a plan, as the audit trail keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import REVISED_EVENT, under_newest_plan
from airflow_backfill_provider.plan import Plan

CONTROL_EVENT = "control_compared"


@dataclass(frozen=True)
class Control:
    """How one control partition came out, in rows matched by key; ``columns`` has the rows that differ by column.

    A column with a tolerance counts where it is further apart than that, and only there; ``changed`` is about the others.
    """

    partition: str
    rows_old: int
    rows_new: int
    identical: int
    changed: int
    added: int
    removed: int
    unmatched: int
    """Rows whose key is NULL or repeated, on either side; nothing is matched then."""
    columns: Mapping[str, int]

    @property
    def held(self) -> bool:
        """Whether it came out as it is published."""
        moved = self.changed or self.added or self.removed or self.unmatched or self.columns
        return bool(self.rows_old) and not moved

    @property
    def is_wholesale(self) -> bool:
        """Whether no row came out as it is published."""
        everywhere = any(count == self.identical + self.changed for count in self.columns.values())
        return not self.held and (not self.identical or everywhere)

    def __str__(self) -> str:
        if self.held:
            return f"{self.partition}: {self.rows_old:,} rows as published"
        if not self.rows_old:
            return f"{self.partition}: nothing is published any more"
        if self.unmatched:
            return f"{self.partition}: {self.unmatched:,} rows have a key that is NULL or repeated"
        columns = ", ".join(f"{name} in {rows:,}" for name, rows in self.columns.items())
        parts = [f"{self.changed:,} of {self.rows_old:,} rows changed"] if self.changed else []
        parts += [f"{count:,} {what}" for what, count in (("added", self.added), ("removed", self.removed)) if count]
        parts += [f"differing: {columns}"] if columns else []
        return f"{self.partition}: {', '.join(parts)}"


def compared(ledger: Ledger, plan: Plan) -> dict[str, Control]:
    """The latest result of each control partition under this very plan, by key."""
    return compared_in(ledger.events(plan.backfill_id, CONTROL_EVENT, REVISED_EVENT), plan)


def compared_in(events: Sequence[EventRecord], plan: Plan) -> dict[str, Control]:
    """The same from events that were read already, oldest first, revisions among them."""
    found = {}
    for event in under_newest_plan(events, CONTROL_EVENT):
        detail: dict[str, Any] = dict(event.detail)
        if detail.pop("plan_hash") == plan.plan_hash:
            found[detail["partition"]] = Control(**detail)
    return found
