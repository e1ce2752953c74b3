"""Live partitions: claimed from the scheduled pipeline, and read anew, only just before they are staged.

Until then runs of that pipeline go on writing them; from then until the publish those that hold a guard wait. What such a run
wrote before is in the source, so it is recomputed; what it writes afterwards lands in the published rows. Neither is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow_backfill_provider.affected import count_affected
from airflow_backfill_provider.cutoff import arrived_by
from airflow_backfill_provider.errors import LockTimeout, RangeLocked
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import LiveReading, Plan
from airflow_backfill_provider.source_reading import SourceReading, latest_versions
from airflow_backfill_provider.steps.guard import ask_again
from airflow_backfill_provider.steps.stored import LIVE_EVENT
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Published
from airflow_backfill_provider.windows import Partition, merge

PATIENCE = timedelta(seconds=30)
"""How long a task waits for a live run to end before it fails and is tried again."""


def take_live(work: Work, plan: Plan, partitions: Sequence[Partition]) -> Plan:
    """Claim those of the partitions that are live and read what they are now; the plan as it reads these partitions.

    Nothing happens, and the plan is as it was, when none of them is live.

    :raises LockTimeout: a live run, or another backfill, still owns part of them after :data:`PATIENCE`.
    """
    live = [partition for partition in plan.live if partition in partitions]
    if not live:
        return plan
    # What they were staged as rests on an earlier reading, and is not taken for staged from this one if the worker dies here.
    work.ledger.move_partitions(
        work.backfill_id, [one.key for one in live], PartitionState.PENDING, by=work.by, reason="it is read anew"
    )
    try:
        ask_again(lambda: _claim(work, plan, live), patience=PATIENCE)
    except RangeLocked as locked:
        raise LockTimeout(str(locked)) from locked
    versions = latest_versions(plan.spec, work.warehouse, plan.eras)
    arrived = arrived_by(plan.spec.source, work.warehouse, work.now())
    source = SourceReading(plan.spec, work.warehouse, plan.target, arrived, versions)
    reading = LiveReading(
        baseline=work.warehouse.fingerprint(plan.target, Published(), live),
        source_rows=source.rows(live),
        source_newest=source.newest_arrivals(live),
        arrived=arrived,
        source_versions=versions,
        affected=count_affected(plan.spec, work.warehouse, plan.target, live),
    )
    detail = {"revision": work.revision, "reading": reading.model_dump(mode="json")}
    work.ledger.record_event(work.backfill_id, LIVE_EVENT, by=work.by, detail=detail)
    return plan.with_live(reading).as_read(live)


def unclaimed(work: Work, plan: Plan, partitions: Sequence[Partition]) -> tuple[Partition, ...]:
    """Those of the partitions that are live and not the backfill's now; what is staged of them is worth nothing."""
    live = [partition for partition in plan.live if partition in partitions]
    if not live or work.ledger.holds_range(work.backfill_id, merge(live)):
        return ()
    return tuple(one for one in live if not work.ledger.holds_range(work.backfill_id, [one.span]))


def _claim(work: Work, plan: Plan, live: Sequence[Partition]) -> None:
    work.stop_or_go()
    work.ledger.reserve_range(work.backfill_id, merge(plan.live), by=work.by)
    work.ledger.claim_range(work.backfill_id, merge(live), by=work.by)
