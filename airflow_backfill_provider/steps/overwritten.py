"""What a forced rollback overwrites: copied aside before, and brought back when that turns out to have been wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_backfill_provider.errors import PublishRefused, RequestError, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.mechanism import bring_back
from airflow_backfill_provider.steps.receipts import since_rollback
from airflow_backfill_provider.steps.restore import (
    Restoration,
    RollbackResult,
    require_backup,
    require_own,
    require_restored,
    restore,
    way_back,
)
from airflow_backfill_provider.steps.settle import record_receipts
from airflow_backfill_provider.steps.way_on import rollback_command
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Published, Receipt
from airflow_backfill_provider.windows import Partition

_EVENT = "forced_backup"
_NOTHING_EVENT = "forced_backup.not_used"


def keep_overwritten(work: Work, plan: Plan, partitions: Sequence[Partition]) -> Mapping[str, Fingerprint]:
    """Copy aside what the partitions hold now, record where, and return its fingerprints."""
    backup, marks = work.warehouse.back_up(plan.target, work.backfill_id, partitions, label="forced")
    detail: dict[str, Any] = {"location": backup.location, "fingerprints": {k: asdict(m) for k, m in marks.items()}}
    work.ledger.record_event(work.backfill_id, _EVENT, by=work.by, detail=detail)
    return marks


def forget_overwritten(work: Work, keys: Collection[str]) -> None:
    """The rollback that follows was not forced after all: of these partitions nothing but what was published is overwritten."""
    if work.ledger.events(work.backfill_id, _EVENT):
        work.ledger.record_event(work.backfill_id, _NOTHING_EVENT, by=work.by, detail={"partitions": sorted(keys)})


def restore_overwritten(work: Work) -> RollbackResult:
    """Bring back what the forced rollback of this backfill overwrote; a second call does nothing.

    The backfill stays rolled back: those rows are not what it published.

    :raises RequestError: no rollback of it was forced; nothing was written.
    :raises PublishRefused: the rollback is not over, somebody published since, or the copy is gone; nothing was written.
    :raises TargetMoved: the range is no longer what the rollback restored; nothing was written.
    """
    require_own(work)
    plan, copies = work.stored_plan(), _copies(work)
    keys = frozenset(key for marks in copies.values() for key in marks)
    before = RollbackResult(False, len(keys), 0, 0, note="brought back before; nothing to do")
    if not _left(work, plan, keys) and not work.ledger.is_on_way_back(work.backfill_id):
        return before
    with way_back(work, plan) as way:
        left = _left(work, plan, keys)  # once more, as somebody may have published until the range was held
        # Every copy is looked at before the rows of the first are written.
        restorations = [
            _restoration(work, plan, Backup(location), {key: mark for key, mark in marks.items() if key in left})
            for location, marks in copies.items()
            if not left.isdisjoint(marks)
        ]
        now = _rolled_back(work, plan, plan.select(sorted(left))) if left else {}
        results = [restore(work, plan, one, now, way) for one in restorations]
        if back := plan.select(sorted(keys - left)):
            # A task committed and could not show, or did not live to show, that it is what it should be.
            marks = {key: mark for copied in copies.values() for key, mark in copied.items()}
            require_restored(work, plan, back, marks, _again(work))
            record_receipts(work, plan, work.warehouse.receipts(plan.target))
    if not results:
        return before
    return RollbackResult(
        True,
        len(left),
        deleted=sum(result.deleted for result in results),
        inserted=sum(result.inserted for result in results),
        note="; ".join(result.note for result in results),
        write_block_seconds=max((one.write_block_seconds for one in results if one.write_block_seconds), default=None),
    )


def brought_back(work: Work, plan: Plan) -> tuple[frozenset[str], frozenset[str]]:
    """Of what the backfill's forced rollback overwrote: the keys that were brought back, and those that were not."""
    keys = frozenset(key for marks in _copies(work).values() for key in marks)
    later = since_rollback(work.warehouse.receipts(plan.target), work.backfill_id)
    left = keys.difference(*(one.keys for one in later if _is_own(work, one)))
    return keys - left, left


