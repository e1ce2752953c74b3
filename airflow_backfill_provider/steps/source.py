"""Whether the source is still what it was when the plan was made: asked before anything is staged, and before a publish."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import SourceMoved, VersionGone
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.source_reading import SourceReading
from airflow_backfill_provider.spec.request import conf_of
from airflow_backfill_provider.steps.way_on import published_so_far, rollback_command
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.windows import Partition

MOVED_EVENT = "source_moved"
_SHOWN = 5


def require_pinned_sources(work: Work, plan: Plan) -> None:
    """:raises VersionGone: a version that the plan pinned cannot be read any more; nothing was touched."""
    try:
        work.warehouse.require_versions(plan.source_versions)
    except VersionGone as error:
        raise VersionGone(
            f"{error} Nothing was staged or written. Trigger the DAG with {conf_of(work.backfill_id, 'restage')} to plan and stage "
            "all of it from the latest version."
        ) from error


def require_unmoved_source(work: Work, plan: Plan, partitions: Sequence[Partition]) -> None:
    """Count the source's rows of these partitions again, under the plan's cutoff; the warehouse is only read.

    Rows that were changed in place do not show in their number. A live partition is not asked about: what its source got since it
    was staged is for the live runs to publish. With ``on_moved: warn`` a difference is logged and stands
    in the audit trail. Without ``source`` nothing is asked.

    :raises SourceMoved: the numbers differ from the plan's, and ``source.on_moved`` is ``refuse``.
    """
    source = plan.spec.source
    if source is None:
        return
    settled = [partition for partition in partitions if partition not in plan.live]
    found = SourceReading(plan.spec, work.warehouse, plan.target, plan.arrived, versions={}).rows(settled)
    moved = {key: (plan.source_rows[key], rows) for key, rows in found.items() if plan.source_rows[key] != rows}
    if not moved:
        return
    counts = ", ".join(f"{key} had {was} rows and has {now}" for key, (was, now) in list(moved.items())[:_SHOWN])
    message = f"The source {source.table} moved in {len(moved)} partitions since the plan was made: {counts}."
    work.ledger.record_event(work.backfill_id, MOVED_EVENT, by=work.by, detail={"moved": moved})
    if source.on_moved == "refuse":
        raise SourceMoved(
            f"{message} Staged rows may lack some or hold others that are gone. Nothing was written. {_way_on(work)}",
            moved,
        )
    work.log.warning("%s It is published as it was staged, since source.on_moved is warn.", message)


def _way_on(work: Work) -> str:
    if not work.ledger.counts(work.backfill_id)[PartitionState.PUBLISHED]:
        return (
            f"Trigger the DAG with {conf_of(work.backfill_id, 'rebase')} to count it again and recompute those partitions; or set "
            "source.on_moved: warn, and clear scope_partitions with downstream."
        )
    rollback = rollback_command(work.ledger.backfill(work.backfill_id))
    return (
        f"{published_so_far(work.ledger, work.backfill_id)}, so the plan cannot be revised any more: put the source back as it was and "
        f"clear atomic_publish; or put the old rows back, and trigger the DAG anew then: {rollback}"
    )
