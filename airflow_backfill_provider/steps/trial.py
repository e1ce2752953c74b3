"""Trial: one partition is run twice, and published and rolled back on a copy, before the others are computed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

from airflow_backfill_provider.errors import TransitionRefused, TrialFailed
from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.approval import require_approval
from airflow_backfill_provider.steps.open_runs import ended_by_a_stop
from airflow_backfill_provider.steps.recompute import prove_range_scope
from airflow_backfill_provider.steps.rehearsal import rehearse
from airflow_backfill_provider.steps.repeatable import require_repeatable
from airflow_backfill_provider.steps.stage import reusable, stage_partitions
from airflow_backfill_provider.steps.tried import TRIAL_EVENT, Trial, trial_of
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import StagedPartition
from airflow_backfill_provider.windows import Partition

_WRITTEN = frozenset({PartitionState.PUBLISHED, PartitionState.ROLLED_BACK})


@dataclass(frozen=True)
class TrialResult:
    """What one call came to."""

    tried: bool
    """False when nothing had to be tried, for the reason in ``note``."""
    note: str


def try_partition(work: Work) -> TrialResult:
    """Show on one partition that a second run gives the same rows, and that the publish and its undo do what they say.

    Its staged rows are those that the backfill goes on with. What passed under this very plan is not tried again.

    :raises NotApproved: the plan waits for a person.
    :raises TrialFailed: it cannot be trusted; the partition is rejected, and the next attempt stages it again.
    :raises TransformRefused: ``scope: range`` gives other rows than partition by partition.
    :raises TargetMoved: the published partition is not what the plan saw.
    :raises Stopped: a stop signal is set; no run elsewhere of the partition is gone on with, nor of the control period, which is held next.
    """
    plan = work.stored_plan()
    with ended_by_a_stop(work, [one.key for one in (plan.trial_partition, *plan.spec.control_partitions)]):
        return _try_partition(work)


def _try_partition(work: Work) -> TrialResult:
    work.stop_or_go()
    plan = work.plan()
    if not plan.spec.trial.enabled:
        return TrialResult(False, "trial.enabled is false; nothing was tried")
    if (passed := trial_of(work.ledger, plan)) is not None:
        return TrialResult(False, f"passed before: {passed}")
    counts = work.ledger.counts(work.backfill_id)
    if any(counts[state] for state in _WRITTEN):
        return TrialResult(False, "partitions are published already; nothing was tried")
    require_approval(work, plan, Gate.PLAN)
    work.run()
    partition = plan.trial_partition
    staged = _staged(work, plan, partition)
    plan = work.plan().as_read([partition])
    try:
        require_repeatable(work, plan, staged)
        if plan.spec.transform.scope == "range":
            work.stop_or_go()
            prove_range_scope(work, plan, plan.partitions, around=partition)
        work.stop_or_go()
        rehearsal = rehearse(work, plan, staged)
        trial = Trial(
            work.plan().plan_hash, partition.key, staged.fingerprint.rows, rehearsal, _rest(work, plan, staged)
        )
    except TrialFailed as error:
        with suppress(TransitionRefused):  # another attempt took the partition over meanwhile
            reason = f"the trial failed: {str(error).partition('. ')[0]}"
            work.ledger.move_partitions(
                work.backfill_id, [partition.key], PartitionState.REJECTED, by=work.by, reason=reason
            )
        raise
    work.ledger.record_event(work.backfill_id, TRIAL_EVENT, by=work.by, detail=asdict(trial))
    return TrialResult(True, str(trial))


def _rest(work: Work, plan: Plan, staged: StagedPartition) -> float | None:
    """How long the others take at the pace of this one, row by row; or, where rows are not known, each as long as it."""
    key, rows = staged.partition.key, staged.fingerprint.rows
    seconds = work.ledger.partitions(work.backfill_id, [key])[key].seconds
    others = len(plan.keys) - 1
    if seconds is None or not others:
        return None
    expected = plan.expected_rows_of([other for other in plan.keys if other != key])
    return round(seconds * (expected / rows if rows and expected else others) / plan.spec.compute.max_concurrency, 3)


def _staged(work: Work, plan: Plan, partition: Partition) -> StagedPartition:
    """Its staged rows: those of an earlier attempt that nobody judged yet and that are still right, or new ones."""
    records = work.ledger.partitions(work.backfill_id, [partition.key])
    is_staged = records[partition.key].state is PartitionState.STAGED
    if not (is_staged and reusable(work, plan, [partition], records)):
        stage_partitions(work, plan, [partition])
        records = work.ledger.partitions(work.backfill_id, [partition.key])
    return staged_partition(partition, records[partition.key])
