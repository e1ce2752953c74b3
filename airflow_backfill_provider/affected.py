"""Which partitions of the range hold rows that the bug touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_backfill_provider.resolution import Resolution, Skipped
from airflow_backfill_provider.spec.metric import Metric, MetricKind
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Published, Target, Warehouse
from airflow_backfill_provider.windows import Partition


def count_affected(
    spec: BackfillSpec, warehouse: Warehouse, target: Target, partitions: Sequence[Partition]
) -> dict[str, int]:
    """The published rows of each partition that ``range.affected_when`` is true for, by key; empty without one."""
    condition = spec.range.affected_when
    if condition is None or not partitions:
        return {}
    count = Metric(MetricKind.ROWS, where=condition)
    measured = warehouse.measure(target, Published(), partitions, [count])
    return {key: int(values[count] or 0) for key, values in measured.items()}


def narrowed(resolution: Resolution, spec: BackfillSpec, affected: Mapping[str, int]) -> Resolution:
    """The same without the partitions that hold no affected row, which are listed with that reason."""
    if spec.range.affected_when is None:
        return resolution
    reason = f"no published row is affected ({spec.range.affected_when})"
    left_out = [Skipped(key=one.key, reason=reason) for one in resolution.partitions if not affected[one.key]]
    return replace(
        resolution,
        partitions=tuple(one for one in resolution.partitions if affected[one.key]),
        skipped=(*resolution.skipped, *left_out),
    )
