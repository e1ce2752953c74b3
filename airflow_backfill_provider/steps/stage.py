"""Stage: recompute partitions where no consumer reads, reusing what is already staged under the same intent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_backfill_provider.errors import (
    TRANSIENT,
    BackfillError,
    CodeFailed,
    Stopped,
    StrayWrite,
    TargetMoved,
    WarehouseError,
)
from airflow_backfill_provider.ledger.records import FinishedStage, Gate, PartitionRecord
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.approval import require_approval
from airflow_backfill_provider.steps.budget import Budgets
from airflow_backfill_provider.steps.failing import failing_together, has_failed, record_failure, require_no_failure
from airflow_backfill_provider.steps.left_behind import left_behind, take_over, telling
from airflow_backfill_provider.steps.live import take_live, unclaimed
from airflow_backfill_provider.steps.metrics import OUTCOMES, STAGED_ROWS, STAGED_SECONDS
from airflow_backfill_provider.steps.open_runs import ended_by_a_stop
from airflow_backfill_provider.steps.recompute import after, one_by_one, prove_range_scope, together, write
from airflow_backfill_provider.steps.source import require_pinned_sources
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import Recompute, Staged, StagedPartition, StageWriter
from airflow_backfill_provider.windows import Partition

_STAGED = frozenset({PartitionState.STAGED, PartitionState.VALIDATED})
_MADE = _STAGED | {PartitionState.REJECTED}
_DONE = frozenset({PartitionState.PUBLISHED, PartitionState.ROLLED_BACK, PartitionState.SKIPPED})

Recomputes = Callable[[Plan, Sequence[Partition]], Sequence[Recompute]]
"""From a group of partitions to the runs that recompute it."""


@dataclass(frozen=True)
class StageResult:
    """What one batch came to."""

    staged: int
    reused: int
    rows: int


def stage_batch(work: Work, keys: Sequence[str]) -> StageResult:
    """Stage every partition of a batch that is not staged yet; a failing one does not lose what its mates have staged.

    The stop signal is heeded before each group of partitions, which is one, or half a second of fast ones.

    :raises NotApproved: the plan, or its trial, waits for a person.
    :raises HeldBack: a partition failed, here or in another task, and no other may begin.
    :raises WarehouseError: at least one partition failed; the message names each with its error.
    :raises CodeFailed: the same, where code of the team's own raised for every one that did.
    :raises StrayWrite: code of the team's own wrote to what is published.
    :raises Stopped: a stop signal is set, or a budget is used up; what was staged stays, and no run elsewhere of these
        partitions is gone on with.
    """
    with ended_by_a_stop(work, keys):
        return _stage_batch(work, keys)


def _stage_batch(work: Work, keys: Sequence[str]) -> StageResult:
    work.stop_or_go()
    plan = work.plan()
    partitions = plan.select(keys)
    records = work.ledger.partitions(work.backfill_id, keys)
    kept = reusable(work, plan, partitions, records)
    pending = with_what_follows(plan, [one for one in partitions if one.key not in kept], records)
    rows = sum(records[one.key].rows or 0 for one in partitions if one not in pending)
    if pending:
        require_approval(work, plan, Gate.PLAN, Gate.REVIEW)
        require_no_failure(work, plan)
        Budgets(work).require()
        work.run()
        with failing_together(work, [one.key for one in pending]):
            rows += stage_partitions(work, plan, pending)
    elif any(record.state not in _DONE for record in records.values()):
        # The stop of the task that staged the last partition must not be cleared away.
        Budgets(work).require_amounts()
    return StageResult(staged=len(pending), reused=len(partitions) - len(pending), rows=rows)


def with_what_follows(
    plan: Plan, partitions: Sequence[Partition], records: Mapping[str, PartitionRecord]
) -> list[Partition]:
    """The partitions, and with ``depends_on_past`` every one after the first of them, which is made from it."""
    if not (plan.spec.transform.is_chained and partitions):
        return list(partitions)
    first = plan.partitions.index(partitions[0])
    return [one for one in plan.partitions[first:] if records[one.key].state not in _DONE]


def stage_partitions(work: Work, plan: Plan, partitions: Sequence[Partition]) -> int:
    """Stage these partitions in a new batch attempt; the rows staged. See :func:`stage_batch`.

    Of live ones the plan's facts are read anew: ask for the plan again afterwards.

    :raises LockTimeout: a live one is being written, see :func:`take_live`.
    :raises VersionGone: a version of a source, which the plan pinned, cannot be read any more; nothing was touched.
    """
    plan = take_live(work, plan, partitions)
    require_pinned_sources(work, plan)
    keys = [partition.key for partition in partitions]
    chained = plan.spec.transform.is_chained
    if chained:
        _forget_later(work, plan, partitions)
    past = _before(work, plan, partitions[0]) if chained else []
    in_range = plan.spec.transform.scope == "range" and prove_range_scope(work, plan, partitions)
    # What an earlier attempt's statement read is not what a link of a chain, or a live partition, is made from by now.
    may_take_over = not chained and set(plan.live).isdisjoint(partitions)
    running = left_behind(work, plan, partitions) if may_take_over else []
    attempts = work.ledger.start_staging(work.backfill_id, keys, owner=work.by, intent=plan.intent_hash)
    tell = telling(work, attempts)
    recomputes: Recomputes = together if in_range else one_by_one
    if chained:
        recomputes = lambda plan, group: [after(plan, group[0], past)]  # noqa: E731
    with work.warehouse.open_stage(plan.target, work.backfill_id, partitions[0].label, tell) as writer:
        batch = _Batch(work, plan, writer, attempts, recomputes, past if chained else None)
        for statement in running:
            started = time.monotonic()
            batch.keep(take_over(work, plan, partitions, statement, tell), started)
        missing = [partition for partition in partitions if partition.key not in batch.staged]
        groups: Iterable[Sequence[Partition]] = [missing] if in_range and missing else _groups(missing)
        if chained:
            groups = [[partition] for partition in missing]
        for group in groups:
            batch.stage(group)
    batch.budgets.require_amounts()
    if batch.failures:
        others = f"{len(batch.staged)} others are" + (f", {left} were not begun" if (left := batch.left_out) else "")
        # What only code said no to may be gone when the task is tried again.
        all_of_code = all(isinstance(error, CodeFailed) for error in batch.failures.values())
        raise (CodeFailed if all_of_code else WarehouseError)(
            f"{len(batch.failures)} of {len(partitions)} partitions could not be staged; {others}. "
            + " ".join(f"{key}: {error}" for key, error in batch.failures.items())
            + " Mend the cause and clear this task; finished partitions are reused."
        ) from next(iter(batch.failures.values()))
    return batch.rows


class _Batch:
    """One batch attempt: writes groups of partitions and tells the ledger of each group that was committed."""

    def __init__(
        self,
        work: Work,
        plan: Plan,
        writer: StageWriter,
        attempts: Mapping[str, int],
        recomputes: Recomputes,
        past: list[StagedPartition] | None = None,
    ) -> None:
        """``past``, where partitions are made from those before them, gets each that is staged; a failure ends it then."""
        self._work, self._plan, self._writer, self._attempts = work, plan, writer, attempts
        self._recomputes, self._past = recomputes, past
        self.budgets = Budgets(work)
        self.failures: dict[str, BackfillError] = {}
        self.rows = 0
        self.staged: set[str] = set()
        self.left_out = 0
        self._is_over = False

    def stage(self, group: Sequence[Partition]) -> None:
        """Stage a group in one commit; when it fails, its halves, so that only what is faulty is left out."""
        work = self._work
        work.stop_or_go()
        if self._is_over:
            self.left_out += len(group)
            return
        require_no_failure(work, self._plan)
        self.budgets.require()
        started = time.monotonic()
        try:
            staged = write(work, self._plan, self._writer, self._recomputes(self._plan, group))
        except (Stopped, *TRANSIENT, StrayWrite, TargetMoved):
            raise
        except BackfillError as error:
            if len(group) > 1:
                middle = len(group) // 2
                self.stage(group[:middle])
                self.stage(group[middle:])
                return
            work.log.error("Partition %s failed: %s", group[0].key, error)
            self.failures[group[0].key] = error
            if has_failed(work, error):
                record_failure(work, [group[0].key], str(error))
            self._is_over = self._past is not None or self._plan.spec.compute.fail_fast
            work.metrics.count(OUTCOMES, outcome="failed")
            return
        self.keep(staged, started)

    def keep(self, staged: Sequence[StagedPartition], started: float) -> None:
        """Tell the ledger of these, which were begun at that time of the monotonic clock."""
        if not staged:
            return
        work = self._work
        seconds = round((time.monotonic() - started) / len(staged), 3)
        work.ledger.finish_staging(
            work.backfill_id, [self._finished(partition, seconds) for partition in staged], by=work.by
        )
        for partition in staged:
            work.metrics.duration(STAGED_SECONDS, seconds)
            work.metrics.count(STAGED_ROWS, partition.fingerprint.rows)
        work.metrics.count(OUTCOMES, len(staged), outcome="staged")
        self.rows += sum(partition.fingerprint.rows for partition in staged)
        self.staged.update(partition.partition.key for partition in staged)
        if self._past is not None:
            self._past += staged
        work.log.info("Staged %s.", ", ".join(f"{one.partition.key} ({one.fingerprint.rows} rows)" for one in staged))

    def _finished(self, staged: StagedPartition, seconds: float) -> FinishedStage:
        key, mark = staged.partition.key, staged.fingerprint
        return FinishedStage(
            key=key,
            attempt=self._attempts[key],
            location=staged.location,
            rows=mark.rows,
            digest=mark.digest,
            method=mark.method,
            seconds=seconds,
        )


def _forget_later(work: Work, plan: Plan, partitions: Sequence[Partition]) -> None:
    """What is staged after the first of these was made from it, and is not right any more once that is staged again."""
    records = work.ledger.partitions(work.backfill_id)
    later = plan.partitions[plan.partitions.index(partitions[0]) + 1 :]
    keys = [one.key for one in later if one not in partitions and records[one.key].state in _MADE]
    if keys:
        reason = f"{partitions[0].key}, which it is made from, is staged again"
        work.ledger.move_partitions(work.backfill_id, keys, PartitionState.PENDING, by=work.by, reason=reason)


def _before(work: Work, plan: Plan, first: Partition) -> list[StagedPartition]:
    """The staged rows of the partitions before this one; those that are published are in the table already."""
    records = work.ledger.partitions(work.backfill_id)
    earlier = plan.partitions[: plan.partitions.index(first)]
    return [staged_partition(one, records[one.key]) for one in earlier if records[one.key].state not in _DONE]


_GROUP_SECONDS = 0.5
"""How long a group of fast partitions may take: what a stop waits for, and what a killed worker does again."""
_GROWTH = 4


def _groups(partitions: Sequence[Partition]) -> Iterator[Sequence[Partition]]:
    """The partitions in order, as many at a time as the last group's pace lets into :data:`_GROUP_SECONDS`.

    Fast partitions would otherwise spend more time on commits and on the ledger than on their rows.
    """
    first, size = 0, 1
    while first < len(partitions):
        group = partitions[first : first + size]
        started = time.monotonic()
        yield group
        pace = (time.monotonic() - started) / len(group)
        first += size
        size = max(1, min(_GROWTH * size, int(_GROUP_SECONDS / pace)))


def reusable(
    work: Work, plan: Plan, partitions: Sequence[Partition], records: Mapping[str, PartitionRecord]
) -> set[str]:
    """Keys whose work stands as it is: published, or staged under the same intent, still there, same fingerprint."""
    let_go = unclaimed(work, plan, partitions)
    candidates = [
        staged_partition(partition, records[partition.key])
        for partition in partitions
        if records[partition.key].state in _STAGED
        and records[partition.key].staged_intent == plan.intent_hash
        and partition not in let_go
    ]
    kept = {partition.key for partition in partitions if records[partition.key].state in _DONE}
    if candidates:
        kept |= _intact(work, plan, candidates)
    return kept


def _intact(work: Work, plan: Plan, candidates: Sequence[StagedPartition]) -> set[str]:
    """Keys of stages that are still what they were; one statement when all of them are there."""
    partitions = tuple(staged.partition for staged in candidates)
    try:
        found = work.warehouse.fingerprint(plan.target, Staged(tuple(candidates)), partitions)
    except TRANSIENT:
        raise
    except WarehouseError as error:
        if len(candidates) == 1:
            work.log.warning("The stage of %s is gone (%s); staging it again.", partitions[0].key, error)
            return set()
        return set().union(*(_intact(work, plan, [staged]) for staged in candidates))
    return {staged.partition.key for staged in candidates if found[staged.partition.key] == staged.fingerprint}
