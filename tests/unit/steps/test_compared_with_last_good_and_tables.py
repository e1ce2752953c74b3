"""Comparisons with what the last good backfill published, and with another table."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from report_reading import Report
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.errors import SpecError, ValidationFailed

RANGE = {"start_date": DAYS[0], "end_date": DAYS[1]}
LAST_GOOD = {"sum": {"column": "amount", "against": "last_good", "max_abs_change": 0}}
SIBLING = {"against": {"table": "analytics.sibling"}, "max_abs_change": 0}
MORE = RIGHT.replace("ELSE amount END", "ELSE amount + 1 END")


def spec(sql: str = RIGHT, *compare: dict[str, Any]) -> Any:
    return make_spec(transform={"sql": sql}, compare=list(compare or [LAST_GOOD]))


def answers(world: World, name: str) -> list[tuple[str, str, str]]:
    rows = [row for row in Report(world).rows("checks.csv") if row["check"] == name]
    return [(row["partition"], row["verdict"], row["found"]) for row in rows]


def test_what_the_last_good_backfill_published_is_what_the_next_one_is_held_against(world: World) -> None:
    name = "sum(amount) against last_good"
    world.spec = spec()
    world.run(**RANGE)
    assert answers(world, name) == [(day, "warn", "nothing to compare with") for day in DAYS[:2]]
    first = world.id

    world.engine.execute(f"UPDATE analytics.orders SET amount = amount + 5 WHERE order_date = DATE '{DAYS[0]}'")
    world.run_id = "run 2"
    world.run(start_date=DAYS[0], end_date=DAYS[2])
    again = answers(world, name)
    assert [(day, verdict) for day, verdict, _ in again] == [(DAYS[2], "warn"), (DAYS[0], "pass"), (DAYS[1], "pass")]
    held = next(row for row in Report(world).rows("checks.csv") if row["check"] == name and row["verdict"] == "pass")
    assert held["detail"].startswith(f"as published by backfill {first} of ")

    world.run_id, world.spec = "run 3", spec(MORE)
    with pytest.raises(
        ValidationFailed, match=rf"{DAYS[0]}: sum\(amount\) against last_good: fail: .*\+5 .*as published"
    ):
        world.prepare(**RANGE)


def test_what_was_rolled_back_is_not_good(world: World) -> None:
    world.spec = spec()
    world.run(**RANGE)
    world.rollback()
    world.run_id = "run 2"
    world.prepare(**RANGE)
    assert {verdict for _, verdict, _ in answers(world, "sum(amount) against last_good")} == {"warn"}


def test_a_sibling_table_is_reconciled_for_each_partition_and_the_range(world: World) -> None:
    world.engine.execute(
        "CREATE TABLE analytics.sibling AS SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount "
        "FROM raw.orders"
    )
    world.spec = spec(RIGHT, {"sum": {"column": "amount", **SIBLING}}, {"row_count": SIBLING})
    world.prepare(**RANGE)
    found = answers(world, "sum(amount) against analytics.sibling")
    assert [(day, verdict) for day, verdict, _ in found] == [
        ("whole range", "pass"),
        (DAYS[0], "pass"),
        (DAYS[1], "pass"),
    ]

    world.run_id = "run 2"
    world.engine.execute(f"DELETE FROM analytics.sibling WHERE order_id = 401 AND order_date = DATE '{DAYS[4]}'")
    world.spec = spec(MORE, {"row_count": SIBLING})
    with pytest.raises(
        ValidationFailed, match=rf"{DAYS[4]}: row_count against analytics.sibling: fail: .*6, from 5: \+1"
    ):
        world.prepare(start_date=DAYS[4], end_date=DAYS[4])


def test_a_table_called_baseline_is_not_taken_for_what_is_published(world: World) -> None:
    empty = {"against": {"table": "baseline"}, "max_abs_change": 0}
    world.engine.execute("CREATE TABLE baseline AS SELECT * FROM analytics.orders LIMIT 0")
    world.spec = spec(RIGHT, {"row_count": {"max_abs_change": 0}}, {"row_count": empty})
    with pytest.raises(ValidationFailed):
        world.prepare(**RANGE)
    assert {verdict for _, verdict, _ in answers(world, "row_count against baseline")} == {"pass", "fail"}
    held = Report(world).rows("checks.csv")
    assert sorted(
        row["verdict"] for row in held if row["partition"] == DAYS[0] and row["check"] == "row_count against baseline"
    ) == [
        "fail",
        "pass",
    ]


def test_a_table_or_column_that_is_not_there_is_refused_when_the_plan_is_made(world: World) -> None:
    world.spec = spec(RIGHT, {"row_count": SIBLING})
    with pytest.raises(
        SpecError, match=r"compare\[0\]\.row_count\.against: analytics\.sibling with a column order_date"
    ):
        world.scope(**RANGE, mode="plan")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"row_count": {"against": "last_good", "max_abs_change": 0, "over": "range"}}, "judged for each partition"),
        ({"row_count": {"against": {"table": ""}, "max_abs_change": 0}}, "table"),
        ({"row_count": {"against": "yesterday", "max_abs_change": 0}}, "last_good"),
    ],
)
def test_another_side_is_refused(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_spec(compare=[entry])
