"""Roll back: the publish algorithm with the backup as the stage and a receipt of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.errors import BackfillError, PublishRefused, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.receipts import newest_of, standing_over
from airflow_backfill_provider.steps.work import Work, staged_fingerprint
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Publication, Published
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
    plan = Plan.from_document(work.ledger.plan(work.backfill_id).document)
    backfill = work.ledger.backfill(work.backfill_id)
    receipts = work.warehouse.receipts(plan.target)
    own, standing = newest_of(receipts, work.backfill_id), standing_over(receipts, plan.keys)
    if own is None:
        raise PublishRefused(
            f"Backfill {work.backfill_id} never published or had nothing to publish ({backfill.state}); "
            "there is nothing to undo."
        )
    if own.action is Action.ROLLBACK:
        _record(work, plan)
        return RollbackResult(False, len(plan.partitions), 0, 0, note="rolled back before; nothing to do")
    if standing is not None and standing.backfill_id != work.backfill_id:
        raise PublishRefused(
            f"Backfill {standing.backfill_id} wrote to this range after {work.backfill_id}: roll that one back first."
        )
    if backfill.backup_location is None:
        raise PublishRefused(f"The ledger knows no backup of {work.backfill_id}; nothing was written.")
    backup = Backup(backfill.backup_location)
    after = {key: Fingerprint(**mark) for key, mark in backfill.backup_fingerprints.items()}
    _require_backup(work, plan, backup, after)
    publication = Publication(
        backfill_id=work.backfill_id,
        action=Action.ROLLBACK,
        plan_hash=plan.plan_hash,
        partitions=plan.partitions,
        rows=backup,
        before=_before(work, plan, force=force),
        after=after,
    )
    with _range_lock(work, plan):
        receipt = work.warehouse.replace_partitions(plan.target, publication)
    found = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
    if found != after:
        raise PublishRefused(
            f"The range was restored, but does not equal the backup {backup.location}: something else wrote to "
            f"{plan.target.table} since. Nothing was written again."
        )
    _record(work, plan)
    return RollbackResult(True, len(plan.partitions), receipt.deleted, receipt.inserted, note="restored in one commit")


@contextmanager
def _range_lock(work: Work, plan: Plan) -> Iterator[None]:
    """Hold the range's lock; one that was taken here is given back when nothing was written."""
    windows = merge(plan.partitions)
    held = work.ledger.holds_range(work.backfill_id, windows)
    work.ledger.claim_range(work.backfill_id, windows, by=work.by)
    try:
        yield
    except BackfillError:
        if not held:
            work.ledger.release_range(work.backfill_id)
        raise


def _before(work: Work, plan: Plan, *, force: bool) -> Mapping[str, Fingerprint]:
    """What the range holds now: what we published, or, when forced, whatever is there, backed up."""
    records = work.ledger.partitions(work.backfill_id)
    published = {key: staged_fingerprint(record) for key, record in records.items()}
    if not force:
        found = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
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


def _require_backup(work: Work, plan: Plan, backup: Backup, marks: Mapping[str, Fingerprint]) -> None:
    """Say that the backup is gone or changed before anything is touched."""
    try:
        found = work.warehouse.fingerprint(plan.target, backup, plan.partitions)
    except BackfillError as error:
        raise PublishRefused(
            f"The backup {backup.location} of {work.backfill_id} cannot be read: {error} Nothing was written."
        ) from error
    if found != dict(marks):
        raise PublishRefused(f"The backup {backup.location} is not what was backed up. Nothing was written.")


def _record(work: Work, plan: Plan) -> None:
    if work.ledger.backfill(work.backfill_id).state is BackfillState.ROLLED_BACK:
        return
    work.ledger.move_partitions(work.backfill_id, plan.keys, PartitionState.ROLLED_BACK, by=work.by)
    work.ledger.move(work.backfill_id, BackfillState.ROLLED_BACK, by=work.by)
