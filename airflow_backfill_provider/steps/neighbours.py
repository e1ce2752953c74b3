"""The partitions beside one: where a rule that cuts its rows wrongly puts some."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.windows import Grain, Partition, Window, partition_at

_TICK = timedelta(microseconds=1)


def neighbours(plan: Plan, partition: Partition) -> tuple[Partition, ...]:
    """The partitions before and after it, of the range or not; a value's are those beside it in the plan, if it is there."""
    target = plan.spec.target
    if target.grain is Grain.LIST or not isinstance(partition.span, Window):
        if partition not in plan.partitions:
            return ()
        place = plan.partitions.index(partition)
        return plan.partitions[max(place - 1, 0) : place] + plan.partitions[place + 1 : place + 2]
    found = []
    with suppress(RequestError, OverflowError):  # the calendar begins here
        found.append(partition_at(partition.span.start - _TICK, target.grain, target.timezone))
    with suppress(RequestError):  # or ends here
        found.append(partition_at(partition.span.end, target.grain, target.timezone))
    return tuple(found)
