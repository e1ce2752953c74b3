"""Rows that change their partition are named, and a range of which no key comes out again stops the publish."""

from __future__ import annotations

from typing import Any

import pytest
from report_reading import Report
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import ValidationFailed
from airflow_backfill_provider.steps.validate import validate_batch, validate_range

RANGE = {"start_date": DAYS[0], "end_date": DAYS[2]}
SHIFTED = """
SELECT order_id, found_on AS order_date, amount, note FROM (
    SELECT *, CASE WHEN order_id IN (1, 2, 3, 4, 5) THEN order_date + 1 ELSE order_date END AS found_on FROM raw.orders
) AS orders
WHERE found_on >= DATE '{{ data_interval_start | ds }}' AND found_on < DATE '{{ data_interval_end | ds }}'
"""
RENUMBERED = """
SELECT order_id + 50000 AS order_id, order_date, amount, note FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
"""


def spec_of(sql: str, *compare: dict[str, Any]) -> Any:
    return make_spec(transform={"sql": sql}, compare=list(compare))


def of_kind(world: World, kind: str) -> dict[str, Any]:
    (found,) = [row for row in Report(world).rows("checks.csv") if row["kind"] == kind]
    return found


def test_5_rows_that_shift_from_one_day_to_the_next_are_named_with_both_days(world: World) -> None:
    world.spec = spec_of(SHIFTED)
    world.prepare(**RANGE)
    found = of_kind(world, "moved_rows")
    assert (found["verdict"], found["found"]) == ("warn", "5 rows moved")
    assert found["detail"].startswith(f"from {DAYS[0]} to {DAYS[1]} (5). A bound of the SQL that is off by a little")


def test_rows_that_stay_are_said_to_stay(world: World) -> None:
    world.prepare(**RANGE)
    assert of_kind(world, "moved_rows")["found"] == "none moved"
    assert of_kind(world, "same_table")["verdict"] == "pass"


def test_where_the_key_holds_the_partition_column_the_report_says_that_nobody_looked_for_moved_rows(
    world: World,
) -> None:
    unlooked = "Nobody looked for rows that moved to another partition: the key holds order_date"
    world.prepare(**RANGE)
    assert unlooked not in Report(world).text
    world.run_id = "run 2"
    target = {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id", "order_date"]}
    world.spec = make_spec(transform={"sql": SHIFTED}, compare=[], target=target)
    world.prepare(start_date=DAYS[3], end_date=DAYS[4])
    assert [row for row in Report(world).rows("checks.csv") if row["kind"] == "moved_rows"] == []
    assert unlooked in Report(world).text


def test_a_range_of_which_no_key_comes_out_again_asks_for_the_wrong_target_unless_the_spec_says_how_many_may_go(
    world: World,
) -> None:
    world.spec = spec_of(RENUMBERED)
    with pytest.raises(ValidationFailed, match=r"0 of 18 published keys come out again; Wrong target\?.*max_removed"):
        world.prepare(**RANGE)
    world.spec = spec_of(RENUMBERED, {"row_diff": {"max_removed": 18}})
    world.scope(**RANGE)  # the same backfill, by a spec whose checks were edited
    for day in DAYS[:3]:
        validate_batch(world.work(), [day])
    assert validate_range(world.work()) == 3


def publish_twice(world: World, *days: str) -> None:
    """An order of each of these days, not its first, stands twice."""
    for day in days:
        last = f"(SELECT max(order_id) FROM analytics.orders WHERE order_date = DATE '{day}')"
        world.engine.execute(f"INSERT INTO analytics.orders SELECT * FROM analytics.orders WHERE order_id = {last}")


def test_partitions_whose_published_keys_repeat_prove_no_key_to_come_out_again(world: World) -> None:
    publish_twice(world, DAYS[1])
    world.spec = spec_of(RENUMBERED)
    with pytest.raises(
        ValidationFailed, match=r"0 of 12 published keys come out again; 1 partitions are left out, whose"
    ):
        world.prepare(**RANGE)


def test_where_no_partition_can_be_matched_nobody_says_that_published_keys_come_out_again(world: World) -> None:
    publish_twice(world, *DAYS[:3])
    world.spec = spec_of(RENUMBERED)
    world.prepare(**RANGE)
    found = of_kind(world, "same_table")
    assert (found["verdict"], found["found"]) == ("warn", "not known")
    assert found["detail"].startswith(
        "3 partitions are left out, whose published keys are NULL or repeat, and the others"
    )


def test_rows_that_move_out_of_a_partition_whose_keys_repeat_are_named_and_each_key_counts_once(world: World) -> None:
    publish_twice(world, DAYS[0])
    world.spec = spec_of(SHIFTED)
    world.prepare(**RANGE)
    found = of_kind(world, "moved_rows")
    assert (found["verdict"], found["found"]) == ("warn", "5 rows moved")


def test_rows_that_are_kept_do_not_prove_that_published_keys_come_out_again(world: World) -> None:
    keeping = {"publish": {"mechanism": "merge", "keep_unmatched": True}, "source": None, "compare": []}
    world.spec = make_spec(transform={"sql": RENUMBERED}, **keeping)
    world.prepare(**RANGE)
    found = of_kind(world, "same_table")
    assert (found["verdict"], found["found"]) == ("warn", "not known")
    assert found["detail"].startswith("keep_unmatched keeps every published row")

    world.run_id = "run 2"
    world.spec = make_spec(**keeping)
    world.prepare(start_date=DAYS[3], end_date=DAYS[4])
    found = of_kind(world, "same_table")
    assert (found["verdict"], found["found"]) == ("pass", "2 of 12 published keys come out again, changed")
