"""Partitions that changed although nothing was to change there, and those that were to change and did not, are listed."""

from __future__ import annotations

import pytest
from report_reading import Report
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.errors import ValidationFailed
from airflow_backfill_provider.steps.report import conclude

AFFECTED = {"affected_when": "order_id % 100 = 0 AND amount IS NOT NULL"}


def right(world: World, *days: str) -> None:
    listed = ", ".join(f"'{day}'" for day in days)
    world.engine.execute(
        f"UPDATE analytics.orders SET amount = NULL WHERE order_id % 100 = 0 AND order_date IN ({listed})"
    )


def test_a_partition_that_was_to_change_and_did_not_is_listed(world: World) -> None:
    right(world, DAYS[8], DAYS[9])
    lines = world.run().lines()
    assert f"  identical   expected to change, but as published: {DAYS[8]}, {DAYS[9]}" in lines
    assert (
        f"2 partitions expected to change, but identical: the range may be wider than the bug. {DAYS[8]}, {DAYS[9]}"
        in (Report(world).text)
    )


def test_a_partition_that_differs_in_a_column_that_is_left_out_is_written_and_not_called_identical(
    world: World,
) -> None:
    right(world, *DAYS)
    world.spec = make_spec(
        transform={
            "sql": RIGHT.replace(
                ", note", f", CASE WHEN order_date = DATE '{DAYS[1]}' THEN 'later' ELSE note END AS note"
            )
        },
        compare=[{"row_diff": {"exclude_columns": ["note"]}}],
    )
    summary = world.run(start_date=DAYS[0], end_date=DAYS[1])
    assert set(world.engine.rows(f"SELECT note FROM analytics.orders WHERE order_date = DATE '{DAYS[1]}'")) == {
        ("later",)
    }
    assert f"  identical   expected to change, but as published: {DAYS[0]}" in summary.lines()
    assert f"  alike       differ in note alone: {DAYS[1]}" in summary.lines()
    report = Report(world)
    assert (
        "none of 12 rows differs from what was published, none is added or removed; 1 partition differs in note alone, which is not compared"
        in report.sentence
    )
    assert (
        f"1 partition expected to change, but identical: the range may be wider than the bug. {DAYS[0]}." in report.text
    )
    assert "1 partition expected to change, but differs in note alone" in report.text


def test_a_partition_in_which_more_rows_change_than_were_affected_is_listed(world: World) -> None:
    wide = RIGHT.replace("CASE WHEN refunded", "CASE WHEN refunded OR order_id = 301")
    world.spec = make_spec(range=AFFECTED, transform={"sql": wide})
    summary = world.run(start_date=DAYS[2], end_date=DAYS[4])
    said = f"{DAYS[3]}: 2 rows differ, and 1 published ones were affected"
    assert [str(one) for one in summary.expectation.changed] == [said]
    assert f"  unexpected  {said}" in summary.lines()
    assert "1 partition changed although outside the expectation" in Report(world).text


def publish_wrongly(world: World, order: int, day: str) -> None:
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES ({order}, DATE '{day}', {order + 10}, 'late', TRUE)",
        f"INSERT INTO analytics.orders VALUES ({order}, DATE '{day}', {order + 10}, 'late')",
    )


WRONG_AMOUNT = {"affected_when": "order_id % 100 IN (0, 50) AND amount IS NOT NULL"}


def test_affected_rows_that_were_published_since_the_plan_are_counted_by_a_rebase(world: World) -> None:
    world.spec = make_spec(range=WRONG_AMOUNT)
    world.scope(start_date=DAYS[2], end_date=DAYS[4])
    publish_wrongly(world, 350, DAYS[3])
    scoped = world.scope(backfill_id=world.id, rebase=True)
    assert scoped.plan.affected == {DAYS[2]: 1, DAYS[3]: 2, DAYS[4]: 1}
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    assert conclude(world.work()).expectation.changed == ()


def test_affected_rows_of_a_live_partition_are_counted_when_it_is_read(world: World) -> None:
    world.now = world.now.replace(month=3, day=10)
    world.spec = make_spec(range=WRONG_AMOUNT)
    scoped = world.scope(start_date=DAYS[8], end_date=DAYS[9], include_live=True)
    publish_wrongly(world, 950, DAYS[9])
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    summary = conclude(world.work())
    assert summary.plan.affected == {DAYS[8]: 1, DAYS[9]: 2}
    assert summary.expectation.changed == ()


def test_a_partition_that_changes_before_the_number_does_is_listed(world: World) -> None:
    right(world, *DAYS[:5])
    evidence = {
        "introduced_by": "release 41",
        "introduced_at": DAYS[5],
        "metric": {"column": "amount", "aggregate": "null_rate"},
        "margin": 3,
    }
    wide = RIGHT.replace("CASE WHEN refunded", "CASE WHEN refunded OR order_id = 401")
    world.spec = make_spec(range={"evidence": evidence}, transform={"sql": wide})
    summary = world.run(start_date=DAYS[4], end_date=DAYS[8])
    assert [one.partition for one in summary.expectation.changed] == [DAYS[4]]


def test_rows_that_shift_from_one_day_to_the_next_are_found_on_both_days(world: World) -> None:
    shifted = RIGHT.replace(
        "FROM raw.orders",
        "FROM (SELECT * REPLACE (CASE WHEN order_id BETWEEN 301 AND 305 THEN order_date + 1 ELSE order_date END "
        "AS order_date) FROM raw.orders) AS o",
    )
    world.spec = make_spec(
        transform={"sql": shifted},
        compare=[{"row_count": {"change_between": [0, 0]}}, {"row_diff": {"max_added": 0, "max_removed": 0}}],
    )
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(ValidationFailed) as failed:
        world.validate(scoped)
    said = str(failed.value)
    assert f"{DAYS[3]}: row_count change: fail" in said or f"{DAYS[3]}: row_count" in said
    assert f"{DAYS[3]}: row_diff: fail" in said
    assert "0 added, 5 removed" in said
    assert conclude(world.work()).counts["rejected"] >= 1
