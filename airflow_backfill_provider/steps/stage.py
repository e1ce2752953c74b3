"""Stage: recompute partitions where no consumer reads, reusing what is already staged under the same intent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from airflow_backfill_provider.errors import BackfillError, ConnectionLost, LockTimeout, Stopped, WarehouseError
from airflow_backfill_provider.ledger.records import FinishedStage, PartitionRecord
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.transform import prepare
from airflow_backfill_provider.warehouses.base import Staged, StagedPartition
from airflow_backfill_provider.windows import Partition

_STAGED = frozenset({PartitionState.STAGED, PartitionState.VALIDATED})
_DONE = frozenset({PartitionState.PUBLISHED, PartitionState.ROLLED_BACK, PartitionState.SKIPPED})


@dataclass(frozen=True)
class StageResult:
    """What one batch came to."""

    staged: int
    reused: int
    rows: int


def stage_batch(work: Work, keys: Sequence[str]) -> StageResult:
    """Stage every partition of a batch that is not staged yet; a failing one does not lose its mates' work.

    The stop signal is heeded before each partition.

    :raises WarehouseError: at least one partition failed; the message names each with its error.
    :raises Stopped: a stop signal is set; what was staged stays.
    """
    work.stop_or_go()
    plan = work.plan()
    partitions = plan.select(keys)
    records = work.ledger.partitions(work.backfill_id, keys)
    kept = reusable(work, plan, partitions, records)
    pending = [partition for partition in partitions if partition.key not in kept]
    rows = sum(records[key].rows or 0 for key in kept)
    if pending:
        work.run()
        rows += stage_partitions(work, plan, pending)
    return StageResult(staged=len(pending), reused=len(partitions) - len(pending), rows=rows)


def stage_partitions(work: Work, plan: Plan, partitions: Sequence[Partition]) -> int:
    """Stage these partitions in a new batch attempt; the rows staged. See :func:`stage_batch`."""
    failures: dict[str, BackfillError] = {}
    keys = [partition.key for partition in partitions]
    attempts = work.ledger.start_staging(work.backfill_id, keys, owner=work.by, intent=plan.intent_hash)
    with (
        work.warehouse.open_stage(plan.target, work.backfill_id, partitions[0].label) as writer,
        _Record(work, attempts) as record,
    ):
        for partition in partitions:
            work.stop_or_go()
            try:
                staged = writer.write(partition, prepare(plan.spec, partition, plan.dialect))
            except (Stopped, ConnectionLost, LockTimeout):
                raise
            except BackfillError as error:
                work.log.error("Partition %s failed: %s", partition.key, error)
                failures[partition.key] = error
            else:
                record.add(staged)
    if failures:
        raise WarehouseError(
            f"{len(failures)} of {len(partitions)} partitions could not be staged; the others are. "
            + " ".join(f"{key}: {error}" for key, error in failures.items())
            + " Mend the cause and clear this task; finished partitions are reused."
        ) from next(iter(failures.values()))
    return record.rows


class _Record:
    """Tells the ledger what was staged, a few partitions in one transaction.

    Fast partitions would otherwise spend more time on the ledger than on their rows. What a killed worker had not told
    it yet, at most ``SECONDS`` of work, is staged again.
    """

    SECONDS = 0.25

    def __init__(self, work: Work, attempts: Mapping[str, int]) -> None:
        self._work, self._attempts = work, attempts
        self._stages: list[FinishedStage] = []
        self._told_at = self._added_at = time.monotonic()
        self.rows = 0

    def add(self, staged: StagedPartition) -> None:
        now = time.monotonic()
        key, mark = staged.partition.key, staged.fingerprint
        self._stages.append(
            FinishedStage(
                key=key,
                attempt=self._attempts[key],
                location=staged.location,
                rows=mark.rows,
                digest=mark.digest,
                method=mark.method,
                seconds=round(now - self._added_at, 3),
            )
        )
        self._added_at = now
        self.rows += mark.rows
        if now - self._told_at >= self.SECONDS:
            self._tell()

    def _tell(self) -> None:
        stages, self._stages = self._stages, []
        if stages:
            self._work.ledger.finish_staging(self._work.backfill_id, stages, by=self._work.by)
            self._work.log.info("Staged %s.", ", ".join(f"{stage.key} ({stage.rows} rows)" for stage in stages))
        self._told_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell()


def reusable(
    work: Work, plan: Plan, partitions: Sequence[Partition], records: Mapping[str, PartitionRecord]
) -> set[str]:
    """Keys whose work stands as it is: published, or staged under the same intent, still there, same fingerprint."""
    candidates = [
        staged_partition(partition, records[partition.key])
        for partition in partitions
        if records[partition.key].state in _STAGED and records[partition.key].staged_intent == plan.intent_hash
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
    except (ConnectionLost, LockTimeout):
        raise
    except WarehouseError as error:
        if len(candidates) == 1:
            work.log.warning("The stage of %s is gone (%s); staging it again.", partitions[0].key, error)
            return set()
        return set().union(*(_intact(work, plan, [staged]) for staged in candidates))
    return {staged.partition.key for staged in candidates if found[staged.partition.key] == staged.fingerprint}
