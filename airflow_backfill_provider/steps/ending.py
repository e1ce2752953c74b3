"""How a person ends a backfill that no task can take further: give it up, or accept what was published."""

from __future__ import annotations

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import RELEASES_LOCK, WRITTEN, BackfillState
from airflow_backfill_provider.ledger.trail import WAY_BACK_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.moves import way_back_begun
from airflow_backfill_provider.steps.overwritten import brought_back
from airflow_backfill_provider.steps.restore import commits_back
from airflow_backfill_provider.steps.settle import settle, way_back_has_ended
from airflow_backfill_provider.steps.way_on import may_still_commit, rollback_command
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.windows import merge


def give_up(work: Work, reason: str, *, publish_is_dead: bool = False, rollback_is_dead: bool = False) -> None:
    """End the backfill; its staged work is never published. On one that is over, only a leftover lock is released; and of one of
    which rows are published, only a rollback that broke before it put anything back is called off.

    :param publish_is_dead: a person saw that nothing of its publish runs any more, neither the task nor a statement in the
        warehouse. A commit that comes all the same is recorded by the next step that looks, and can be rolled back.
    :param rollback_is_dead: the same of its rollback. What a commit that comes all the same put back is found by that rollback, and
        by the publish; the next rollback puts the rest back.
    :raises PublishRefused: its rows are published, and no such rollback is to be called off, so roll it back instead; it publishes,
        or is on its way back, and nobody said that this is dead; or its range is half put back.
    """
    plan, backfill = work.stored_plan(), work.ledger.backfill(work.backfill_id)
    is_on_way_back = work.ledger.is_on_way_back(work.backfill_id)
    seen = commits_back(work, plan) if is_on_way_back else frozenset()
    if backfill.state in RELEASES_LOCK and (backfill.state is not BackfillState.EXPIRED or way_back_has_ended(work)):
        if is_on_way_back:
            _refuse_mixture(work)
            _call_off(work, plan, reason, seen, rollback_is_dead=rollback_is_dead)
        else:
            work.ledger.end_way_back(work.backfill_id, by=work.by, reason=reason)
        return
    if backfill.state is BackfillState.PUBLISHING and not publish_is_dead:
        raise PublishRefused(f"{may_still_commit(backfill)} give it up with --publish-is-dead.")
    written = settle(work, plan)
    if is_on_way_back and not (written.published and written.put_back):
        _call_off(work, plan, reason, seen, rollback_is_dead=rollback_is_dead)
        if written.published:
            return
    state = work.ledger.backfill(work.backfill_id).state
    if state in WRITTEN or written.published:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {state}: rows of it are published. Roll it back (airflow safe-backfill rollback "
            f"{work.backfill_id}), or clear its report task to complete it."
        )
    work.ledger.move(work.backfill_id, BackfillState.EXPIRED, by=work.by, reason=reason)


def _call_off(work: Work, plan: Plan, reason: str, seen: frozenset[int], *, rollback_is_dead: bool) -> None:
    """End the hold of a rollback that is dead.

    :param seen: what it had committed when that was decided on.
    :raises PublishRefused: nobody said that it is dead; or it committed until it was called off, and holds its range again.
    """
    backfill = work.ledger.backfill(work.backfill_id)
    again = _go_on_with_way_back(backfill)
    if not rollback_is_dead:
        begun = way_back_begun(work.ledger.events(work.backfill_id, WAY_BACK_EVENT))
        raise PublishRefused(
            f"Backfill {work.backfill_id} is on its way back. A rollback of it, begun {begun}, is under way, or died, and its commit may "
            f"still happen. Nothing was changed. Let it run to its end, or trigger it again: {again} If neither its task nor a statement of it "
            "in the warehouse runs any more, call it off with --rollback-is-dead."
        )
    work.ledger.end_way_back(work.backfill_id, by=work.by, reason=reason)
    if commits_back(work, plan) - seen:
        work.ledger.begin_way_back(work.backfill_id, merge(plan.partitions), by=work.by)
        raise PublishRefused(
            f"The rollback of backfill {work.backfill_id} was not dead: a commit of it put rows back until it was called off. It is not "
            f"called off, and its range is kept. Let it run to its end, or trigger it again: {again}"
        )


def _go_on_with_way_back(backfill: BackfillRecord) -> str:
    """The command that brings what was begun to its end: a rollback, or where that is over, the rollback of it."""
    is_back = backfill.state is BackfillState.ROLLED_BACK
    return rollback_command(backfill, **{"restore_overwritten": True} if is_back else {})


def _refuse_mixture(work: Work) -> None:
    """:raises PublishRefused: some of the range is put back, and some is not."""
    plan, backfill = work.stored_plan(), work.ledger.backfill(work.backfill_id)
    if backfill.state is BackfillState.ROLLED_BACK:
        back, left = brought_back(work, plan)
    else:
        written = settle(work, plan)
        back, left = written.put_back, written.published
    if back and left:
        raise PublishRefused(
            f"{len(back)} partitions of backfill {work.backfill_id} are put back and {len(left)} are not: its range is a mixture "
            f"until they are, and is not freed. Nothing was changed. Put the others back: {_go_on_with_way_back(backfill)}"
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
