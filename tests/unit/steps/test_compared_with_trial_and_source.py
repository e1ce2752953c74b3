"""Comparisons with the partition that was tried, and with the source, column by column."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.checks.like_trial import judge_like_trial
from airflow_backfill_provider.checks.outcome import Verdict
from airflow_backfill_provider.errors import SpecError, ValidationFailed
from airflow_backfill_provider.spec.comparisons import CompareSum

LIKE_TRIAL = {"sum": {"column": "amount", "against": "trial"}}
OF_SOURCE = {"sum": {"column": "amount", "against": "source", "source_column": "gross", "max_abs_change": 0}}


def judged(*changes: int | None, **bounds: Any) -> Any:
    """The verdict where the first partition was tried, and each changes by so much."""
    comparison = CompareSum(column="amount", against="trial", **bounds)
    recorded = {
        f"p{number}": ({"sum(amount)": 100}, {"sum(amount)": None if change is None else 100 + change})
        for number, change in enumerate(changes)
    }
    return judge_like_trial(comparison, "p0", recorded)


def test_a_partition_that_changes_by_more_than_ten_times_the_trials_change_is_named() -> None:
    outcome = judged(-5, -50, 50, -51, 0)
    assert (outcome.verdict, outcome.partition) == (Verdict.FAIL, None)
    assert outcome.actual == "1 of 5 partitions change by more"
    assert outcome.detail == "p0 changed by -5, and p3 by -51"
    assert judged(-5, -50, 50, 0).verdict is Verdict.PASS
    assert judged(-5, -11, max_times=2).verdict is Verdict.FAIL
    assert judged(-5, -51, severity="warn").verdict is Verdict.WARN


def test_where_the_tried_partition_does_not_change_no_other_may() -> None:
    assert judged(0, 0).verdict is Verdict.PASS
    assert judged(0, 1).verdict is Verdict.FAIL


def test_a_value_that_is_not_there_is_no_small_change() -> None:
    assert "p1 by an unknown amount" in judged(-5, None).detail
    assert judged(None, 1).verdict is Verdict.ERROR
    comparison = CompareSum(column="amount", against="trial")
    assert judge_like_trial(comparison, "p0", {"p0": ({}, {})}).verdict is Verdict.ERROR


def test_a_day_that_falls_out_of_step_with_the_trial_stops_the_publish(world: World) -> None:
    tried = {"partition": DAYS[9]}
    world.spec = make_spec(compare=[LIKE_TRIAL], trial=tried)
    world.prepare()

    wild = RIGHT.replace("CASE WHEN refunded", f"CASE WHEN order_date = DATE '{DAYS[6]}' THEN amount * 9 WHEN refunded")
    world.spec = make_spec(compare=[LIKE_TRIAL], trial=tried, transform={"sql": wild})
    with pytest.raises(ValidationFailed, match=rf"sum\(amount\) against trial: fail: .*{DAYS[6]} by \+") as failed:
        world.prepare(restage=True)
    assert "no partition changes by more than 10 times as much as the one that was tried" in str(failed.value)


def test_a_sum_is_reconciled_with_the_sources_own_column(world: World) -> None:
    world.engine.execute(
        "ALTER TABLE raw.orders ADD COLUMN gross INTEGER",
        "UPDATE raw.orders SET gross = CASE WHEN refunded THEN NULL ELSE amount END",
    )
    world.spec = make_spec(compare=[OF_SOURCE])
    world.prepare()

    world.engine.execute(f"UPDATE raw.orders SET gross = gross + 1 WHERE order_date = DATE '{DAYS[4]}'")
    world.spec = make_spec(compare=[OF_SOURCE], checks=[])
    with pytest.raises(ValidationFailed, match=rf"{DAYS[4]}: sum\(amount\) against source.gross: fail: .*-5"):
        world.prepare()


def test_a_column_that_the_source_does_not_have_is_refused_when_the_plan_is_made(world: World) -> None:
    world.spec = make_spec(compare=[OF_SOURCE])
    with pytest.raises(SpecError, match=r"compare\[0\]\.sum: raw\.orders with a column gross cannot be read"):
        world.scope()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"sum": {"column": "amount", "against": "trial", "max_abs_change": 1}}, "bounded by max_times alone"),
        ({"sum": {"column": "amount", "against": "trial", "over": "range"}}, "judged once for the range"),
        ({"sum": {"column": "amount", "max_times": 3, "max_abs_change": 1}}, "max_times needs against: trial"),
        (
            {"sum": {"column": "amount", "source_column": "x", "max_abs_change": 1}},
            "source_column needs against: source",
        ),
        ({"row_count": {"against": "trial", "max_times": 0.5}}, "greater than or equal to 1"),
    ],
)
def test_a_bound_that_does_not_go_with_its_side_is_refused(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_spec(compare=[entry])
