"""Roll back: the publish algorithm with the backup as the stage and a receipt of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.errors import BackfillError, PublishRefused, RequestError, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.receipts import standing_over
from airflow_backfill_provider.steps.settle import same_rows, settle, staged_fingerprints
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Publication, Published, Staged
from airflow_backfill_provider.windows import merge


@dataclass(frozen=True)
class RollbackResult:
    """What was restored."""

    restored: bool
    """False when the range was rolled back before."""
    partitions: int
    deleted: int
    inserted: int
    note: str = ""


def rollback(work: Work, *, force: bool = False) -> RollbackResult:
    """Restore the range to its backup in one commit, leaving every row outside it alone; a second call does nothing.

    Not subject to the kill switch, which stops backfills and not the way back.

    :param force: restore even though the range is no longer what was published; what gets overwritten is backed up.
    :raises PublishRefused: never published, out of order, or the backup is gone; nothing was written.
    :raises TargetMoved: the range is no longer what was published; nothing was written.
    """
    plan = work.stored_plan()
    backfill = work.ledger.backfill(work.backfill_id)
    if backfill.name != work.spec.name:
        raise RequestError(
            f"Backfill {work.backfill_id} is of {backfill.name}: trigger rollback__{backfill.name}, not rollback__{work.spec.name}."
        )
    own = settle(work, plan)
    if own is None:
        raise PublishRefused(
            f"Backfill {work.backfill_id} never published or had nothing to publish ({backfill.state}); "
            "there is nothing to undo."
        )
    marks = {key: Fingerprint(**mark) for key, mark in backfill.backup_fingerprints.items()}
    if own.action is Action.ROLLBACK:
        if backfill.state is not BackfillState.ROLLED_BACK:
            _require_restored(work, plan, marks)
            _record(work, plan)
        return RollbackResult(False, len(plan.partitions), 0, 0, note="rolled back before; nothing to do")
    standing = standing_over(work.warehouse.receipts(plan.target), plan.keys)
    if standing is not None and standing.backfill_id != work.backfill_id:
        raise PublishRefused(
            f"Backfill {standing.backfill_id} wrote to this range after {work.backfill_id}: roll that one back first."
        )
    if backfill.backup_location is None:
        raise PublishRefused(f"The ledger knows no backup of {work.backfill_id}; nothing was written.")
    backup = Backup(backfill.backup_location)
    after = _require_backup(work, plan, backup, marks)
    with _range_lock(work, plan):
        receipt = work.warehouse.replace_partitions(
            plan.target,
            Publication(
                backfill_id=work.backfill_id,
                action=Action.ROLLBACK,
                plan_hash=plan.plan_hash,
                partitions=plan.partitions,
                rows=backup,
                before=_before(work, plan, force=force),
                after=after,
                keys_may_repeat=force,
            ),
        )
    _require_restored(work, plan, after)
    _record(work, plan)
    return RollbackResult(True, len(plan.partitions), receipt.deleted, receipt.inserted, note="restored in one commit")


def _require_restored(work: Work, plan: Plan, marks: Mapping[str, Fingerprint]) -> None:
    found = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
    wrong = [key for key, mark in marks.items() if not same_rows(mark, found[key])]
    if wrong:
        raise PublishRefused(
            f"The range was restored, but {', '.join(wrong[:5])} does not equal the backup: something else wrote to "
            f"{plan.target.table} since. Nothing was written again; mend those rows and clear this task."
        )


@contextmanager
def _range_lock(work: Work, plan: Plan) -> Iterator[None]:
    """Hold the range's lock; it is given back when nothing was written, unless the backfill's state holds it."""
    work.ledger.claim_range(work.backfill_id, merge(plan.partitions), by=work.by)
    try:
        yield
    except BaseException:
        work.ledger.release_range(work.backfill_id)
        raise


def _before(work: Work, plan: Plan, *, force: bool) -> Mapping[str, Fingerprint]:
    """What the range holds now: what we published, or, when forced, whatever is there, backed up."""
    published = staged_fingerprints(work)
    if not force:
        found = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
        if any(found[key].method != mark.method for key, mark in published.items()):
            published = _fingerprint_again(work, plan)
        moved = {key: (mark.rows, found[key].rows) for key, mark in published.items() if found[key] != mark}
        if moved:
            counts = ", ".join(f"{key}: {old} rows published, {new} now" for key, (old, new) in list(moved.items())[:5])
            raise TargetMoved(
                f"{len(moved)} partitions changed after backfill {work.backfill_id} published them ({counts}). Rolling "
                'back would lose that. Nothing was written. {"force": true} restores anyway and keeps a copy of what it '
                "overwrites.",
                moved,
            )
        return published
    backup, marks = work.warehouse.back_up(plan.target, work.backfill_id, plan.partitions, label="forced")
    detail: dict[str, Any] = {"location": backup.location, "fingerprints": {k: asdict(m) for k, m in marks.items()}}
    work.ledger.record_event(work.backfill_id, "forced_backup", by=work.by, detail=detail)
    return marks


def _fingerprint_again(work: Work, plan: Plan) -> Mapping[str, Fingerprint]:
    """What was published, by this engine's version: the stages are still there, or only force helps."""
    records = work.ledger.partitions(work.backfill_id)
    staged = Staged(tuple(staged_partition(partition, records[partition.key]) for partition in plan.partitions))
    try:
        return work.warehouse.fingerprint(plan.target, staged, plan.partitions)
    except BackfillError as error:
        raise PublishRefused(
            f"Backfill {work.backfill_id} was published by another version of the engine, and its stages are gone ({error}), "
            'so nothing shows whether the range changed since. {"force": true} restores it and keeps a copy of what it '
            "overwrites. Nothing was written."
        ) from error


def _require_backup(
    work: Work, plan: Plan, backup: Backup, marks: Mapping[str, Fingerprint]
) -> Mapping[str, Fingerprint]:
    """The backup's fingerprints by this engine's version; says that it is gone or changed before anything is touched."""
    try:
        found = work.warehouse.fingerprint(plan.target, backup, plan.partitions)
    except BackfillError as error:
        raise PublishRefused(
            f"The backup {backup.location} of {work.backfill_id} cannot be read: {error} Nothing was written."
        ) from error
    if found.keys() != marks.keys() or not all(same_rows(mark, found[key]) for key, mark in marks.items()):
        raise PublishRefused(f"The backup {backup.location} is not what was backed up. Nothing was written.")
    return found


def _record(work: Work, plan: Plan) -> None:
    if work.ledger.backfill(work.backfill_id).state is BackfillState.ROLLED_BACK:
        return
    work.ledger.move_partitions(work.backfill_id, plan.keys, PartitionState.ROLLED_BACK, by=work.by)
    work.ledger.move(work.backfill_id, BackfillState.ROLLED_BACK, by=work.by)
