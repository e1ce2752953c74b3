"""Roll back: the publish algorithm with the backup as the stage and a receipt of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.errors import BackfillError, PublishRefused, RequestError, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.steps.locked import locked_words, record_lock
from airflow_backfill_provider.steps.mechanism import undo
from airflow_backfill_provider.steps.metrics import OUTCOMES
from airflow_backfill_provider.steps.receipts import longest_write_block, standing_over
from airflow_backfill_provider.steps.replaced import published
from airflow_backfill_provider.steps.settle import same_rows, settle, staged_fingerprints, way_back_has_ended
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Fingerprint,
    Publication,
    Published,
    Receipt,
    Staged,
)
from airflow_backfill_provider.windows import Partition, merge


@dataclass(frozen=True)
class RollbackResult:
    """What was restored."""

    restored: bool
    """False when the range was rolled back before."""
    partitions: int
    deleted: int
    inserted: int
    note: str = ""
    write_block_seconds: float | None = None
    """How long nobody else could write the table, in the longest commit of this call; None where nobody was kept out."""


def rollback(work: Work, *, force: bool = False) -> RollbackResult:
    """Restore what was published to its backup, leaving every row outside it alone; a second call does nothing.

    Each unit of the publish is restored in one commit. After a failure between two, the next call restores the rest. A view
    is pointed back to the version before, where that leaves every other row alone too.

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
            _require_restored(work, plan, undone, marks)
            _record(work)
        return _restored_before(len(written.undone))
    standing = standing_over(work.warehouse.receipts(plan.target), written.published)
    if standing is not None and standing.backfill_id != work.backfill_id:
        raise PublishRefused(
            f"Backfill {standing.backfill_id} wrote to this range after {work.backfill_id}: roll that one back first."
        )
    if backfill.backup_location is None:
        raise PublishRefused(f"The ledger knows no backup of {work.backfill_id}; nothing was written.")
    backup = Backup(backfill.backup_location)
    after = _require_backup(work, plan, backup, marks)
    restored = plan.select(sorted(written.published))
    receipts: list[Receipt] = []
    restore = undo(work.warehouse, plan.spec.publish)
    with _range_lock(work, plan, receipts):
        before = _before(work, plan, restored, force=force)
        # In the opposite order, so that what is mixed on the way is what was mixed on the way there.
        for unit in reversed(_units(plan, restored)):
            publication = Publication(
                backfill_id=work.backfill_id,
                action=Action.ROLLBACK,
                plan_hash=plan.plan_hash,
                partitions=unit,
                rows=backup,
                before={partition.key: before[partition.key] for partition in unit},
                after={partition.key: after[partition.key] for partition in unit},
                keys_may_repeat=force,
            )
            receipts.append(restore(plan.target, publication))
            record_lock(work, receipts[-1])
    _require_restored(work, plan, restored, after)
    _record(work)
    return RollbackResult(
        True,
        len(restored),
        deleted=sum(receipt.deleted for receipt in receipts),
        inserted=sum(receipt.inserted for receipt in receipts),
        note=("restored in one commit" if len(receipts) == 1 else f"restored in {len(receipts)} commits")
        + "".join(locked_words(one.locked_for.total_seconds()) for one in receipts if one.locked_for is not None),
        write_block_seconds=longest_write_block(receipts),
    )


def _restored_before(partitions: int) -> RollbackResult:
    return RollbackResult(False, partitions, 0, 0, note="rolled back before; nothing to do")


def _units(plan: Plan, restored: Sequence[Partition]) -> list[tuple[Partition, ...]]:
    """The plan's units, without what was not published."""
    chosen = set(restored)
    units = [tuple(partition for partition in unit if partition in chosen) for unit in plan.units()]
    return [unit for unit in units if unit]


def _require_restored(work: Work, plan: Plan, restored: Sequence[Partition], marks: Mapping[str, Fingerprint]) -> None:
    found = work.warehouse.fingerprint(plan.target, Published(), restored)
    wrong = [key for key, mark in found.items() if not same_rows(marks[key], mark)]
    if wrong:
        raise PublishRefused(
            f"The range was restored, but {', '.join(wrong[:5])} does not equal the backup: something else wrote to "
            f"{plan.target.table} since. Nothing was written again; mend those rows and clear this task."
        )


@contextmanager
def _range_lock(work: Work, plan: Plan, receipts: Sequence[Receipt]) -> Iterator[None]:
    """Hold the range's lock; when it breaks before the first receipt, nothing was written and the lock is given back."""
    work.ledger.claim_range(work.backfill_id, merge(plan.partitions), by=work.by)
    try:
        yield
    except BaseException:
        if not receipts:
            work.ledger.release_range(work.backfill_id)
        raise


def _before(work: Work, plan: Plan, restored: Sequence[Partition], *, force: bool) -> Mapping[str, Fingerprint]:
    """What the range holds now: what we published, or, when forced, whatever is there, backed up."""
    if not force:
        staged = staged_fingerprints(work)
        ours: Mapping[str, Fingerprint] = {partition.key: staged[partition.key] for partition in restored}
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
        return ours
    backup, marks = work.warehouse.back_up(plan.target, work.backfill_id, restored, label="forced")
    detail: dict[str, Any] = {"location": backup.location, "fingerprints": {k: asdict(m) for k, m in marks.items()}}
    work.ledger.record_event(work.backfill_id, "forced_backup", by=work.by, detail=detail)
    return marks


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


def _record(work: Work) -> None:
    if work.ledger.backfill(work.backfill_id).state is BackfillState.ROLLED_BACK:
        return
    undone = sorted(published(work.ledger.partitions(work.backfill_id)))
    work.ledger.move_partitions(work.backfill_id, undone, PartitionState.ROLLED_BACK, by=work.by)
    work.metrics.count(OUTCOMES, len(undone), outcome="rolled_back")
    work.ledger.move(work.backfill_id, BackfillState.ROLLED_BACK, by=work.by)