def _left(work: Work, plan: Plan, keys: frozenset[str]) -> frozenset[str]:
    """Those of the keys that are still to be brought back.

    :raises PublishRefused: the rollback is not over, or somebody published since.
    """
    state = work.ledger.backfill(work.backfill_id).state
    if state is not BackfillState.ROLLED_BACK:
        raise PublishRefused(
            f"The rollback of backfill {work.backfill_id} is not over (it is {state}); clear its failed task first. "
            "Nothing was written."
        )
    later = since_rollback(work.warehouse.receipts(plan.target), work.backfill_id)
    for receipt in later:
        if not keys.isdisjoint(receipt.keys) and not _is_own(work, receipt):
            raise PublishRefused(
                f"Backfill {receipt.backfill_id} wrote to this range after the rollback of {work.backfill_id}. Nothing was written."
            )
    return keys.difference(*(receipt.keys for receipt in later))


def _is_own(work: Work, receipt: Receipt) -> bool:
    return (receipt.backfill_id, receipt.action) == (work.backfill_id, Action.RESTORE)


def _restoration(work: Work, plan: Plan, backup: Backup, marks: Mapping[str, Fingerprint]) -> Restoration:
    partitions = plan.select(sorted(marks))
    return Restoration(
        Action.RESTORE,
        backup,
        require_backup(work, plan, backup, partitions, marks),
        partitions,
        bring_back(work.warehouse, plan.spec.publish),
        keys_may_repeat=True,
        again=_again(work),
    )


def _again(work: Work) -> str:
    """The command that goes on with what brings those rows back, which is no rollback."""
    return rollback_command(work.ledger.backfill(work.backfill_id), restore_overwritten=True)


def refuse_brought_back(work: Work, plan: Plan) -> None:
    """:raises PublishRefused: what the backfill's forced rollback overwrote was brought back, so that it is rolled back no more."""
    later = since_rollback(work.warehouse.receipts(plan.target), work.backfill_id)
    own = [one for one in later if (one.backfill_id, one.action) == (work.backfill_id, Action.RESTORE)]
    if own:
        raise PublishRefused(
            f"Backfill {work.backfill_id} was rolled back by force, and what that overwrote was brought back on "
            f"{own[-1].committed_at:%Y-%m-%dT%H:%M:%SZ}. Nothing was written. A new backfill, with the SQL as it was, brings "
            "the old rows."
        )


def _copies(work: Work) -> dict[str, dict[str, Fingerprint]]:
    """Where the last copy of each partition is, and its fingerprint there: a forced rollback that broke copies again what is left.

    A later copy of what the rollback restores is none of what it overwrote: another attempt had restored that already.
    """
    last: dict[str, tuple[str, Fingerprint]] = {}
    backfill = work.ledger.backfill(work.backfill_id)
    restored = {key: Fingerprint(**mark) for key, mark in backfill.backup_fingerprints.items()}
    for event in work.ledger.events(work.backfill_id):
        if event.action == _EVENT:
            marks = {key: Fingerprint(**mark) for key, mark in event.detail["fingerprints"].items()}
            last |= {
                key: (event.detail["location"], mark)
                for key, mark in marks.items()
                if key not in last or mark != restored.get(key)
            }
        elif event.action == _NOTHING_EVENT:
            for key in event.detail["partitions"]:
                last.pop(key, None)
    if not last:
        raise RequestError(
            f"No rollback of backfill {work.backfill_id} was forced, so none overwrote what it did not publish. Nothing was written."
        )
    copies: dict[str, dict[str, Fingerprint]] = {}
    for key, (location, mark) in last.items():
        copies.setdefault(location, {})[key] = mark
    return copies


def _rolled_back(work: Work, plan: Plan, partitions: Sequence[Partition]) -> Mapping[str, Fingerprint]:
    """What the range holds: what the rollback restored."""
    backfill = work.ledger.backfill(work.backfill_id)
    restored: Mapping[str, Fingerprint] = {
        partition.key: Fingerprint(**backfill.backup_fingerprints[partition.key]) for partition in partitions
    }
    found = work.warehouse.fingerprint(plan.target, Published(), partitions)
    if any(found[key].method != mark.method for key, mark in restored.items()):
        # By another version of the engine, which would compare the number of rows alone.
        restored = require_backup(work, plan, Backup(backfill.backup_location or ""), partitions, restored)
    moved = {key: (mark.rows, found[key].rows) for key, mark in restored.items() if mark != found[key]}
    if moved:
        counts = ", ".join(f"{key}: {old} rows restored, {new} now" for key, (old, new) in list(moved.items())[:5])
        raise TargetMoved(
            f"{len(moved)} partitions changed after backfill {work.backfill_id} was rolled back ({counts}). Bringing back what "
            "the rollback overwrote would lose that. Nothing was written.",
            moved,
        )
    return found
