"""Publish: each unit of the validated range, mostly the whole of it, in one commit or not at all.

A crash between any two lines leaves the old rows or the new rows, and running it again converges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from airflow_backfill_provider.errors import (
    BackfillError,
    ConnectionLost,
    LockTimeout,
    PublishRefused,
    Stopped,
    TargetMoved,
)
from airflow_backfill_provider.ledger.records import Gate, PartitionRecord
from airflow_backfill_provider.ledger.states import READY, WRITTEN, BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import PUBLISH_FAILED_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.approval import require_approval
from airflow_backfill_provider.steps.baseline import require_equal
from airflow_backfill_provider.steps.judge import adds_no_key
from airflow_backfill_provider.steps.live import unclaimed
from airflow_backfill_provider.steps.live_lag import Moment
from airflow_backfill_provider.steps.locked import locked_seconds, locked_words, record_lock
from airflow_backfill_provider.steps.mechanism import change, mechanism_of
from airflow_backfill_provider.steps.metrics import OUTCOMES
from airflow_backfill_provider.steps.receipts import Written, longest_write_block
from airflow_backfill_provider.steps.replaced import published, replaced
from airflow_backfill_provider.steps.settle import PublishResult, refuse_unverified, settle, unverified
from airflow_backfill_provider.steps.source import require_unmoved_source
from airflow_backfill_provider.steps.validate import validate_range
from airflow_backfill_provider.steps.way_on import plan_anew, put_back_too
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
from airflow_backfill_provider.windows import Partition, merge


def publish(work: Work) -> PublishResult:
    """Replace the validated range unit by unit, each in one commit; a second call publishes nothing.

    The unit is the whole range unless ``publish.unit`` says otherwise. After a failure between two units, the next call
    goes on with those that are left.

    :raises NotApproved: the plan, its trial or the evidence waits for a person, as each is now; nothing was written.
    :raises PublishRefused: a promise would break; nothing was written to the unit, nor to one after it.
    :raises TargetMoved: the unit is not what the plan saw; likewise.
    :raises SourceMoved: the source is not what the plan counted, and the spec says to refuse; likewise.
    :raises StageChanged: staged rows are not the validated ones; likewise.
    """
    work.stop_or_go()
    result = _publish(work)
    work.measure_lag(Moment.AFTER)
    return result


def _publish(work: Work) -> PublishResult:
    stored = work.stored_plan()
    if stored.request.drill:
        raise PublishRefused(f"Backfill {work.backfill_id} is a drill, which publishes nothing, whatever it found.")
    written = settle(work, stored)
    _refuse_undone(work, written)
    state = work.ledger.backfill(work.backfill_id).state
    if state is BackfillState.EXPIRED:
        raise PublishRefused(f"Backfill {work.backfill_id} is over; publishing its range needs a new backfill.")
    if state in WRITTEN:
        return _published(work, stored, written)

    revision, plan = work.revision, work.plan()
    if state is BackfillState.AWAITING_APPROVAL:
        require_approval(work, plan, *Gate)
    if state in _RESUMABLE or (state is BackfillState.VALIDATED and unclaimed(work, plan, plan.live)):
        validate_range(work)
        plan = work.plan()  # in which live partitions may have been read only now
    elif state is not BackfillState.VALIDATED:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {state}, not validated; clear what failed and let it run through. "
            "Nothing was written."
        )
    require_approval(work, plan, *Gate)
    work.ledger.move(
        work.backfill_id,
        BackfillState.PUBLISHING,
        by=work.by,
        revision=revision,
        expected={BackfillState.VALIDATED},
        task=work.task,
    )
    receipts: list[Receipt | None] = []
    try:
        # Only now, since nothing can be staged, judged or planned anew while the backfill is publishing.
        records = work.ledger.partitions(work.backfill_id)
        _require_ready(work, plan, records)
        require_approval(work, plan, *Gate)
        left = [one for one in plan.partitions if records[one.key].state is not PartitionState.PUBLISHED]
        require_unmoved_source(work, plan, left)  # of every unit before the first is written
        units = [unit for unit in plan.units() if not set(unit).isdisjoint(left)]
        filled: Backup | None = None
        if any(_differs(plan, partition, records) for partition in left):
            if plan.spec.publish.swap:
                filled = _fill(work, plan, records)
            else:
                _back_up(work, plan, records)
        # No key is new, and the range still is what it was: a key outside that equals one of them was there before.
        keys_may_repeat = adds_no_key(work, plan)
        for unit in units:
            receipts.append(_publish_unit(work, plan, unit, records, revision, filled, keys_may_repeat=keys_may_repeat))
    except Stopped as stop:
        kind = type(stop).__name__
        work.ledger.move(work.backfill_id, BackfillState.HALTED, by=work.by, reason=str(stop), error=kind)
        raise
    except BackfillError as error:
        # Whatever went wrong, the receipts know which commits happened.
        written = settle(work, plan)
        if published(work.ledger.partitions(work.backfill_id)) != set(plan.keys):
            if isinstance(error, TargetMoved):
                way_on = plan_anew(work.ledger, work.backfill_id, is_published=bool(written.published))
                error = TargetMoved(f"{error} {way_on}", error.moved)
            mechanism = mechanism_of(plan.spec.publish, Action.PUBLISH)
            detail = {"mechanism": mechanism, "error": type(error).__name__, "reason": str(error)[:2_000]}
            work.ledger.record_event(work.backfill_id, PUBLISH_FAILED_EVENT, by=work.by, detail=detail)
            work.log.error("Not everything was published: %s", error)
            _refuse_undone(work, written)
            raise error
    else:
        written = settle(work, plan)
    result = replace(_published(work, plan, written), write_block_seconds=longest_write_block(receipts))
    _advise(work, plan, receipts)
    return result


def _advise(work: Work, plan: Plan, receipts: Sequence[Receipt | None]) -> None:
    """Log what the table needs now; whatever comes of that, the range is published."""
    deleted = sum(receipt.deleted for receipt in receipts if receipt is not None)
    if not plan.spec.publish.deletes_rows:
        return
    try:
        for sentence in work.warehouse.upkeep(plan.target, deleted=deleted):
            work.log.info("%s", sentence)
    except BackfillError as error:
        work.log.warning("What %s needs after the publish could not be read: %s", plan.target.table, error)


def _publish_unit(
    work: Work,
    plan: Plan,
    unit: Sequence[Partition],
    records: Mapping[str, PartitionRecord],
    revision: int,
    filled: Backup | None,
    *,
    keys_may_repeat: bool,
) -> Receipt | None:
    """Replace one unit in one commit; None when it holds the staged rows already."""
    receipt = None
    after = {partition.key: staged_fingerprint(records[partition.key]) for partition in unit}
    if any(_differs(plan, partition, records) for partition in unit):
        work.check_stop()
        rows = filled or Staged(tuple(staged_partition(one, records[one.key]) for one in unit))
        publication = _publication(work, plan, unit, rows, after, revision, keys_may_repeat=keys_may_repeat)
        receipt = change(work.warehouse, plan.spec.publish)(plan.target, publication)
        record_lock(work, receipt)
    else:
        found = work.warehouse.fingerprint(plan.target, Published(), unit)
        require_equal(after, found, f"The published range of {plan.target.table} moved since the plan was made")
    work.ledger.move_partitions(work.backfill_id, list(after), PartitionState.PUBLISHED, by=work.by)
    work.metrics.count(OUTCOMES, len(after), outcome="published")
    return receipt


def _differs(plan: Plan, partition: Partition, records: Mapping[str, PartitionRecord]) -> bool:
    return staged_fingerprint(records[partition.key]) != plan.baseline[partition.key]


_RESUMABLE = frozenset({BackfillState.HALTED, BackfillState.FAILED})
"""Only this step was cleared after a stop; whether the range may be published is asked again."""


def _publication(
    work: Work,
    plan: Plan,
    unit: Sequence[Partition],
    rows: Staged | Backup,
    after: Mapping[str, Fingerprint],
    revision: int,
    *,
    keys_may_repeat: bool,
) -> Publication:
    def still_ours() -> None:
        backfill = work.ledger.backfill(work.backfill_id)
        is_put_back = work.ledger.is_on_way_back(work.backfill_id)
        if backfill.state is BackfillState.PUBLISHING and backfill.revision == revision and not is_put_back:
            return
        now = "on its way back" if is_put_back else f"{backfill.state} at plan revision {backfill.revision}"
        raise PublishRefused(
            f"Backfill {work.backfill_id} is {now} now: someone took it over while this publish ran. Nothing was written to "
            f"{unit[0].key} … {unit[-1].key}."
        )

    return Publication(
        backfill_id=work.backfill_id,
        action=Action.PUBLISH,
        plan_hash=plan.plan_hash,
        partitions=tuple(unit),
        rows=rows,
        before={key: plan.baseline[key] for key in after},
        after=after,
        confirm=still_ours,
        keys_may_repeat=keys_may_repeat,
    )


def _published(work: Work, plan: Plan, written: Written) -> PublishResult:
    """The result of what is committed and recorded; what could not be verified is verified again."""
    _refuse_undone(work, written)
    count = len(plan.partitions)
    state = work.ledger.backfill(work.backfill_id).state
    if not written.published:
        note = "nothing to publish: the range already holds exactly the staged rows"
        return PublishResult(False, count, 0, 0, note=note)
    if state is BackfillState.COMPLETED or not written.publishes:
        return PublishResult(False, count, 0, 0, note="published before; nothing to publish")
    if state is BackfillState.PUBLISHED_UNVERIFIED:
        refuse_unverified(work, plan, unverified(work, plan, plan.partitions))
        work.ledger.move(work.backfill_id, BackfillState.PUBLISHED, by=work.by)
    commits = len(written.publishes)
    locked = locked_seconds(work.ledger, work.backfill_id)
    return PublishResult(
        True,
        count,
        deleted=sum(receipt.deleted for receipt in written.publishes),
        inserted=sum(receipt.inserted for receipt in written.publishes),
        note=("published in one commit" if commits == 1 else f"published in {commits} commits") + locked_words(locked),
        locked_seconds=locked,
    )


def _refuse_undone(work: Work, written: Written) -> None:
    """:raises PublishRefused: the backfill is rolled back, or is being; saying so when a commit of it came after that."""
    if not written.undone:
        return
    if written.published:
        raise PublishRefused(
            f"Backfill {work.backfill_id} is rolled back, but {len(written.published)} partitions hold its rows: its rollback is not over, "
            f"or a commit of it came after that. {put_back_too(work.ledger.backfill(work.backfill_id))}"
        )
    raise PublishRefused(
        f"Backfill {work.backfill_id} was published and rolled back; publishing again needs a new backfill."
    )


def _require_ready(work: Work, plan: Plan, records: Mapping[str, PartitionRecord]) -> None:
    unready = [key for key, record in records.items() if record.state not in READY]
    if unready or set(records) != set(plan.keys):
        raise PublishRefused(
            f"{len(unready)} partitions are not validated: {', '.join(unready[:5])}. Nothing was written."
        )
    intent = plan.intent_hash
    mixed = [key for key, record in records.items() if record.staged_intent != intent]
    if mixed:
        raise PublishRefused(
            f"{len(mixed)} partitions were staged under another intent ({', '.join(mixed[:5])}); stage them again. "
            "Nothing was written."
        )
    if not work.ledger.holds_range(work.backfill_id, merge(plan.partitions)):
        raise PublishRefused(f"Backfill {work.backfill_id} no longer holds the lock on its range. Nothing was written.")


def _fill(work: Work, plan: Plan, records: Mapping[str, PartitionRecord]) -> Backup:
    """Fill what will take the place of the published rows; from that commit on, those are what the backup holds."""
    staged = Staged(tuple(staged_partition(partition, records[partition.key]) for partition in plan.partitions))
    filled = work.warehouse.fill_children(plan.target, work.backfill_id, staged)
    marks = {key: asdict(mark) for key, mark in plan.baseline.items()}
    work.ledger.set_backup(work.backfill_id, filled.location, marks, by=work.by)
    return filled


def _back_up(work: Work, plan: Plan, records: Mapping[str, PartitionRecord]) -> None:
    """Copy the affected partitions aside; an earlier attempt's copy that is still right is used again.

    :raises PublishRefused: that copy is gone, and some of what it held is replaced.
    """
    backfill = work.ledger.backfill(work.backfill_id)
    if backfill.backup_location is not None and _still_right(work, plan, Backup(backfill.backup_location)):
        return
    if written := replaced(plan, records):
        raise PublishRefused(
            f"{len(written)} of {len(plan.keys)} partitions of backfill {work.backfill_id} are published, and the backup with their old rows, "
            f"{backfill.backup_location}, is gone or is not what was backed up. The old rows cannot be copied any more, so nothing more "
            "was written. Bring the backup back to where it was, then clear atomic_publish."
        )
    backup, marks = work.warehouse.back_up(plan.target, work.backfill_id, plan.partitions, label="publish")
    require_equal(plan.baseline, marks, f"The published range of {plan.target.table} moved since the plan was made")
    work.ledger.set_backup(
        work.backfill_id, backup.location, {key: asdict(mark) for key, mark in marks.items()}, by=work.by
    )


def _still_right(work: Work, plan: Plan, backup: Backup) -> bool:
    """:raises ConnectionLost: or LockTimeout; neither says anything of the backup."""
    try:
        return work.warehouse.fingerprint(plan.target, backup, plan.partitions) == dict(plan.baseline)
    except (ConnectionLost, LockTimeout):
        raise
    except BackfillError as error:
        work.log.warning("The backup %s cannot be read: %s", backup.location, error)
        return False
