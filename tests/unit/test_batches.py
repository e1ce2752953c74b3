from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_backfill_provider.batches import MOST_TASKS, deal
from airflow_backfill_provider.windows import Grain, Partition, split

START = datetime(2001, 1, 1, tzinfo=UTC)


def days(count: int) -> tuple[Partition, ...]:
    return split(START, START + timedelta(days=count), Grain.DAY)


def sizes(count: int, **settings: object) -> list[int]:
    defaults: dict[str, object] = {"max_concurrency": 4, "partitions_per_task": "auto", "estimated_seconds": 0.0}
    return [len(batch.keys) for batch in deal(days(count), **(defaults | settings))]  # type: ignore[arg-type]


def test_no_partition_makes_no_batch() -> None:
    assert deal((), max_concurrency=4, partitions_per_task="auto", estimated_seconds=0) == ()


def test_auto_makes_as_many_tasks_as_may_run_at_once() -> None:
    assert sizes(150) == [38, 38, 37, 37]
    assert sizes(3) == [1, 1, 1]


def test_auto_makes_more_tasks_for_a_long_range_and_for_slow_work() -> None:
    assert len(sizes(640)) == 8
    assert len(sizes(150, estimated_seconds=600.0)) == 12
    assert len(sizes(150, estimated_seconds=1e9)) == 16


def test_a_given_size_is_kept_and_the_last_batch_takes_the_rest() -> None:
    assert sizes(100, partitions_per_task=11) == [10] * 10
    assert sizes(7, partitions_per_task=1) == [1] * 7


def test_airflows_limit_of_mapped_tasks_is_never_passed() -> None:
    assert len(sizes(3_182, partitions_per_task=1)) == MOST_TASKS
    assert sizes(20, partitions_per_task=1, most_tasks=3) == [7, 7, 6]
    assert len(sizes(640, estimated_seconds=1e9, most_tasks=3)) == 3


def test_labels_name_the_first_and_the_last_key() -> None:
    batches = deal(days(5), max_concurrency=2, partitions_per_task="auto", estimated_seconds=0)
    assert [batch.label for batch in batches] == ["2001-01-01 … 2001-01-03", "2001-01-04 … 2001-01-05"]


@given(st.integers(1, 2_000), st.integers(1, 40), st.one_of(st.just("auto"), st.integers(1, 50)), st.floats(0, 1e6))
def test_every_partition_is_dealt_out_once_and_in_order(count: int, cap: int, size: object, seconds: float) -> None:
    partitions = days(count)
    batches = deal(partitions, max_concurrency=cap, partitions_per_task=size, estimated_seconds=seconds)  # type: ignore[arg-type]
    assert [key for batch in batches for key in batch.keys] == [partition.key for partition in partitions]
    assert len(batches) <= MOST_TASKS
    lengths = [len(batch.keys) for batch in batches]
    assert max(lengths) - min(lengths) <= 1


def test_an_xcom_of_a_long_plan_stays_small() -> None:
    import json

    batches = deal(days(3_182), max_concurrency=4, partitions_per_task="auto", estimated_seconds=0)
    text = json.dumps([{"label": batch.label, "keys": batch.keys} for batch in batches])
    assert len(text) < 64 * 1024


@pytest.mark.parametrize("count", [1, 128, 129, 1_000])
def test_auto_never_makes_a_task_longer_than_128_partitions_beyond_the_cap(count: int) -> None:
    assert max(sizes(count, max_concurrency=1)) <= 128
