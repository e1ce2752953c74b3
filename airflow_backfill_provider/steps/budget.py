"""Budgets: what a backfill may cost. Each is a stop of its own, looked at between partitions."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from typing import NoReturn

from airflow_backfill_provider.errors import BudgetExceeded
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, REVISED_EVENT
from airflow_backfill_provider.spec.quantities import write_duration, write_size
from airflow_backfill_provider.steps.way_on import published_so_far
from airflow_backfill_provider.steps.work import Work

_WAY_ON = (
    "{published}, and what is staged is kept. Raise it in the spec and clear scope_partitions with downstream to go on, "
    "or give up with: airflow safe-backfill abandon {id} --reason …"
)
_STORAGE_IS_BELIEVED = timedelta(seconds=30)
"""How long what is set aside is believed to be within its budget: asking lists the files of every backfill."""


class Budgets:
    """The budgets of one backfill, as one task looks at them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._compute = work.spec.compute
        self._storage_asked_at: datetime | None = None

    def require(self) -> None:
        """Go on only while every budget has something left; a stop is written to the ledger before it is raised.

        :raises BudgetExceeded: naming the first that is used up.
        """
        self._require_time()
        self._require_rows()
        if self._storage_asked_at is None or self._work.now() - self._storage_asked_at >= _STORAGE_IS_BELIEVED:
            self._require_storage()

    def require_amounts(self) -> None:
        """The same of what was staged, however long it took, as it is now: for when everything is staged.

        :raises BudgetExceeded: as :meth:`require`.
        """
        self._require_rows()
        self._require_storage()

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

    def _require_rows(self) -> None:
        limit = self._compute.max_rows
        if limit is None:
            return
        partitions, rows = self._work.ledger.staged_rows(self._work.backfill_id)
        if rows > limit:
            self._stop(f"compute.max_rows is {limit:,}, and {rows:,} rows of {partitions} partitions are staged")

    def _require_storage(self) -> None:
        work, limit = self._work, self._compute.max_staging_bytes
        if limit is None:
            return
        self._storage_asked_at = work.now()
        stored = sum(item.bytes for item in work.warehouse.storage() if item.backfill_id == work.backfill_id)
        if stored > limit:
            self._stop(
                f"compute.max_staging_bytes is {write_size(limit)}, and the backfill has set {write_size(stored)} aside"
            )

    def _stop(self, why: str) -> NoReturn:
        work = self._work
        way_on = _WAY_ON.format(id=work.backfill_id, published=published_so_far(work.ledger, work.backfill_id))
        stop = BudgetExceeded(f"Stopped: {why}. {way_on}")
        work.halt(stop)
        raise stop

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
