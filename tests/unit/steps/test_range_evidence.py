"""A range is held against a number that the bug moved, and narrowed to the partitions that hold affected rows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from report_reading import Report
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.reporting import charts

WRONG = DAYS[3:7]
"""The days on which refunded orders were published with their amount; on the others they have none."""
NULLS = {"column": "amount", "aggregate": "null_rate"}


def evidence(metric: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    since = {"introduced_by": "release 41", "introduced_at": WRONG[0], "margin": 3}
    return {"evidence": since | {"metric": metric or NULLS} | changes}


@pytest.fixture
def bounded(world: World) -> World:
    listed = ", ".join(f"'{day}'" for day in WRONG)
    world.engine.execute(
        f"UPDATE analytics.orders SET amount = NULL WHERE order_id % 100 = 0 AND order_date NOT IN ({listed})"
    )
    world.spec = make_spec(range=evidence())
    return world


def cautions(plan: Plan) -> list[str]:
    return [warning for warning in plan.warnings if warning.startswith("range.evidence")]


def planned(world: World, first: str, last: str) -> Plan:
    return world.scope(start_date=first, end_date=last, mode="plan").plan


@pytest.mark.parametrize("metric", [NULLS, {"sql": "order_id % 100 = 0 AND amount IS NOT NULL"}])
def test_a_range_that_ends_where_the_number_changes_is_confirmed(bounded: World, metric: dict[str, str]) -> None:
    bounded.spec = make_spec(range=evidence(metric))
    plan = planned(bounded, WRONG[0], WRONG[-1])
    assert cautions(plan) == []
    assert plan.range_found is not None
    assert [(one.candidate, one.confirmed) for one in plan.range_found.boundaries] == [
        (WRONG[0], WRONG[0]),
        (WRONG[-1], WRONG[-1]),
    ]
    assert [point.key for point in plan.range_found.points] == list(DAYS)
    assert [point.key for point in plan.range_found.points if point.in_range] == list(WRONG)
    assert f"boundary    start {WRONG[0]}, as the number says: " in preview(plan)


def test_a_boundary_that_is_off_by_one_day_at_either_end_is_warned_of(bounded: World) -> None:
    late, early = DAYS[4], DAYS[5]
    wider_start, wider_end = planned(bounded, late, WRONG[-1]), planned(bounded, WRONG[0], early)
    assert [text for text in cautions(wider_start) if "wider" in text] == [
        f"range.evidence: the bug is wider than the range. The range starts with {late}, and the null_rate of amount says "
        f"{WRONG[0]}, 1 partitions before it: 0.166667 beyond, 0 within."
    ]
    assert any("after the bug began: release 41 is from 2024-03-04 on" in text for text in cautions(wider_start))
    assert cautions(wider_end) == [
        f"range.evidence: the bug is wider than the range. The range ends with {early}, and the null_rate of amount says "
        f"{WRONG[-1]}, 1 partitions after it: 0.166667 beyond, 0 within."
    ]
    narrower = cautions(planned(bounded, DAYS[2], DAYS[7]))
    assert [text.split(".")[1].strip(" :") for text in narrower[1:]] == [
        "evidence: the bug is narrower than the range"
    ] * 2
    assert f"says {WRONG[0]}, 1 partitions after it" in narrower[1]
    assert f"says {WRONG[-1]}, 1 partitions before it" in narrower[2]


def test_a_number_that_does_not_change_near_an_end_is_said_to_show_nothing(bounded: World) -> None:
    bounded.spec = make_spec(range=evidence({"column": "order_id", "aggregate": "null_rate"}))
    assert [text.partition(", where")[0][-10:] for text in cautions(planned(bounded, WRONG[0], WRONG[-1]))] == [
        WRONG[0],
        WRONG[-1],
    ]


def test_beyond_the_last_day_that_is_over_nothing_is_looked_for(bounded: World) -> None:
    bounded.now = bounded.now.replace(month=3, day=8)
    plan = planned(bounded, WRONG[0], WRONG[-1])
    assert cautions(plan) == []
    assert plan.range_found is not None
    assert not plan.range_found.boundaries[1].is_shown


def test_one_day_beyond_the_end_is_too_few_to_say_that_nothing_changes_there(bounded: World) -> None:
    bounded.now = bounded.now.replace(month=3, day=9)
    plan = planned(bounded, WRONG[0], WRONG[-1])
    assert cautions(plan) == []
    text = preview(plan)
    assert f"end {WRONG[-1]}; too few numbers are known beyond it to say anything" in text


def test_one_day_beyond_an_end_is_enough_to_see_a_change_within(bounded: World) -> None:
    bounded.spec, bounded.now = make_spec(range=evidence(margin=5)), bounded.now.replace(month=3, day=11)
    (narrower,) = [text for text in cautions(planned(bounded, WRONG[0], DAYS[8])) if "the range starts" not in text]
    assert "the bug is narrower than the range" in narrower
    assert f"says {WRONG[-1]}, 2 partitions before it" in narrower


def test_days_without_rows_beyond_an_end_are_no_numbers(bounded: World) -> None:
    bounded.engine.execute(f"DELETE FROM analytics.orders WHERE order_date > DATE '{WRONG[-1]}'")
    assert cautions(planned(bounded, WRONG[0], WRONG[-1])) == []


def test_only_partitions_with_affected_rows_are_planned_and_the_others_are_listed(bounded: World) -> None:
    condition = "order_id % 100 = 0 AND amount IS NOT NULL"
    bounded.spec = make_spec(range={"affected_when": condition})
    scoped = bounded.scope()
    assert scoped.plan.keys == WRONG
    assert scoped.plan.affected == dict.fromkeys(WRONG, 1)
    assert {skip.key for skip in scoped.plan.skipped} == set(DAYS) - set(WRONG)
    assert {skip.reason for skip in scoped.plan.skipped} == {f"no published row is affected ({condition})"}
    again = bounded.scope()
    assert again.plan.keys == WRONG
    bounded.stage(again)
    bounded.validate(again)
    bounded.publish()
    report = Report(bounded)
    assert f"4 published rows of the range met {condition}" in report.text
    bounded.run_id = "run 2"
    assert bounded.scope().note == "nothing to do", "what was corrected is not affected any more"


def test_the_partitions_stay_those_of_the_plan_when_it_is_revised(bounded: World) -> None:
    bounded.spec = make_spec(range={"affected_when": "order_id % 100 = 0 AND amount IS NOT NULL"})
    bounded.scope()
    bounded.engine.execute(f"UPDATE analytics.orders SET amount = NULL WHERE order_date = '{WRONG[0]}'")
    assert bounded.scope(rebase=True).plan.keys == WRONG
    bounded.spec = make_spec(range={"affected_when": "amount IS NULL"}, checks=[])
    assert bounded.scope().plan.keys == WRONG


def test_the_ends_that_were_asked_for_are_held_against_the_number_when_a_narrowed_plan_is_revised(
    bounded: World,
) -> None:
    narrowing = evidence() | {"affected_when": "order_id % 100 = 0 AND amount IS NOT NULL"}
    bounded.spec = make_spec(range=narrowing)
    before = bounded.scope(start_date=DAYS[2], end_date=DAYS[7]).plan
    assert before.keys == WRONG
    assert sum("narrower" in text for text in cautions(before)) == 2
    bounded.spec = make_spec(range=narrowing, checks=[])
    after = bounded.scope(backfill_id=bounded.id).plan
    assert (after.keys, after.skipped, after.affected) == (before.keys, before.skipped, before.affected)
    assert cautions(after) == cautions(before)
    assert after.range_found == before.range_found


def test_a_null_condition_affects_nothing(bounded: World) -> None:
    bounded.spec = make_spec(range={"affected_when": "amount > NULL"})
    assert bounded.scope().plan.partitions == ()


def test_the_report_draws_the_number_and_names_the_ends(bounded: World) -> None:
    bounded.scope(start_date=DAYS[4], end_date=WRONG[-1])
    report = Report(bounded)
    assert [tuple(row.values()) for row in report.rows("range_evidence.csv")][2:5] == [
        (DAYS[3], "no", "0"),
        (DAYS[4], "yes", "0"),
        (DAYS[5], "yes", "0"),
    ]
    assert "Wrong since 2024-03-04: release 41." in report.text
    assert f"Start {DAYS[4]}, the number says {WRONG[0]}: 0.166667 beyond, 0 within" in report.text
    assert ("Null_rate of amount, as published when the plan was made" in report.text) == charts.available()


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"affected_when": "nowhere = 1"}, "nowhere"),
        ({"affected_when": "1 = 1; DROP TABLE analytics.orders"}, "range.affected_when"),
        (evidence({"sql": "amount = (SELECT 1)"}), "range.evidence.metric.sql"),
        (evidence({"column": "nowhere", "aggregate": "avg"}), "no such column"),
        (evidence({"column": "note", "aggregate": "avg"}), "a level is one of numbers"),
    ],
)
def test_a_condition_or_column_that_is_not_of_the_target_is_refused(
    world: World, written: dict[str, Any], reason: str
) -> None:
    world.spec = make_spec(range=written)
    with pytest.raises(SpecError, match=reason):
        world.scope()


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (evidence({"column": "amount"}), "give either column and aggregate"),
        (evidence({"sql": "TRUE", "column": "amount", "aggregate": "avg"}), "give either column and aggregate"),
        (evidence(introduced_at="last spring"), "introduced_at"),
        (evidence(introduced_at="-30d"), "introduced_at"),
        (evidence(margin=1), "margin"),
    ],
)
def test_evidence_that_says_nothing_is_no_evidence(written: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_spec(range=written)
