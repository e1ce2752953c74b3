"""How a person ends a backfill that no task can take further: give it up, or accept what was published."""

from __future__ import annotations

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.ledger.states import RELEASES_LOCK, WRITTEN, BackfillState
from airflow_backfill_provider.steps.overwritten import brought_back
from airflow_backfill_provider.steps.settle import settle, way_back_has_ended
from airflow_backfill_provider.steps.way_on import may_still_commit, rollback_command
from airflow_backfill_provider.steps.work import Work


def give_up(work: Work, reason: str, *, publish_is_dead: bool = False) -> None:
    """End the backfill; its staged work is never published. On one that is over, only a leftover lock is released; and of one of
    which rows are published, only a rollback that broke before it put anything back is called off.

    :param publish_is_dead: a person saw that nothing of its publish runs any more, neither the task nor a statement in the
        warehouse. A commit that comes all the same is recorded by the next step that looks, and can be rolled back.
    :raises PublishRefused: its rows are published, and no such rollback is to be called off, so roll it back instead; it publishes, and nobody said that it is dead; or
        it is over, and its range is half put back.
    """
    backfill = work.ledger.backfill(work.backfill_id)
    if backfill.state in RELEASES_LOCK and (backfill.state is not BackfillState.EXPIRED or way_back_has_ended(work)):
        if work.ledger.is_on_way_back(work.backfill_id):
            _refuse_mixture(work)
        work.ledger.end_way_back(work.backfill_id, by=work.by)
        return
    if backfill.state is BackfillState.PUBLISHING and not publish_is_dead:
        raise PublishRefused(f"{may_still_commit(backfill)} give it up with --publish-is-dead.")
    written = settle(work, work.stored_plan())
    state = work.ledger.backfill(work.backfill_id).state
    if written.published and not written.undone and work.ledger.is_on_way_back(work.backfill_id):
        work.ledger.end_way_back(work.backfill_id, by=work.by)
        return
    if state in WRITTEN or written.published:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {state}: rows of it are published. Roll it back (airflow safe-backfill rollback "
            f"{work.backfill_id}), or clear its report task to complete it."
        )
    work.ledger.move(work.backfill_id, BackfillState.EXPIRED, by=work.by, reason=reason)


def _refuse_mixture(work: Work) -> None:
    """:raises PublishRefused: some of the range is put back, and some is not."""
    plan, backfill = work.stored_plan(), work.ledger.backfill(work.backfill_id)
    if backfill.state is BackfillState.ROLLED_BACK:
        (back, left), asked = brought_back(work, plan), {"restore_overwritten": True}
    else:
        written = settle(work, plan)
        back, left, asked = written.undone, written.published, {}
    if back and left:
        raise PublishRefused(
            f"{len(back)} partitions of backfill {work.backfill_id} are put back and {len(left)} are not: its range is a mixture "
            f"until they are, and is not freed. Nothing was changed. Put the others back: {rollback_command(backfill, **asked)}"
        )


def accept(work: Work, reason: str) -> None:
    """Complete a backfill whose published range does not hold exactly what was staged, and free its range, unless it is being
    rolled back.

    :raises PublishRefused: it is not ``published_unverified``; or some of its range is put back, and some is not.
    """
    state = work.ledger.backfill(work.backfill_id).state
    if state is not BackfillState.PUBLISHED_UNVERIFIED:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {state}; only a published_unverified one can be accepted."
        )
    _refuse_mixture(work)
    work.ledger.move(work.backfill_id, BackfillState.COMPLETED, by=work.by, reason=reason, expected={state})
