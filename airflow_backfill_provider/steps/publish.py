"""Publish: the whole validated range in one commit, or not at all. The algorithm is the design's section 4.

A crash between any two lines leaves the old rows or the new rows, and running it again converges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from airflow_backfill_provider.errors import BackfillError, LockTimeout, PublishRefused, Stopped, TargetMoved
from airflow_backfill_provider.ledger.records import BackfillRecord, PartitionRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.receipts import newest_of
from airflow_backfill_provider.steps.validate import validate_range
from airflow_backfill_provider.steps.work import Work, staged_fingerprint, staged_partition
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Fingerprint,
    Publication,
    Published,
    Receipt,
    Staged,
)
from airflow_backfill_provider.windows import merge


@dataclass(frozen=True)
class PublishResult:
    """What became visible."""

    published: bool
    """False when the range already held exactly the staged rows, so that nothing was written."""
    partitions: int
    deleted: int
    inserted: int
    note: str = ""


def publish(work: Work) -> PublishResult:
    """Replace the whole range by its validated rows in one commit; a second call publishes nothing.

    :raises PublishRefused: a promise would break; nothing was written.
    :raises TargetMoved: the range is not what the plan saw; nothing was written.
    :raises StageChanged: staged rows are not the validated ones; nothing was written.
    """
    work.stop_or_go()
    plan = work.plan()
    backfill = work.ledger.backfill(work.backfill_id)
    records = work.ledger.partitions(work.backfill_id)
    after = {key: staged_fingerprint(record) for key, record in records.items() if record.rows is not None}

    receipt = newest_of(work.warehouse.receipts(plan.target), work.backfill_id)
    if receipt is not None:
        if receipt.action is Action.ROLLBACK:
            raise PublishRefused(
                f"Backfill {work.backfill_id} was published and rolled back; publishing again needs a new backfill."
            )
        return _finish(work, plan, after, receipt)
    if backfill.state in _PUBLISHED:
        return PublishResult(False, len(records), 0, 0, note="published before; nothing to publish")

    if backfill.state in _RESUMABLE:
        validate_range(work)
        backfill = work.ledger.backfill(work.backfill_id)
    _require_ready(work, plan, backfill, records)
    if all(after[key] == plan.baseline[key] for key in plan.keys):
        return _nothing_to_publish(work, plan, after)

    work.ledger.move(work.backfill_id, BackfillState.PUBLISHING, by=work.by)
    try:
        _back_up(work, plan)
        work.check_stop()
        receipt = work.warehouse.replace_partitions(
            plan.target,
            Publication(
                backfill_id=work.backfill_id,
                action=Action.PUBLISH,
                plan_hash=plan.plan_hash,
                partitions=plan.partitions,
                rows=Staged(tuple(staged_partition(p, records[p.key]) for p in plan.partitions)),
                before=plan.baseline,
                after=after,
            ),
        )
    except Stopped as stop:
        work.ledger.move(work.backfill_id, BackfillState.HALTED, by=work.by, reason=str(stop))
        raise
    except (PublishRefused, LockTimeout) as refusal:
        # The adapter promises that nothing was written, so the backfill may go on from where it was.
        work.ledger.move(work.backfill_id, BackfillState.VALIDATED, by=work.by, reason=str(refusal))
        raise
    return _finish(work, plan, after, receipt)


_PUBLISHED = frozenset({BackfillState.PUBLISHED, BackfillState.COMPLETED})
_RESUMABLE = frozenset({BackfillState.HALTED, BackfillState.FAILED})
"""Only this step was cleared after a stop; whether the range may be published is asked again."""


def _require_ready(work: Work, plan: Plan, backfill: BackfillRecord, records: Mapping[str, PartitionRecord]) -> None:
    if backfill.state not in {BackfillState.VALIDATED, BackfillState.PUBLISHING}:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {backfill.state}, not validated; clear what failed and let it run through."
        )
    unready = [key for key, record in records.items() if record.state is not PartitionState.VALIDATED]
    if unready or set(records) != set(plan.keys):
        raise PublishRefused(
            f"{len(unready)} partitions are not validated: {', '.join(unready[:5])}. Nothing was written."
        )
    mixed = [key for key, record in records.items() if record.staged_intent != plan.intent_hash]
    if mixed:
        raise PublishRefused(
            f"{len(mixed)} partitions were staged under another intent ({', '.join(mixed[:5])}); stage them again. "
            "Nothing was written."
        )
    if not work.ledger.holds_range(work.backfill_id, merge(plan.partitions)):
        raise PublishRefused(f"Backfill {work.backfill_id} no longer holds the lock on its range. Nothing was written.")


def _back_up(work: Work, plan: Plan) -> None:
    """Copy the affected partitions aside; an earlier attempt's copy that is still right is used again."""
    backfill = work.ledger.backfill(work.backfill_id)
    if backfill.backup_location is not None and _still_right(work, plan, Backup(backfill.backup_location)):
        return
    backup, marks = work.warehouse.back_up(plan.target, work.backfill_id, plan.partitions, label="publish")
    require_equal(plan.baseline, marks, f"The published range of {plan.target.table} moved since the plan was made")
    work.ledger.set_backup(
        work.backfill_id, backup.location, {key: asdict(mark) for key, mark in marks.items()}, by=work.by
    )


