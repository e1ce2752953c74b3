"""One partition at a time through a stage writer."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.base import Recompute, StagedPartition, StageWriter
from airflow_backfill_provider.windows import Partition


def write_one(writer: StageWriter, partition: Partition, select: str) -> StagedPartition:
    """Write one partition in a commit of its own."""
    (staged,) = writer.write(Recompute((partition,), select))
    return staged
