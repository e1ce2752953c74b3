"""Roll back: the publish algorithm with the backup as the stage and a receipt of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from airflow_backfill_provider.errors import TRANSIENT, BackfillError, PublishRefused, TargetMoved
from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.steps.mechanism import undo
from airflow_backfill_provider.steps.metrics import OUTCOMES
from airflow_backfill_provider.steps.overwritten import (
    forget_overwritten,
    keep_overwritten,
    refuse_brought_back,
)
from airflow_backfill_provider.steps.receipts import Written, standing_over
from airflow_backfill_provider.steps.replaced import published, replaced
from airflow_backfill_provider.steps.restore import (
    Restoration,
    RollbackResult,
    require_backup,
    require_held,
    require_own,
    require_restored,
    restore,
    way_back,
)
from airflow_backfill_provider.steps.settle import record_receipts, settle, way_back_has_ended
from airflow_backfill_provider.steps.way_on import may_still_commit, rollback_command
from airflow_backfill_provider.steps.work import Work, fingerprint_on_record, staged_partition
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Published, Staged
from airflow_backfill_provider.windows import Partition


def rollback(work: Work, *, force: bool = False) -> RollbackResult:
    """Restore what was published to its backup, leaving every row outside it alone; a second call does nothing.

    Each unit of the publish is restored in one commit. After a failure between two, the next call restores the rest. A view
    is pointed back to the version before, where that leaves every other row alone too.

    Not subject to the kill switch, which stops backfills and not the way back.

    :param force: restore even though the range is no longer what was published; what gets overwritten is backed up.
    :raises PublishRefused: never published, out of order, the backup is gone, or a commit of it may still happen; nothing was
        written.
    :raises TargetMoved: the range is no longer what was published; nothing was written.
    """
    require_own(work)
    plan = work.stored_plan()
    if way_back_has_ended(work):
        raise PublishRefused(
            f"The way back of backfill {work.backfill_id} has ended: its backup was kept for "
            f"{write_duration(plan.spec.rollback.keep_for)} and is dropped. Nothing was written. A new backfill, with the SQL as it was, brings back what that gives; "
            f"`airflow safe-backfill status {work.backfill_id}` says what was dropped and when."
        )
    written = settle(work, plan, cut_off=False)
    backfill = work.ledger.backfill(work.backfill_id)
    cut_off = backfill.state is BackfillState.PUBLISHING
    if cut_off and not (written.published and work.publish_is_dead()):
        raise _publishing(backfill, written)
    if not written.published:
        return _nothing_left(work, plan, written)
    if written.by_ledger:
        work.log.warning(
            "The log of %s does not go back to what backfill %s published. The ledger says that it did, and whether the range "
            "is exactly that is looked at before anything is written.",
            plan.target.table,
            work.backfill_id,
        )
    if backfill.backup_location is None:
        raise PublishRefused(f"The ledger knows no backup of {work.backfill_id}; nothing was written.")
    backup = Backup(backfill.backup_location)
    with way_back(work, plan, publish_is_dead=cut_off) as way:
        # From here on no publish begins. One may have begun, or another rollback ended, until the range was held.
        if cut_off and not work.publish_is_dead():
            raise _began_to_publish(backfill)
        receipts = work.warehouse.receipts(plan.target)
        written = settle(work, plan, receipts=receipts)
        if not written.published:
            return _nothing_left(work, plan, written)
        standing = standing_over(receipts, written.published)
        if standing is not None and standing.backfill_id != work.backfill_id:
            raise PublishRefused(
                f"Backfill {standing.backfill_id} wrote to this range after {work.backfill_id}: roll that one back first."
            )
        restored = plan.select(sorted(written.published))
        restoration = Restoration(
            Action.ROLLBACK,
            backup,
            require_backup(work, plan, backup, plan.partitions, _backed_up(backfill)),
            restored,
            undo(work.warehouse, plan.spec.publish),
            keys_may_repeat=force,
            again=rollback_command(backfill, **{"force": True} if force else {}),
        )
        result = restore(work, plan, restoration, _before(work, plan, restored, force=force), way)
        if work.ledger.backfill(work.backfill_id).state is not BackfillState.ROLLED_BACK:
            require_held(work, restoration.again)  # or a publish may have gone on since
            _record(work, plan, written.published | written.undone)
    return result


def _publishing(backfill: BackfillRecord, written: Written) -> PublishRefused:
    """What is said of a backfill that publishes: what it commits from here on would stand beside what was put back."""
    if written.published:
        way = f"put back what is published: {rollback_command(backfill, publish_is_dead=True)}"
    else:
        way = (
            f"there is nothing to undo: `airflow safe-backfill abandon {backfill.backfill_id} --publish-is-dead --reason …` "
            "gives it up."
        )
    return PublishRefused(f"{may_still_commit(backfill)} {way}")


def _began_to_publish(backfill: BackfillRecord) -> PublishRefused:
    """What is said when a publish is found at work once the range is held, which cuts it off."""
    return PublishRefused(
        f"A publish of backfill {backfill.backfill_id} began while its range was taken to put it back, and its commit may still happen. "
        "Nothing was put back, and that publish is told to go no further. Once its task has ended, clear it to publish the rest, or put "
        f"back what is published: {rollback_command(backfill)}"
    )


def _nothing_left(work: Work, plan: Plan, written: Written) -> RollbackResult:
    """Record that everything is put back, where a worker did not live to do that.

    :raises PublishRefused: it never published, the range is not what was put back, or what a forced rollback overwrote was
        brought back.
    """
    backfill = work.ledger.backfill(work.backfill_id)
    is_recorded = backfill.state is BackfillState.ROLLED_BACK
    if not written.undone:
        if is_recorded:
            refuse_brought_back(work, plan)
            return _restored_before(work.ledger.counts(work.backfill_id)[PartitionState.ROLLED_BACK])
        raise PublishRefused(
            f"Backfill {work.backfill_id} never published or had nothing to publish ({backfill.state}); there is nothing to undo."
        )
    if not is_recorded:
        back, again = plan.select(sorted(written.undone)), rollback_command(backfill)
        require_restored(work, plan, back, _backed_up(backfill), again)
        record_receipts(work, plan, work.warehouse.receipts(plan.target))
        _record(work, plan, written.undone)
    refuse_brought_back(work, plan)
    return _restored_before(len(written.undone))


def _backed_up(backfill: BackfillRecord) -> Mapping[str, Fingerprint]:
    return {key: Fingerprint(**mark) for key, mark in backfill.backup_fingerprints.items()}


def _restored_before(partitions: int) -> RollbackResult:
    return RollbackResult(False, partitions, 0, 0, note="rolled back before; nothing to do")


def _before(work: Work, plan: Plan, restored: Sequence[Partition], *, force: bool) -> Mapping[str, Fingerprint]:
    """What the range holds now: what we published, or, when forced, whatever is there, backed up."""
    if not force:
        ours = _published_as(work, plan, restored)
        found = work.warehouse.fingerprint(plan.target, Published(), restored)
        if any(found[key].method != mark.method for key, mark in ours.items()):
            ours = _fingerprint_again(work, plan, restored)
        moved = {key: (mark.rows, found[key].rows) for key, mark in ours.items() if found[key] != mark}
        if moved:
            counts = ", ".join(f"{key}: {old} rows published, {new} now" for key, (old, new) in list(moved.items())[:5])
            raise TargetMoved(
                f"{len(moved)} partitions changed after backfill {work.backfill_id} published them ({counts}). Rolling "
                'back would lose that. Nothing was written. {"force": true} restores anyway and keeps a copy of what it '
                "overwrites.",
                moved,
            )
        forget_overwritten(work, ours)
        return ours
    return keep_overwritten(work, plan, restored)


def _published_as(work: Work, plan: Plan, restored: Sequence[Partition]) -> Mapping[str, Fingerprint]:
    """What was published, as the ledger has it.

    :raises PublishRefused: it was staged again since, before its commit was found.
    """
    records = work.ledger.partitions(work.backfill_id)
    marks = {partition.key: fingerprint_on_record(records[partition.key]) for partition in restored}
    if unknown := [key for key, mark in marks.items() if mark is None]:
        raise PublishRefused(
            f"{len(unknown)} partitions of backfill {work.backfill_id} ({', '.join(unknown[:5])}) were to be staged again when the "
            f"commit that published them was found, so nothing shows whether {plan.target.table} changed since. Nothing was "
            'written. {"force": true} restores them and keeps a copy of what it overwrites.'
        )
    return {key: mark for key, mark in marks.items() if mark is not None}


def _fingerprint_again(work: Work, plan: Plan, restored: Sequence[Partition]) -> Mapping[str, Fingerprint]:
    """What was published, by this engine's version: the stages are still there, or only force helps."""
    records = work.ledger.partitions(work.backfill_id)
    staged = Staged(tuple(staged_partition(partition, records[partition.key]) for partition in restored))
    try:
        return work.warehouse.fingerprint(plan.target, staged, restored)
    except TRANSIENT:
        raise  # which says nothing of the stages
    except BackfillError as error:
        raise PublishRefused(
            f"Backfill {work.backfill_id} was published by another version of the engine, and its stages are gone ({error}), "
            'so nothing shows whether the range changed since. {"force": true} restores it and keeps a copy of what it '
            "overwrites. Nothing was written."
        ) from error


def _record(work: Work, plan: Plan, back: Collection[str]) -> None:
    """Record that these are put back; what was published without a commit, as it held the same rows before, goes with them."""
    if work.ledger.backfill(work.backfill_id).state is BackfillState.ROLLED_BACK:
        return
    records = work.ledger.partitions(work.backfill_id)
    done = published(records)
    undone = sorted(done - (replaced(plan, records) - set(back)))
    work.ledger.move_partitions(work.backfill_id, undone, PartitionState.ROLLED_BACK, by=work.by)
    work.metrics.count(OUTCOMES, len(undone), outcome="rolled_back")
    work.ledger.move(work.backfill_id, BackfillState.ROLLED_BACK, by=work.by)
