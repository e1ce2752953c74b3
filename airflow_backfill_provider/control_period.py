"""The control period as the plan finds it: partitions that must prove something, or the plan is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from airflow_backfill_provider.errors import RequestError, SpecError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Fingerprint, Published, Target, Warehouse
from airflow_backfill_provider.windows import Partition


def published_control(
    spec: BackfillSpec, warehouse: Warehouse, target: Target, partitions: Sequence[Partition], now: datetime
) -> dict[str, Fingerprint]:
    """What is published of each control partition, by key; empty without a control period.

    :param partitions: the range of the backfill.
    :raises RequestError: a control partition lies in the range.
    :raises SpecError: one is not over yet, or has no published row, so that it would prove nothing.
    """
    control = spec.control_partitions
    if both := sorted({one.key for one in control} & {one.key for one in partitions}):
        raise RequestError(
            f"control_period names {', '.join(both[:5])}, which the range holds too. A control partition is one that the bug "
            "did not affect: exclude it from the range, or name another in the spec. Nothing was done."
        )
    if live := [one.key for one in control if not one.is_over(now)]:
        raise SpecError(
            f"control_period names {', '.join(live[:5])}, which is still being written: it cannot be held against anything. "
            "Name partitions that are over."
        )
    found = warehouse.fingerprint(target, Published(), control) if control else {}
    if empty := [key for key, mark in found.items() if not mark.rows]:
        raise SpecError(
            f"control_period names {', '.join(empty[:5])}, of which {spec.target.table} has no published row: that proves "
            "nothing. Name partitions that were published right."
        )
    return found
