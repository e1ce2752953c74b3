"""The control period: partitions that the bug did not affect are recomputed, and must come out as they are published."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from report_reading import Report
from steps_world import DAYS, PER_DAY, RIGHT, World, make_spec

from airflow_backfill_provider.errors import ControlMoved, RequestError, SpecError, Stopped
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps.controlled import CONTROL_EVENT
from airflow_backfill_provider.steps.report import conclude

CONTROL = DAYS[:2]
RANGE = {"start_date": DAYS[2], "end_date": DAYS[-1]}
EVERY_ROW = RIGHT.replace("THEN NULL ELSE amount END", "THEN NULL ELSE amount + 1 END")


def right(world: World, *days: str) -> None:
    """These days were published under the right rule."""
    listed = ", ".join(f"'{day}'" for day in days)
    world.engine.execute(
        f"UPDATE analytics.orders SET amount = NULL WHERE order_id % 100 = 0 AND order_date IN ({listed})"
    )


def spec(world: World, sql: str = RIGHT, *, tolerance: dict[str, float] | None = None, **changes: Any) -> None:
    control: dict[str, Any] = {"partitions": list(CONTROL)} | ({"tolerance": tolerance} if tolerance else {})
    world.spec = make_spec(control_period=control, transform={"sql": sql}, **changes)


@pytest.fixture
def held(world: World) -> World:
    right(world, *CONTROL)
    spec(world)
    return world


def test_a_control_period_that_comes_out_as_published_leaves_nothing_but_its_result(held: World) -> None:
    scoped, before = held.scope(**RANGE), held.published()

    controls = held.hold_control()

    assert [(one.partition, one.rows_old, one.identical, one.held) for one in controls] == [
        (day, PER_DAY, PER_DAY, True) for day in CONTROL
    ]
    assert held.published() == before
    assert held.warehouse.storage() == ()
    assert set(held.ledger.partitions(held.id)) == set(DAYS[2:])
    held.stage(scoped)
    held.validate(scoped)
    held.publish()
    summary = conclude(held.work())
    assert summary.backfill.state is BackfillState.COMPLETED
    assert "  control     2 partitions, recomputed, are as published" in summary.lines()
    assert [row for row in held.published() if str(row[1]) in CONTROL] == [
        row for row in before if str(row[1]) in CONTROL
    ]
    (receipt,) = held.warehouse.receipts(scoped.plan.target)
    assert set(receipt.keys) == set(DAYS[2:])
    report = Report(held)
    assert [tuple(row.values())[:5] for row in report.rows("control_period.csv")] == [
        (day, "as published", "6", "6", "6") for day in CONTROL
    ]
    assert "2 control partitions, computed by the new SQL, came out as published." in report.sentence


def test_a_control_day_that_moves_is_named_with_its_rows_and_columns_and_nothing_else_is_computed(world: World) -> None:
    right(world, CONTROL[1])
    spec(world)
    world.scope(**RANGE)
    before = world.published()

    with pytest.raises(ControlMoved) as moved:
        world.hold_control()

    assert moved.value.moved == (CONTROL[0],)
    assert f"{CONTROL[0]}: 1 of 6 rows changed, differing: amount in 1." in str(moved.value)
    assert "the bug is wider than the range" in str(moved.value)
    assert world.published() == before
    assert world.ledger.counts(world.id)[PartitionState.PENDING] == len(DAYS) - 2
    assert conclude(world.work()).backfill.state is BackfillState.FAILED
    report = Report(world)
    assert [row["outcome"] for row in report.rows("control_period.csv")] == ["moved", "as published"]
    assert [row["columns"] for row in report.rows("control_period.csv")] == ["amount: 1", ""]
    assert "but the new SQL changes 1 control partition as well" in report.sentence
    assert "The control period was not shown to come out as it is published." in report.text


def test_what_was_proved_is_what_the_next_backfill_of_the_table_is_held_against(held: World) -> None:
    few = {"start_date": DAYS[2], "end_date": DAYS[3]}
    scoped = held.scope(**few)
    held.try_one()
    held.stage(scoped)
    held.validate(scoped)
    held.publish()
    assert conclude(held.work()).backfill.state is BackfillState.COMPLETED
    assert "In the last good one" not in Report(held).text

    first, held.run_id = held.id, "run 2"
    held.engine.execute("UPDATE raw.orders SET amount = amount + 1 WHERE order_id = 1")
    held.scope(**few)
    held.try_one()
    with pytest.raises(ControlMoved, match=rf"{CONTROL[0]} did come out as published in backfill {first} of "):
        held.hold_control()
    text = Report(held).text
    assert f"In the last good one, backfill {first} of " in text
    assert "it was at most" in text
    assert f"{CONTROL[0]}, {CONTROL[1]} came out as published." in text


def test_rows_that_leave_or_enter_a_control_day_are_named(held: World) -> None:
    shifted = RIGHT.replace("order_date >=", "order_id <> 1 AND order_id <> 2 AND order_date >=")
    spec(held, shifted)
    held.scope(**RANGE)
    with pytest.raises(ControlMoved, match=rf"{CONTROL[0]}: 2 removed\. Either"):
        held.hold_control()


def test_a_control_period_that_differs_wholesale_asks_whether_the_target_is_the_right_one(held: World) -> None:
    spec(held, RIGHT.replace("order_id,", "order_id + 100000 AS order_id,"))
    held.scope(**RANGE)
    with pytest.raises(ControlMoved, match=r"Wrong target\?.*6 added, 6 removed") as moved:
        held.hold_control()
    assert moved.value.moved == CONTROL
    spec(held, RIGHT.replace("amount, note", "amount, note || '!' AS note"))
    held.scope(**RANGE, restage=True)
    with pytest.raises(ControlMoved, match=r"Wrong target\?.*note differs in every row: .*exclude_columns"):
        held.hold_control()


def test_a_value_may_be_as_far_off_as_its_column_is_allowed_and_no_further(held: World) -> None:
    spec(held, EVERY_ROW, tolerance={"AMOUNT": 1})
    held.scope(**RANGE)
    assert all(control.held for control in held.hold_control())
    spec(held, EVERY_ROW, tolerance={"amount": 0.5})
    held.scope(**RANGE)
    with pytest.raises(ControlMoved, match="amount in 5"):
        held.hold_control()


def test_the_range_is_not_called_valid_before_the_control_period_held(world: World) -> None:
    spec(world)
    with pytest.raises(ControlMoved):
        world.prepare(**RANGE)
    assert world.ledger.backfill(world.id).state is BackfillState.RUNNING


def test_what_held_is_not_computed_again_under_the_same_plan_and_what_did_not_is(world: World) -> None:
    right(world, CONTROL[1])
    spec(world)
    world.scope(**RANGE)

    def computed() -> list[str]:
        return [event.detail["partition"] for event in world.ledger.events(world.id, CONTROL_EVENT)]

    with pytest.raises(ControlMoved):
        world.hold_control()
    right(world, CONTROL[0])
    world.hold_control()
    world.hold_control()
    assert computed() == [*CONTROL, CONTROL[0]]
    spec(world, checks=[])
    world.scope(**RANGE)
    world.hold_control()
    assert computed()[3:] == list(CONTROL), "another plan proves its own"


def test_a_stop_between_two_control_partitions_keeps_what_was_compared(held: World) -> None:
    held.scope(**RANGE)
    calls = iter([False, False, True])

    def stop() -> None:
        if next(calls, False):
            raise Stopped("stopped by a test")

    held.check_stop = stop
    with pytest.raises(Stopped):
        held.hold_control()
    assert len(held.ledger.events(held.id, CONTROL_EVENT)) == 1
    assert held.ledger.backfill(held.id).state is BackfillState.HALTED
    held.scope(backfill_id=held.id)
    assert len(held.hold_control()) == 2
    assert len(held.ledger.events(held.id, CONTROL_EVENT)) == 2


def test_a_control_partition_of_the_range_that_is_live_or_empty_is_refused_when_the_plan_is_made(world: World) -> None:
    spec(world)
    with pytest.raises(RequestError, match="2024-03-01, 2024-03-02, which the range holds too"):
        world.scope()
    for day, reason in (("2024-06-01", "still being written"), ("2024-03-20", "no published row")):
        world.spec = make_spec(control_period={"partitions": [day]})
        with pytest.raises(SpecError, match=reason):
            world.scope()
    assert world.ledger.find_backfill(world.id) is None


def test_a_tolerance_is_of_a_column_of_numbers_that_is_compared(world: World) -> None:
    for column, reason in (("note", "only numbers are close"), ("nowhere", "no such column")):
        spec(world, tolerance={column: 1})
        with pytest.raises(SpecError, match=reason):
            world.scope(**RANGE)
    with pytest.raises(ValidationError, match="order_id is of the key"):
        spec(world, tolerance={"order_id": 1})


@pytest.mark.parametrize(
    ("partitions", "reason"),
    [([], "at least 1"), (["2024-03"], "not a day partition key"), (["2024-03-01", "2024-03-01"], "named twice")],
)
def test_a_control_period_names_partitions(partitions: list[str], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_spec(control_period={"partitions": partitions})


def test_a_restage_because_something_outside_the_spec_was_mended_proves_trial_and_control_anew(held: World) -> None:
    scoped = held.scope(**RANGE)
    held.try_one()
    held.hold_control()
    held.engine.execute(f"UPDATE raw.orders SET amount = amount + 1 WHERE order_date = DATE '{CONTROL[1]}'")

    again = held.scope(backfill_id=held.id, restage=True)

    assert again.plan.plan_hash == scoped.plan.plan_hash, "nothing that the plan knows of differs"
    assert Report(held).rows("control_period.csv")[0]["outcome"] == "not computed"
    assert held.try_one().tried
    assert not held.try_one().tried
    with pytest.raises(ControlMoved) as moved:
        held.hold_control()
    assert moved.value.moved == (CONTROL[1],)
