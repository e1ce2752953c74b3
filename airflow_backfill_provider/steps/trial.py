"""Trial: one partition is run twice, and published and rolled back on a copy, before the others are computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.errors import TransitionRefused, TrialFailed
from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.recompute import prove_range_scope
from airflow_backfill_provider.steps.rehearsal import Rehearsal, rehearse
from airflow_backfill_provider.steps.repeatable import require_repeatable
from airflow_backfill_provider.steps.stage import reusable, stage_partitions
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import StagedPartition
from airflow_backfill_provider.windows import Partition

TRIAL_EVENT = "trial_passed"
_WRITTEN = frozenset({PartitionState.PUBLISHED, PartitionState.ROLLED_BACK})


@dataclass(frozen=True)
class Trial:
    """What the trial of one plan found."""

    plan_hash: str
    partition: str
    rows: int
    """Staged rows of the partition."""
    rehearsal: Rehearsal

    def __str__(self) -> str:
        return f"{self.partition} computed twice alike; {self.rehearsal}"


@dataclass(frozen=True)
class TrialResult:
    """What one call came to."""

    tried: bool
    """False when nothing had to be tried, for the reason in ``note``."""
    note: str


def try_partition(work: Work) -> TrialResult:
    """Show on one partition that a second run gives the same rows, and that the publish and its undo do what they say.

    Its staged rows are those that the backfill goes on with. What passed under this very plan is not tried again.

    :raises TrialFailed: it cannot be trusted; the partition is rejected, and the next attempt stages it again.
    :raises TransformRefused: ``scope: range`` gives other rows than partition by partition.
    :raises TargetMoved: the published partition is not what the plan saw.
    """
    work.stop_or_go()
    plan = work.plan()
    if not plan.spec.trial.enabled:
        return TrialResult(False, "trial.enabled is false; nothing was tried")
    if (passed := trial_of(work.ledger, plan)) is not None:
        return TrialResult(False, f"passed before: {passed}")
    counts = work.ledger.counts(work.backfill_id)
    if any(counts[state] for state in _WRITTEN):
        return TrialResult(False, "partitions are published already; nothing was tried")
    work.run()
    partition = plan.trial_partition
    staged = _staged(work, plan, partition)
    try:
        require_repeatable(work, plan, staged)
        if plan.spec.transform.scope == "range":
            work.stop_or_go()
            prove_range_scope(work, plan, plan.partitions, around=partition)
        work.stop_or_go()
        trial = Trial(plan.plan_hash, partition.key, staged.fingerprint.rows, rehearse(work, plan, staged))
    except TrialFailed as error:
        with suppress(TransitionRefused):  # another attempt took the partition over meanwhile
            reason = f"the trial failed: {str(error).partition('. ')[0]}"
            work.ledger.move_partitions(
                work.backfill_id, [partition.key], PartitionState.REJECTED, by=work.by, reason=reason
            )
        raise
    work.ledger.record_event(work.backfill_id, TRIAL_EVENT, by=work.by, detail=asdict(trial))
    return TrialResult(True, str(trial))


def trial_of(ledger: Ledger, plan: Plan) -> Trial | None:
    """The trial that passed under this very plan; None when none did."""
    return passed_in(ledger.events(plan.backfill_id, TRIAL_EVENT), plan)


def passed_in(events: Sequence[EventRecord], plan: Plan) -> Trial | None:
    """The same from events that were read already, oldest first."""
    for event in reversed(events):
        if event.action == TRIAL_EVENT and event.detail.get("plan_hash") == plan.plan_hash:
            detail: dict[str, Any] = dict(event.detail)
            rehearsal: dict[str, Any] = dict(detail.pop("rehearsal"))
            beside = tuple(rehearsal.pop("neighbours"))
            return Trial(**detail, rehearsal=Rehearsal(beside, **rehearsal))
    return None


def _staged(work: Work, plan: Plan, partition: Partition) -> StagedPartition:
    """Its staged rows: those of an earlier attempt that nobody judged yet and that are still right, or new ones."""
    records = work.ledger.partitions(work.backfill_id, [partition.key])
    is_staged = records[partition.key].state is PartitionState.STAGED
    if not (is_staged and reusable(work, plan, [partition], records)):
        stage_partitions(work, plan, [partition])
        records = work.ledger.partitions(work.backfill_id, [partition.key])
    return staged_partition(partition, records[partition.key])
