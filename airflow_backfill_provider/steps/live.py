"""Live partitions: claimed from the scheduled pipeline, and read anew, only just before they are staged.

Until then runs of that pipeline go on writing them; from then until the publish those that hold a guard wait. What such a run
wrote before is in the source, so it is recomputed; what it writes afterwards lands in the published rows. Neither is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow_backfill_provider.cutoff import arrived_by
from airflow_backfill_provider.errors import LockTimeout, RangeLocked
from airflow_backfill_provider.plan import LiveReading, Plan, count_source, latest_versions, newest_arrivals
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
    try:
        ask_again(lambda: _claim(work, live), patience=PATIENCE)
    except RangeLocked as locked:
        raise LockTimeout(str(locked)) from locked
    versions = latest_versions(plan.spec, work.warehouse, plan.eras)
    arrived = arrived_by(plan.spec.source, work.warehouse, work.now())
    reading = LiveReading(
        baseline=work.warehouse.fingerprint(plan.target, Published(), live),
        source_rows=count_source(plan.spec, work.warehouse, plan.target, live, arrived, versions),
        source_newest=newest_arrivals(plan.spec, work.warehouse, plan.target, live, arrived, versions),
        arrived=arrived,
        source_versions=versions,
    )
    detail = {"revision": work.revision, "reading": reading.model_dump(mode="json")}
    work.ledger.record_event(work.backfill_id, LIVE_EVENT, by=work.by, detail=detail)
    return plan.with_live(reading).as_read(live)


def _claim(work: Work, live: Sequence[Partition]) -> None:
    work.stop_or_go()
    work.ledger.claim_range(work.backfill_id, merge(live), by=work.by)
