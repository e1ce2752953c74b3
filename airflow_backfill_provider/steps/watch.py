"""Whether code of the team's own, which may write anywhere, left the published table alone while it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_backfill_provider.errors import StrayWrite
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.baseline import require_equal
from airflow_backfill_provider.steps.neighbours import neighbours
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Fingerprint, Published
from airflow_backfill_provider.windows import Partition

STRAY_EVENT = "stray_write"
_SHOWN = 5


@contextmanager
def watched(work: Work, plan: Plan, partitions: Sequence[Partition]) -> Iterator[None]:
    """Hold the published rows of these partitions, and of those beside them that are over, before against after.

    What is found also stands in the audit trail. An error of the code itself is raised once nothing else was found.

    :raises TargetMoved: they are not what the plan saw, before anything ran.
    :raises StrayWrite: they changed meanwhile.
    """
    around = _around(plan, partitions)
    before = work.warehouse.fingerprint(plan.target, Published(), around)
    known = {**plan.control, **plan.baseline}
    expected = {partition.key: known[partition.key] for partition in partitions}
    require_equal(expected, before, f"The published range of {plan.target.table} moved since the plan was made")
    try:
        yield
    except Exception as error:
        _require_same(work, plan, before, around, error)
        raise
    _require_same(work, plan, before, around)


def _around(plan: Plan, partitions: Sequence[Partition]) -> tuple[Partition, ...]:
    beside = {one for partition in partitions for one in neighbours(plan, partition)}
    return tuple(sorted({*partitions, *(one for one in beside if one.is_over(plan.planned_at))}))


def _require_same(
    work: Work,
    plan: Plan,
    before: Mapping[str, Fingerprint],
    around: Sequence[Partition],
    error: Exception | None = None,
) -> None:
    after = work.warehouse.fingerprint(plan.target, Published(), around)
    moved = {key: (mark.rows, after[key].rows) for key, mark in before.items() if after[key] != mark}
    if not moved:
        return
    work.ledger.record_event(work.backfill_id, STRAY_EVENT, by=work.by, detail={"moved": moved})
    counts = ", ".join(f"{key} had {was} rows, has {now}" for key, (was, now) in list(moved.items())[:_SHOWN])
    raise StrayWrite(
        f"Published rows of {plan.target.table} changed while {plan.spec.transform.origin} ran: {len(moved)} partitions differ "
        f"({counts}; where the counts agree, the values differ). Either it writes the table itself, instead of returning its "
        "rows or writing them to context.staging_table, or another process wrote meanwhile. Nothing of it was staged or "
        "published, but what was written there stays: put it right first, from the table's own history or backups. Then "
        f'mend the code and trigger the DAG with {{"backfill_id": "{work.backfill_id}", "restage": true}}; or, if another '
        "process wrote, with rebase.",
        moved,
    ) from error
