"""Settle: find out from the table's receipts what a publish came to that was cut off, and record it.

The receipt stands in the same commit as the rows, so it is right where the ledger may be late. A table whose log does not
go back to a commit that the ledger recorded does not contradict it: the ledger is believed then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, RECEIPT_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.mechanism import mechanism_of
from airflow_backfill_provider.steps.moves import end_of_way_back
from airflow_backfill_provider.steps.receipts import Written, receipt_detail, written_by
from airflow_backfill_provider.steps.replaced import published, replaced
from airflow_backfill_provider.steps.way_on import put_back_too
from airflow_backfill_provider.steps.work import Work, fingerprint_on_record
from airflow_backfill_provider.warehouses.base import Fingerprint, Published, Receipt
from airflow_backfill_provider.windows import Partition


@dataclass(frozen=True)
class PublishResult:
    """What became visible."""

    published: bool
    """False when this backfill wrote nothing, or was completed before."""
    partitions: int
    deleted: int
    inserted: int
    note: str = ""
    write_block_seconds: float | None = None
    """How long nobody else could write the table, in the longest commit of this call; None where nobody was kept out."""
    locked_seconds: float | None = None
    """How long nobody could read the table, where partitions were exchanged and that is known."""


def settle(work: Work, plan: Plan, *, cut_off: bool = True, receipts: Sequence[Receipt] | None = None) -> Written:
    """Bring the ledger up to what the table's receipts say, and return that.

    A commit that nobody recorded is recorded: its partitions become published, and with the last of them the backfill
    ``published`` (or ``published_unverified``). A publish that was cut off before becomes ``validated`` again. A backfill
    that was given up while a publish still ran is taken up again when that commit is found; one of which units are missing
    then is ``published_unverified``, and so is one whose plan was revised, or whose partitions were staged again, when a commit
    from before that is found and is not what is staged now, and one that was rolled back before its commit came. Safe to run at
    any time, also beside a running publish, which asks once more, inside its transaction, whether it may go on.

    :param cut_off: whether a publish that is recorded as under way was cut off. One that may still commit is left as it is.
    :param receipts: those of the table, where they were just read.
    """
    written, records, state = _look(work, plan, receipts)
    if written.published and _is_put_back(state, written.published, records):
        # Once more: the receipts that were read may be older than the rollback that is recorded.
        written, records, state = _look(work, plan)
        if written.published and state is BackfillState.ROLLED_BACK:
            _take_up_again(work, written)
    recorded = published(records)
    found = sorted(written.published - recorded)
    done = recorded | written.published
    so_far = f"{len(done)} of {len(plan.keys)} partitions"
    if way_back_has_ended(work):
        return written
    if written.undone or state in _RECORDED:
        _call_published(work, plan, written, found)  # the worker that was to say so may have died before this
        if state is BackfillState.PUBLISHING and cut_off:
            reason = f"a publish was cut off with {so_far} published, of which {len(written.undone)} were put back"
            work.ledger.move(work.backfill_id, BackfillState.VALIDATED, by=work.by, reason=reason, expected={state})
        return written
    if written.publishes and done == set(plan.keys):
        _record(work, plan, written)
        return written
    wrong = unverified(work, plan, plan.select(found))
    given_up = state is BackfillState.EXPIRED and bool(written.published)
    if wrong and state is BackfillState.PUBLISHING and not cut_off:
        return written  # Nor are its partitions called published yet, or nobody would look at them once more.
    if wrong or given_up:
        # Before its partitions are called published, or the next publish went on from them when the worker dies here.
        reason = "; ".join([*_reasons(given_up, wrong), f"{so_far} are published"])
        work.log.warning("Backfill %s: %s.", work.backfill_id, reason)
        to = BackfillState.PUBLISHED_UNVERIFIED
        work.ledger.move(work.backfill_id, to, by=work.by, reason=reason, expected={state})
    _call_published(work, plan, written, found)
    if state is BackfillState.PUBLISHING and not wrong:
        if done == set(plan.keys):
            # Nothing had to be written, and the worker died between two lines of saying so.
            work.ledger.move(work.backfill_id, BackfillState.PUBLISHED, by=work.by, expected={state})
        elif cut_off:
            reason = f"a publish was cut off with {so_far} published"
            work.ledger.move(work.backfill_id, BackfillState.VALIDATED, by=work.by, reason=reason, expected={state})
    return written


def _look(
    work: Work, plan: Plan, receipts: Sequence[Receipt] | None = None
) -> tuple[Written, Mapping[str, PartitionRecord], BackfillState]:
    """What the backfill wrote by the receipts, and then what the ledger says."""
    written = written_by(work.warehouse.receipts(plan.target) if receipts is None else receipts, work.backfill_id)
    records = work.ledger.partitions(work.backfill_id)
    written = replace(written, by_ledger=replaced(plan, records) - written.published - written.undone)
    return written, records, work.ledger.backfill(work.backfill_id).state


def _is_put_back(state: BackfillState, keys: Iterable[str], records: Mapping[str, PartitionRecord]) -> bool:
    return state is BackfillState.ROLLED_BACK or any(records[key].state is PartitionState.ROLLED_BACK for key in keys)


def _take_up_again(work: Work, written: Written) -> None:
    """Say that a commit came after the backfill was rolled back. It is published again, which a rollback undoes."""
    reason = f"{_LANDED_LATE}: {len(written.published)} partitions hold its rows"
    work.log.error(
        "Backfill %s: %s. %s", work.backfill_id, reason, put_back_too(work.ledger.backfill(work.backfill_id))
    )
    to = BackfillState.PUBLISHED_UNVERIFIED
    work.ledger.move(work.backfill_id, to, by=work.by, reason=reason, expected={BackfillState.ROLLED_BACK})


def _call_published(work: Work, plan: Plan, written: Written, found: Sequence[str]) -> None:
    """Record the partitions that a commit of the backfill was found to hold, and that commit. Safe to run again."""
    if found:
        work.ledger.move_partitions(work.backfill_id, found, PartitionState.PUBLISHED, by=work.by)
        record_receipts(work, plan, written.publishes)


_LANDED_LATE = "it was rolled back, and a commit of its publish came after that"
_GIVEN_UP = "given up while a publish still ran, whose commit happened"


_RECORDED = frozenset(
    {
        BackfillState.PUBLISHED,
        BackfillState.PUBLISHED_UNVERIFIED,
        BackfillState.COMPLETED,
        BackfillState.ROLLED_BACK,
    }
)


def way_back_has_ended(work: Work) -> bool:
    """Whether the backfill expired when its backup was dropped, and not because it was given up."""
    if work.ledger.backfill(work.backfill_id).state is not BackfillState.EXPIRED:
        return False
    return end_of_way_back(work.ledger.events(work.backfill_id, MOVED_EVENT)) is not None


def _record(work: Work, plan: Plan, written: Written) -> None:
    """Verify what was committed, and record it and whether it holds what was staged. Safe to run again."""
    wrong = unverified(work, plan, plan.partitions)
    reason = "; ".join(_reasons(work.ledger.backfill(work.backfill_id).state is BackfillState.EXPIRED, wrong))
    if reason:
        work.log.warning("Backfill %s: %s.", work.backfill_id, reason)
    work.ledger.move_partitions(work.backfill_id, plan.keys, PartitionState.PUBLISHED, by=work.by)
    record_receipts(work, plan, written.publishes)
    # One move, so that no worker can die between being told that the range is wrong and saying so.
    to = BackfillState.PUBLISHED_UNVERIFIED if wrong else BackfillState.PUBLISHED
    work.ledger.move(work.backfill_id, to, by=work.by, reason=reason)


def _reasons(given_up: bool, wrong: Sequence[str]) -> list[str]:
    """Why a commit that was found is not what its backfill is about now."""
    return [_GIVEN_UP] * given_up + [f"not as staged: {', '.join(wrong[:5])}"] * bool(wrong)


def record_receipts(work: Work, plan: Plan, receipts: Iterable[Receipt]) -> None:
    """Have each commit of the backfill in the audit trail, once."""
    known = {event.detail["sequence"] for event in work.ledger.events(work.backfill_id, RECEIPT_EVENT)}
    for receipt in receipts:
        if receipt.backfill_id == work.backfill_id and receipt.sequence not in known:
            detail = receipt_detail(receipt, mechanism_of(plan.spec.publish, receipt.action))
            work.ledger.record_event(work.backfill_id, RECEIPT_EVENT, by=work.by, detail=detail)


def unverified(work: Work, plan: Plan, partitions: Sequence[Partition]) -> tuple[str, ...]:
    """Those of the partitions whose published rows are not what is staged, or of which nothing is staged any more."""
    if not partitions:
        return ()
    records = work.ledger.partitions(work.backfill_id)
    found = work.warehouse.fingerprint(plan.target, Published(), partitions)
    marks = {one.key: fingerprint_on_record(records[one.key]) for one in partitions}
    return tuple(key for key, mark in marks.items() if mark is None or not same_rows(mark, found[key]))


def same_rows(expected: Fingerprint, found: Fingerprint) -> bool:
    """Whether two fingerprints are of the same rows; digests of two engine versions compare by row count alone."""
    if expected.method != found.method:
        return expected.rows == found.rows
    return expected == found


def refuse_unverified(work: Work, plan: Plan, wrong: tuple[str, ...]) -> None:
    """:raises PublishRefused: the range does not hold what was staged, though the commit happened."""
    if wrong:
        raise PublishRefused(
            f"The range was published, but {len(wrong)} partitions do not hold what was staged: {', '.join(wrong[:5])}. "
            f"Something else wrote to {plan.target.table}. Nothing was written again. To undo, trigger "
            f'rollback__{plan.spec.name} with {{"backfill_id": "{work.backfill_id}"}} (and "force": true, which keeps a copy '
            "of what it overwrites); or mend those rows and clear atomic_publish."
        )
