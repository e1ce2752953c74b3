"""Restore: put the rows of a backup in the place of what the range holds, unit by unit, each in one commit with its receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from airflow_backfill_provider.errors import (
    TRANSIENT,
    BackfillError,
    ConnectionLost,
    PublishRefused,
    RequestError,
)
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.locked import locked_words, record_lock
from airflow_backfill_provider.steps.mechanism import Change
from airflow_backfill_provider.steps.receipts import longest_write_block
from airflow_backfill_provider.steps.settle import record_receipts, same_rows
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Publication, Published, Receipt
from airflow_backfill_provider.windows import Partition, merge

Marks = Mapping[str, Fingerprint]


@dataclass(frozen=True)
class RollbackResult:
    """What was restored."""

    restored: bool
    """False when the range was restored before."""
    partitions: int
    deleted: int
    inserted: int
    note: str = ""
    write_block_seconds: float | None = None
    """How long nobody else could write the table, in the longest commit of this call; None where nobody was kept out."""


@dataclass(frozen=True)
class Restoration:
    """What is put where, and how."""

    action: Action
    backup: Backup
    after: Marks
    """What the backup holds, by partition key."""
    partitions: Sequence[Partition]
    change: Change
    keys_may_repeat: bool
    again: str
    """The command that goes on with it, should it break."""


@dataclass
class WayBack:
    """A way back that is gone."""

    writes: bool = False
    """Whether it has come to where something of it may be committed."""


def require_own(work: Work) -> None:
    """:raises RequestError: the backfill is of another spec than the DAG."""
    name = work.ledger.backfill(work.backfill_id).name
    if name != work.spec.name:
        raise RequestError(
            f"Backfill {work.backfill_id} is of {name}: trigger rollback__{name}, not rollback__{work.spec.name}."
        )


@contextmanager
def way_back(work: Work, plan: Plan, *, publish_is_dead: bool = False) -> Iterator[WayBack]:
    """Hold the plan's range until what happens inside is over, and keep its publish out. Whoever looks at the range first looks
    inside.

    When it breaks, the range is given back only if this call was the one that took it, and the table shows that nothing was
    put back since: a range of which some units are restored and others are not is nobody else's.

    :param publish_is_dead: a publish that is recorded as under way was cut off.
    :raises RangeLocked: another backfill, or a live run, owns part of the range; nothing was written.
    :raises PublishRefused: it publishes, and that is not known to be dead; likewise.
    """
    before = commits_back(work, plan)
    begun = work.ledger.begin_way_back(
        work.backfill_id, merge(plan.partitions), by=work.by, publish_is_dead=publish_is_dead
    )
    way = WayBack()
    try:
        yield way
    except BaseException as error:
        # What a connection was lost over may still be committed, once something was to be.
        is_open = way.writes and isinstance(error, ConnectionLost)
        if begun and not is_open and _wrote_nothing(work, plan, before):
            work.ledger.end_way_back(work.backfill_id, by=work.by)
        raise
    work.ledger.end_way_back(work.backfill_id, by=work.by)


def commits_back(work: Work, plan: Plan) -> frozenset[int]:
    """The sequences of the commits that put something back for this backfill, or brought back what that overwrote."""
    receipts = work.warehouse.receipts(plan.target)
    return frozenset(
        one.sequence for one in receipts if one.backfill_id == work.backfill_id and one.action is not Action.PUBLISH
    )


def _wrote_nothing(work: Work, plan: Plan, before: frozenset[int]) -> bool:
    try:
        return commits_back(work, plan) <= before
    except BackfillError as error:
        work.log.warning(
            "%s keeps its range: whether anything was put back cannot be read (%s).", work.backfill_id, error
        )
        return False


def restore(work: Work, plan: Plan, restoration: Restoration, before: Marks, way: WayBack) -> RollbackResult:
    """Restore, and show that the range holds what the backup does; the caller records it.

    :param way: the :func:`way_back` that the caller holds.
    :param before: what the range holds now.
    :raises PublishRefused: the range is not what ``before`` says, or not what was restored.
    """
    receipts: list[Receipt] = []
    # In the opposite order, so that what is mixed on the way is what was mixed on the way there.
    for unit in reversed(_units(plan, restoration.partitions)):
        publication = Publication(
            backfill_id=work.backfill_id,
            action=restoration.action,
            plan_hash=plan.plan_hash,
            partitions=unit,
            rows=restoration.backup,
            before={partition.key: before[partition.key] for partition in unit},
            after={partition.key: restoration.after[partition.key] for partition in unit},
            confirm=partial(require_held, work, restoration.again),
            keys_may_repeat=restoration.keys_may_repeat,
        )
        way.writes = True
        receipt = restoration.change(plan.target, publication)
        receipts.append(receipt)
        record_receipts(work, plan, [receipt])
        record_lock(work, receipt)
    require_restored(work, plan, restoration.partitions, restoration.after, restoration.again)
    return RollbackResult(
        True,
        len(restoration.partitions),
        deleted=sum(receipt.deleted for receipt in receipts),
        inserted=sum(receipt.inserted for receipt in receipts),
        note=("restored in one commit" if len(receipts) == 1 else f"restored in {len(receipts)} commits")
        + "".join(locked_words(one.locked_for.total_seconds()) for one in receipts if one.locked_for is not None),
        write_block_seconds=longest_write_block(receipts),
    )


def require_held(work: Work, again: str) -> None:
    """:raises PublishRefused: another attempt, or a person, ended the way back, and with it the hold on the range."""
    if not work.ledger.is_on_way_back(work.backfill_id):
        raise PublishRefused(
            f"The way back of backfill {work.backfill_id} was ended meanwhile, by another attempt or by `abandon`. Nothing more was written. "
            f"Once more looks what is left to do: {again}"
        )


def require_backup(work: Work, plan: Plan, backup: Backup, partitions: Sequence[Partition], marks: Marks) -> Marks:
    """The backup's fingerprints by this engine's version; says that it is gone or changed before anything is touched.

    :raises PublishRefused: it is; nothing was written.
    """
    try:
        found = work.warehouse.fingerprint(plan.target, backup, partitions)
    except TRANSIENT:
        raise  # which says nothing of the backup
    except BackfillError as error:
        raise PublishRefused(
            f"The backup {backup.location} of {work.backfill_id} cannot be read: {error} Nothing was written."
        ) from error
    if found.keys() != marks.keys() or not all(same_rows(mark, found[key]) for key, mark in marks.items()):
        raise PublishRefused(f"The backup {backup.location} is not what was backed up. Nothing was written.")
    return found


def require_restored(work: Work, plan: Plan, restored: Sequence[Partition], marks: Marks, again: str) -> None:
    """See that the partitions hold what was restored.

    :param again: the command that looks once more.
    :raises PublishRefused: a partition does not hold what was restored.
    """
    found = work.warehouse.fingerprint(plan.target, Published(), restored)
    wrong = [key for key, mark in found.items() if not same_rows(marks[key], mark)]
    if wrong:
        raise PublishRefused(
            f"The range was restored, but {', '.join(wrong[:5])} does not equal the backup: something else wrote to "
            f"{plan.target.table} since. Nothing was written again. Mend those rows, then let it look once more: {again}"
        )


def _units(plan: Plan, restored: Sequence[Partition]) -> list[tuple[Partition, ...]]:
    """The plan's units, without what is not restored."""
    chosen = set(restored)
    units = [tuple(partition for partition in unit if partition in chosen) for unit in plan.units()]
    return [unit for unit in units if unit]
