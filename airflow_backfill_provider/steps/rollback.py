"""Roll back: the publish algorithm with the backup as the stage and a receipt of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_backfill_provider.errors import BackfillError, PublishRefused, TargetMoved
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
from airflow_backfill_provider.steps.receipts import standing_over
from airflow_backfill_provider.steps.replaced import published
from airflow_backfill_provider.steps.restore import (
    Restoration,
    RollbackResult,
    require_backup,
    require_own,
    require_restored,
    restore,
    way_back,
)
from airflow_backfill_provider.steps.settle import record_receipts, settle, way_back_has_ended
from airflow_backfill_provider.steps.work import Work, fingerprint_on_record, staged_partition
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Published, Staged
from airflow_backfill_provider.windows import Partition


def rollback(work: Work, *, force: bool = False) -> RollbackResult:
    """Restore what was published to its backup, leaving every row outside it alone; a second call does nothing.

    Each unit of the publish is restored in one commit. After a failure between two, the next call restores the rest. A view
    is pointed back to the version before, where that leaves every other row alone too.

    Not subject to the kill switch, which stops backfills and not the way back.

    :param force: restore even though the range is no longer what was published; what gets overwritten is backed up.
    :raises PublishRefused: never published, out of order, or the backup is gone; nothing was written.
    :raises TargetMoved: the range is no longer what was published; nothing was written.
    """
    require_own(work)
    plan, backfill = work.stored_plan(), work.ledger.backfill(work.backfill_id)
    if way_back_has_ended(work):
        raise PublishRefused(
            f"The way back of backfill {work.backfill_id} has ended: its backup was kept for "
            f"{write_duration(plan.spec.rollback.keep_for)} and is dropped. Nothing was written. A new backfill, with the SQL as it was, brings back what that gives; "
            f"`airflow safe-backfill status {work.backfill_id}` says what was dropped and when."
        )
    written = settle(work, plan)
    state = work.ledger.backfill(work.backfill_id).state
    if not written.published and not written.undone:
        if state is BackfillState.ROLLED_BACK:
            refuse_brought_back(work, plan)
            return _restored_before(work.ledger.counts(work.backfill_id)[PartitionState.ROLLED_BACK])
        raise PublishRefused(
            f"Backfill {work.backfill_id} never published or had nothing to publish ({state}); there is nothing to undo."
        )
    if written.by_ledger:
        work.log.warning(
            "The log of %s does not go back to what backfill %s published. The ledger says that it did, and whether the range "
            "is exactly that is looked at before anything is written.",
            plan.target.table,
            work.backfill_id,
        )
    marks = {key: Fingerprint(**mark) for key, mark in backfill.backup_fingerprints.items()}
    if not written.published:
        if state is not BackfillState.ROLLED_BACK:
            undone = plan.select(sorted(written.undone))
            require_restored(work, plan, undone, marks)
            record_receipts(work, plan, work.warehouse.receipts(plan.target))
            _record(work)
        refuse_brought_back(work, plan)
        return _restored_before(len(written.undone))
    if backfill.backup_location is None:
        raise PublishRefused(f"The ledger knows no backup of {work.backfill_id}; nothing was written.")
    backup = Backup(backfill.backup_location)
    restored = plan.select(sorted(written.published))
    with way_back(work, plan):
        standing = standing_over(work.warehouse.receipts(plan.target), written.published)
        if standing is not None and standing.backfill_id != work.backfill_id:
            raise PublishRefused(
                f"Backfill {standing.backfill_id} wrote to this range after {work.backfill_id}: roll that one back first."
            )
        restoration = Restoration(
            Action.ROLLBACK,
            backup,
            require_backup(work, plan, backup, plan.partitions, marks),
            restored,
            undo(work.warehouse, plan.spec.publish),
            keys_may_repeat=force,
        )
        result = restore(work, plan, restoration, _before(work, plan, restored, force=force))
        _record(work)
    return result


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
    except BackfillError as error:
        raise PublishRefused(
            f"Backfill {work.backfill_id} was published by another version of the engine, and its stages are gone ({error}), "
            'so nothing shows whether the range changed since. {"force": true} restores it and keeps a copy of what it '
            "overwrites. Nothing was written."
        ) from error


def _record(work: Work) -> None:
    if work.ledger.backfill(work.backfill_id).state is BackfillState.ROLLED_BACK:
        return
    undone = sorted(published(work.ledger.partitions(work.backfill_id)))
    work.ledger.move_partitions(work.backfill_id, undone, PartitionState.ROLLED_BACK, by=work.by)
    work.metrics.count(OUTCOMES, len(undone), outcome="rolled_back")
    work.ledger.move(work.backfill_id, BackfillState.ROLLED_BACK, by=work.by)
