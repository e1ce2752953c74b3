"""How a person ends a backfill that no task can take further: give it up, or accept what was published."""

from __future__ import annotations

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.ledger.states import RELEASES_LOCK, WRITTEN, BackfillState
from airflow_backfill_provider.steps.settle import settle
from airflow_backfill_provider.steps.work import Work


def give_up(work: Work, reason: str) -> None:
    """End the backfill; its staged work is never published. On one that is over, only a leftover lock is released.

    :raises PublishRefused: its rows are published; roll it back instead.
    """
    if work.ledger.backfill(work.backfill_id).state in RELEASES_LOCK:
        work.ledger.release_range(work.backfill_id, by=work.by)
        return
    written = settle(work, work.stored_plan())
    state = work.ledger.backfill(work.backfill_id).state
    if state in WRITTEN or written.published:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {state}: rows of it are published. Roll it back with rollback__{work.spec.name}, or "
            "clear its report task to complete it."
        )
    work.ledger.move(work.backfill_id, BackfillState.EXPIRED, by=work.by, reason=reason)


def accept(work: Work, reason: str) -> None:
    """Complete a backfill whose published range does not hold exactly what was staged, and free its range.

    :raises PublishRefused: it is not ``published_unverified``.
    """
    state = work.ledger.backfill(work.backfill_id).state
    if state is not BackfillState.PUBLISHED_UNVERIFIED:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {state}; only a published_unverified one can be accepted."
        )
    work.ledger.move(work.backfill_id, BackfillState.COMPLETED, by=work.by, reason=reason)
