"""The other backfills that share a pool with this one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from airflow_backfill_provider.errors import PlanUnreadable
from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.work import Work

_AT_WORK = frozenset({BackfillState.RUNNING, BackfillState.PUBLISHING})


def others_at_work(work: Work, pool: str, has_tasks: Callable[[BackfillRecord], bool]) -> list[str]:
    """The ids of the other backfills that compute or publish now and have the same pool.

    :param has_tasks: whether Airflow has a task of the run at work or about to be. The ledger alone takes one for running for ever
        whose workers are dead or whose pool was given 0 slots, and knows those of other installations, which have pools of their own.
    """
    return [
        record.backfill_id
        for record in work.ledger.backfills(states=_AT_WORK, limit=None)
        if record.backfill_id != work.backfill_id and _pool_of(work, record.backfill_id) == pool and has_tasks(record)
    ]


def _pool_of(work: Work, backfill_id: str) -> str | None:
    with suppress(PlanUnreadable):  # another version of the provider wrote it, and may share the ledger
        return stored_plan(work.ledger, backfill_id).spec.compute.pool
    return None
