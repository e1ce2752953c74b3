"""How partitions are dealt out to mapped tasks: fewer, longer tasks, because each costs the scheduler about a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from airflow_backfill_provider.windows import Partition, describe

SECONDS_PER_TASK = 60
"""``auto`` makes more tasks only when one would be estimated to run longer than this."""
PARTITIONS_PER_TASK = 128
"""``auto`` gives one task no more than these, however fast they are: what one log and one mapped entry still show well."""
MOST_TASKS = 1024
"""``core.max_map_length`` as Airflow sets it; a longer XCom list fails the task that pushes it."""


@dataclass(frozen=True)
class Batch:
    """The partitions of one mapped task."""

    label: str
    keys: tuple[str, ...]


def deal(
    partitions: Sequence[Partition],
    *,
    max_concurrency: int,
    partitions_per_task: int | Literal["auto"],
    estimated_seconds: float,
    most_tasks: int = MOST_TASKS,
) -> tuple[Batch, ...]:
    """Cut the partitions, in order, into batches of nearly equal size; at most ``most_tasks`` of them.

    Above the cap, ``auto`` makes a multiple of it: a last wave of fewer tasks would leave slots idle.
    """
    count = len(partitions)
    if not count:
        return ()
    if partitions_per_task == "auto":
        waves = max(1, ceil(count / (PARTITIONS_PER_TASK * max_concurrency)))
        longer = ceil(estimated_seconds / (SECONDS_PER_TASK * max_concurrency))
        tasks = min(count, max_concurrency * max(waves, min(longer, 4)))
    else:
        tasks = ceil(count / partitions_per_task)
    tasks = min(tasks, most_tasks)
    base, extra = divmod(count, tasks)
    batches: list[Batch] = []
    start = 0
    for index in range(tasks):
        members = partitions[start : start + base + (index < extra)]
        batches.append(Batch(describe(members), tuple(partition.key for partition in members)))
        start += len(members)
    return tuple(batches)
