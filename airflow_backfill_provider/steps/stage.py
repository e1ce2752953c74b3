"""Stage: recompute partitions where no consumer reads, reusing what is already staged under the same intent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_backfill_provider.errors import BackfillError, ConnectionLost, LockTimeout, Stopped, WarehouseError
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.transform import prepare
from airflow_backfill_provider.warehouses.base import Staged, StagedPartition, StageWriter
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
    rows = 0
    with work.warehouse.open_stage(plan.target, work.backfill_id, partitions[0].key) as writer:
        for partition in partitions:
            work.stop_or_go()
            try:
                rows += _stage(work, plan, partition, writer)
            except (Stopped, ConnectionLost, LockTimeout):
                raise
            except BackfillError as error:
                work.log.error("Partition %s failed: %s", partition.key, error)
                failures[partition.key] = error
    if failures:
        raise WarehouseError(
            f"{len(failures)} of {len(partitions)} partitions could not be staged; the others are. "
            + " ".join(f"{key}: {error}" for key, error in failures.items())
            + " Mend the cause and clear this task; finished partitions are reused."
        ) from next(iter(failures.values()))
    return rows


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


def _stage(work: Work, plan: Plan, partition: Partition, writer: StageWriter) -> int:
    started = time.monotonic()
    attempt = work.ledger.start_staging(work.backfill_id, partition.key, owner=work.by, intent=plan.intent_hash)
    select = prepare(plan.spec, partition, plan.dialect)
    staged = writer.write(partition, select)
    work.ledger.finish_staging(
        work.backfill_id,
        partition.key,
        attempt=attempt,
        location=staged.location,
        rows=staged.fingerprint.rows,
        digest=staged.fingerprint.digest,
        method=staged.fingerprint.method,
        seconds=time.monotonic() - started,
        by=work.by,
    )
    work.log.info("Staged %s: %s rows.", partition.key, staged.fingerprint.rows)
    return staged.fingerprint.rows
