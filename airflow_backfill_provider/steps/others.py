"""The other backfills that share a pool with this one."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from airflow_backfill_provider.errors import PlanUnreadable
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.work import Work

_LOOKED_AT = 100
_LATELY = timedelta(hours=1)
"""Since when a partition must have gone on: a backfill whose workers are dead says that it runs for ever."""


def others_at_work(work: Work, pool: str) -> list[str]:
    """The ids of the other backfills of the ledger that compute or publish now, went on in the last hour, and have the same pool."""
    return [
        record.backfill_id
        for record in work.ledger.backfills(limit=_LOOKED_AT)
        if record.backfill_id != work.backfill_id
        and record.state in (BackfillState.RUNNING, BackfillState.PUBLISHING)
        and _went_on(work, record.backfill_id)
        and _pool_of(work, record.backfill_id) == pool
    ]


def _went_on(work: Work, backfill_id: str) -> bool:
    since = work.now() - _LATELY
    return any(partition.updated_at > since for partition in work.ledger.partitions(backfill_id).values())


def _pool_of(work: Work, backfill_id: str) -> str | None:
    with suppress(PlanUnreadable):  # another version of the provider wrote it, and may share the ledger
        return stored_plan(work.ledger, backfill_id).spec.compute.pool
    return None
