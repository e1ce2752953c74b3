"""A drill from its plan to its end, in one process."""

from __future__ import annotations

from airflow_backfill_provider.batches import Batch
from airflow_backfill_provider.errors import (
    BackfillError,
    NotApproved,
    RequestError,
    Stopped,
    Throttled,
    ValidationFailed,
)
from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.steps.control_period import hold_control
from airflow_backfill_provider.steps.drill import DrillEnd, end_drill
from airflow_backfill_provider.steps.gates import DRILLED_UNASKED, is_needed
from airflow_backfill_provider.steps.scope import Run, Scoped, scope
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.trial import try_partition
from airflow_backfill_provider.steps.validate import validate_batch, validate_range
from airflow_backfill_provider.steps.work import Work


def drill(work: Work, request: Request, run: Run) -> DrillEnd:
    """Plan, try, stage, damage and validate, as the tasks of a run do one after the other; clean up whatever happened.

    :raises RequestError: there is no partition to drill with.
    :raises RangeLocked: another drill of the range goes on.
    :raises NotApproved: it is so large that its plan needs an approval, for which nobody can be asked here.
    :raises Stopped: a stop signal is set.
    :raises Throttled: others need the warehouse; nobody waits here, so this drill is over.
    """
    scoped = scope(work, request, run)
    if not scoped.batches:
        raise RequestError("No partition of the range is over, so there is none to drill with. Name another range.")
    try:
        _refuse_unapproved(scoped)
        try_partition(work)
        hold_control(work)
        for batch in scoped.batches:
            stage_batch(work, batch.keys)
        # Each batch is a task of its own in a run, so one that fails keeps no other from being judged.
        failed = [error for batch in scoped.batches if (error := _judged(work, batch)) is not None]
        if not failed:
            validate_range(work)
    except (NotApproved, Stopped, Throttled):
        raise
    except BackfillError as error:
        work.log.info("The drill stopped here: %s", error)
    finally:
        end = end_drill(work, scoped.plan)
    return end


def _refuse_unapproved(scoped: Scoped) -> None:
    if is_needed(scoped.plan, Gate.PLAN):
        spec = scoped.plan.spec
        raise NotApproved(
            f"A drill of {len(scoped.plan.keys):,} partitions needs an approval (approval.required is {spec.approval.rule}), "
            f"and nobody can be asked here. Nothing was computed. Name at most {DRILLED_UNASKED} partitions, or trigger the "
            f"DAG backfill__{spec.name} with drill: true, which asks."
        )


def _judged(work: Work, batch: Batch) -> ValidationFailed | None:
    try:
        validate_batch(work, batch.keys)
    except ValidationFailed as error:
        work.log.info("Rejected: %s", error)
        return error
    return None