def _still_right(work: Work, plan: Plan, backup: Backup) -> bool:
    try:
        return work.warehouse.fingerprint(plan.target, backup, plan.partitions) == dict(plan.baseline)
    except BackfillError as error:
        work.log.warning("The backup %s cannot be read (%s); making a new one.", backup.location, error)
        return False


def require_equal(expected: Mapping[str, Fingerprint], found: Mapping[str, Fingerprint], claim: str) -> None:
    """Refuse when a partition is not what it was.

    :raises TargetMoved: with rows expected and found per partition.
    """
    moved = {key: (mark.rows, found[key].rows) for key, mark in expected.items() if found[key] != mark}
    if moved:
        counts = ", ".join(f"{key} had {old} rows, has {new}" for key, (old, new) in list(moved.items())[:5])
        raise TargetMoved(
            f"{claim}: {len(moved)} partitions differ ({counts}). Nothing was written. Trigger the DAG with "
            '{"backfill_id": "…", "rebase": true} to recompute exactly these.',
            moved,
        )


def _nothing_to_publish(work: Work, plan: Plan, after: Mapping[str, Fingerprint]) -> PublishResult:
    found = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
    require_equal(after, found, f"The published range of {plan.target.table} moved since the plan was made")
    work.ledger.move(work.backfill_id, BackfillState.PUBLISHING, by=work.by)
    work.ledger.move_partitions(work.backfill_id, plan.keys, PartitionState.PUBLISHED, by=work.by)
    note = "nothing to publish: the range already holds exactly the staged rows"
    work.ledger.move(work.backfill_id, BackfillState.PUBLISHED, by=work.by, reason=note)
    return PublishResult(False, len(plan.partitions), 0, 0, note=note)


def _finish(work: Work, plan: Plan, after: Mapping[str, Fingerprint], receipt: Receipt) -> PublishResult:
    """Everything after a confirmed commit: verify, and record. Safe to run any number of times."""
    state = work.ledger.backfill(work.backfill_id).state
    result = PublishResult(
        True, len(plan.partitions), receipt.deleted, receipt.inserted, note="published in one commit"
    )
    if state in _PUBLISHED:
        return PublishResult(False, result.partitions, 0, 0, note="published before; nothing to publish")
    found = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
    wrong = [key for key in plan.keys if found[key] != after[key]]
    if state not in {BackfillState.PUBLISHING, BackfillState.PUBLISHED_UNVERIFIED}:
        work.ledger.move(
            work.backfill_id, BackfillState.PUBLISHING, by=work.by, reason="found its receipt in the table"
        )
    work.ledger.move_partitions(work.backfill_id, plan.keys, PartitionState.PUBLISHED, by=work.by)
    work.ledger.record_event(
        work.backfill_id,
        "receipt",
        by=work.by,
        detail={"sequence": receipt.sequence, "deleted": receipt.deleted, "inserted": receipt.inserted},
    )
    if wrong:
        reason = (
            f"The range was published, but {len(wrong)} partitions do not hold what was staged: {', '.join(wrong[:5])}. "
            f"Something else wrote to {plan.target.table}. Nothing was written again. To undo, trigger "
            f'rollback__{plan.spec.name} with {{"backfill_id": "{work.backfill_id}"}}.'
        )
        if state is not BackfillState.PUBLISHED_UNVERIFIED:
            work.ledger.move(work.backfill_id, BackfillState.PUBLISHED_UNVERIFIED, by=work.by, reason=reason)
        raise PublishRefused(reason)
    work.ledger.move(work.backfill_id, BackfillState.PUBLISHED, by=work.by)
    return result
