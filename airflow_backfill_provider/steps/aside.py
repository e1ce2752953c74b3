"""Computing a partition aside: staged like any other, read, and thrown away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airflow_backfill_provider.errors import TRANSIENT, WarehouseError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.recompute import write
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Recompute, StagedPartition, StageWriter


@contextmanager
def aside(work: Work, plan: Plan, label: str, *ways: Recompute) -> Iterator[StagedPartition]:
    """The partition as the first of these that the engine can run computes it; thrown away at the end."""
    with work.warehouse.open_stage(plan.target, work.backfill_id, label) as writer:
        (staged,) = _written(work, plan, writer, ways)
    try:
        yield staged
    finally:
        work.warehouse.drop(writer.location)


def _written(work: Work, plan: Plan, writer: StageWriter, ways: Sequence[Recompute]) -> tuple[StagedPartition, ...]:
    try:
        return write(work, plan, writer, ways[:1])
    except TRANSIENT:
        raise
    except WarehouseError as error:
        if len(ways) == 1:
            raise
        work.log.info("Rows cannot be put into another order here (%s); the SQL runs as it is written.", error)
        return _written(work, plan, writer, ways[1:])
