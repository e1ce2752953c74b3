"""Where the level of a number changes."""

from __future__ import annotations

import random

import pytest

from airflow_backfill_provider.checks.level import Step, find_step, level_of, metrics_of_level
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.spec.range_evidence import Level


@pytest.mark.parametrize("place", [1, 2, 7, 13])
def test_a_clean_step_is_found_where_it_is(place: int) -> None:
    series = [0.25] * place + [0.75] * (14 - place)
    assert find_step(series) == Step(place, 0.25, 0.75)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_found_in_noise_that_is_smaller_than_it(seed: int) -> None:
    noise = random.Random(seed)
    series = [noise.gauss(10, 0.4) for _ in range(12)] + [noise.gauss(13, 0.4) for _ in range(9)]
    step = find_step(series)
    assert step is not None
    assert step.place == 12
    assert (round(step.before), round(step.after)) == (10, 13)


@pytest.mark.parametrize(
    "series",
    [[], [1.0], [None, None], [3.0] * 9, [0.1 + 0.2, 0.3, 0.3, 0.3], [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]],
    ids=["nothing", "one", "no value", "flat", "rounding", "to and fro"],
)
def test_without_a_clear_change_none_is_named(series: list[float | None]) -> None:
    assert find_step(series) is None


def test_a_lone_value_at_an_end_is_no_level_where_two_are_asked_for() -> None:
    series = [9.0, 1.0, 1.0, 1.0, 1.0]
    assert find_step(series) == Step(1, 9.0, 1.0)
    assert find_step(series, least=2) is None


def test_partitions_without_a_value_are_left_out_and_do_not_move_the_others() -> None:
    assert find_step([1.0, None, 1.0, None, 5.0, 5.0]) == Step(4, 1.0, 5.0)


def test_of_a_partition_without_rows_or_values_there_is_no_level() -> None:
    share = Level(sql="amount = 0")
    of_rows, rows = metrics_of_level(share)
    assert rows == ROWS
    assert level_of(share, {of_rows: 0, ROWS: 0}) is None
    assert level_of(share, {of_rows: 1, ROWS: 4}) == 0.25
    average = Level(column="amount", aggregate="avg")
    total, nulls, _ = metrics_of_level(average)
    assert level_of(average, {total: None, nulls: 3, ROWS: 3}) is None
    assert level_of(average, {total: 9, nulls: 1, ROWS: 4}) == 3
    count = Level(column="amount", aggregate="count_distinct")
    (distinct,) = metrics_of_level(count)
    assert level_of(count, {distinct: 0, ROWS: 0}) is None, "an empty partition has no level, not one of 0"
    largest = Level(column="note", aggregate="max")
    with pytest.raises(ValueError, match="not a number"):
        level_of(largest, {metrics_of_level(largest)[0]: "b", ROWS: 2})
