"""Budgets: what a backfill may cost. Each is a stop of its own, looked at between partitions."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from airflow_backfill_provider.errors import BudgetExceeded
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, REVISED_EVENT
from airflow_backfill_provider.spec.quantities import write_duration, write_size
from airflow_backfill_provider.steps.work import Work

_WAY_ON = (
    "Nothing was published, and what is staged is kept. Raise it in the spec and clear scope_partitions with downstream to go on, "
    "or give up with: airflow safe-backfill abandon {id} --reason …"
)


class Budgets:
    """The budgets of one backfill, as one task looks at them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._compute = work.spec.compute

    def require(self) -> None:
        """Go on only while every budget has something left; a stop is written to the ledger before it is raised.

        :raises BudgetExceeded: naming the first that is used up.
        """
        try:
            self._require_time()
            self._require_amounts()
        except BudgetExceeded as stop:
            self._work.halt(str(stop))
            raise

    def require_amounts(self) -> None:
        """The same of what was staged, however long it took: for when everything is staged.

        :raises BudgetExceeded: as :meth:`require`.
        """
        try:
            self._require_amounts()
        except BudgetExceeded as stop:
            self._work.halt(str(stop))
            raise

    def _require_time(self) -> None:
        limit = self._compute.max_runtime
        if limit is None or self._started_at is None:
            return
        passed = self._work.now() - self._started_at
        if passed > limit:
            self._stop(
                f"compute.max_runtime is {write_duration(limit)}, and the backfill has been running for {write_duration(passed)}, "
                f"since {self._started_at:%Y-%m-%dT%H:%M:%SZ}. Clearing scope_partitions gives it the same time again"
            )

    def _require_amounts(self) -> None:
        work, compute = self._work, self._compute
        if compute.max_rows is not None:
            partitions, rows = work.ledger.staged_rows(work.backfill_id)
            if rows > compute.max_rows:
                self._stop(
                    f"compute.max_rows is {compute.max_rows:,}, and {rows:,} rows of {partitions} partitions are staged"
                )
        if compute.max_staging_bytes is not None:
            stored = sum(item.bytes for item in work.warehouse.storage() if item.backfill_id == work.backfill_id)
            if stored > compute.max_staging_bytes:
                self._stop(
                    f"compute.max_staging_bytes is {write_size(compute.max_staging_bytes)}, and the backfill has set "
                    f"{write_size(stored)} aside"
                )

    def _stop(self, why: str) -> None:
        raise BudgetExceeded(f"Stopped: {why}. {_WAY_ON.format(id=self._work.backfill_id)}")

    @cached_property
    def _started_at(self) -> datetime | None:
        return started_at(self._work.ledger, self._work.backfill_id)


def started_at(ledger: Ledger, backfill_id: str) -> datetime | None:
    """When the backfill last began to run: since it was planned, its scope was cleared, or a person was asked; None before."""
    began: datetime | None = None
    revised = [(event.sequence, event.at, "") for event in ledger.events(backfill_id, REVISED_EVENT)]
    moves = [(event.sequence, event.at, str(event.detail["to"])) for event in ledger.events(backfill_id, MOVED_EVENT)]
    for _, at, to in sorted([*revised, *moves]):
        if to == BackfillState.RUNNING:
            began = began or at
        elif to in ("", BackfillState.PLANNED, BackfillState.AWAITING_APPROVAL):
            began = None
    return began
