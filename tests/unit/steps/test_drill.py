"""A drill goes the whole way on staging, is stopped by the partition it damaged, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
import team_code
from report_reading import Report
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.errors import NotApproved, PublishRefused, RequestError, Stopped, ValidationFailed
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.spec.drill import with_range
from airflow_backfill_provider.spec.request import Mode, Request
from airflow_backfill_provider.steps.drill import DAMAGED_EVENT, DrillEnd, ended
from airflow_backfill_provider.steps.publish import publish
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.scope import Run
from airflow_backfill_provider.steps.whole_drill import drill
from airflow_backfill_provider.steps.work import go_on

RANGE = {"start_date": DAYS[0], "end_date": DAYS[2]}


def drilled(world: World, run_id: str = "drill 1", **conf: Any) -> DrillEnd:
    world.run_id = run_id
    request = Request.from_conf((conf or RANGE) | {"drill": True})
    return drill(world.work(), request, Run("backfill__orders", run_id, "ann"))


def left(world: World) -> list[str]:
    return [item.location for item in world.warehouse.storage() if item.backfill_id == world.id]


def test_it_passes_by_the_name_of_what_it_damaged_beside_a_real_backfill_and_leaves_nothing_behind(
    world: World,
) -> None:
    real = world.prepare(**RANGE)
    before, receipts = world.published(), world.warehouse.receipts(real.plan.target)

    end = drilled(world)

    assert end.passed
    assert end.damaged == real.plan.trial_partition.key
    assert end.found.startswith(f"{end.damaged}: ")
    assert "repeat a key" in end.found, "it is the message of the check, not that there was one"
    assert world.published() == before
    assert world.warehouse.receipts(real.plan.target) == receipts
    assert left(world) == []
    assert world.ledger.backfill(world.id).target == "drill of analytics.orders"
    assert world.ledger.backfill(world.id).state is BackfillState.EXPIRED
    assert drilled(world, "drill 2").passed
    assert world.publish(real.plan.backfill_id).published


def test_as_tasks_of_a_run_it_ends_well_although_one_failed_and_its_publish_is_refused(world: World) -> None:
    world.spec = make_spec(approval={"required": "always", "before_publish": True})
    scoped = world.scope(**RANGE, drill=True)
    world.try_one()
    world.stage(scoped)
    with pytest.raises(ValidationFailed, match=scoped.plan.trial_partition.key):
        world.validate(scoped)
    with pytest.raises(PublishRefused, match="is a drill, which publishes nothing"):
        publish(world.work())

    summary = conclude(world.work())
    assert summary.reached(Mode.PUBLISH)
    assert any("drill       passed" in line for line in summary.lines())
    text = Report(world).text
    assert "drill passed" in text
    assert (
        f"{scoped.plan.trial_partition.key} was damaged on purpose, and stopped by name; nothing was published" in text
    )
    assert conclude(world.work()).drill == summary.drill


def test_it_does_not_pass_when_another_partition_is_rejected_too(world: World) -> None:
    world.spec = make_spec(
        compute={"conn_id": "warehouse", "fail_fast": False},
        checks=[{"expression_is_true": {"expression": f"order_date <> DATE '{DAYS[2]}'"}}],
        trial={"partition": DAYS[0]},
    )
    end = drilled(world)
    assert not end.passed
    assert f"{DAYS[2]} was rejected too, which nobody damaged" in end.found
    assert left(world) == []


def test_it_does_not_pass_when_the_message_does_not_name_the_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outcome, "__str__", lambda self: f"{self.name}: {self.verdict}")
    end = drilled(world)
    assert not end.passed
    assert end.found == f"{end.damaged} was rejected, and no message names it"


def test_it_does_not_pass_when_its_partition_is_rejected_without_any_damage(world: World) -> None:
    world.spec = make_spec(
        checks=[{"expression_is_true": {"expression": f"order_date <> DATE '{DAYS[0]}'"}}], trial={"partition": DAYS[0]}
    )
    end = drilled(world)
    assert (end.passed, end.damaged) == (False, "")
    assert f"ended before a partition could be damaged: {DAYS[0]} is rejected" in end.found
    assert "expression_is_true" in end.found
    assert left(world) == []


@pytest.mark.parametrize("error", [Stopped("the kill switch"), KeyboardInterrupt()])
def test_what_stops_it_comes_out_and_leaves_nothing_behind(world: World, error: BaseException) -> None:
    def stop() -> None:
        found = world.ledger.find_backfill(world.id)
        if found is not None and found.state is BackfillState.RUNNING:
            raise error

    world.check_stop = stop
    with pytest.raises(type(error)):
        drilled(world)
    end = ended(world.ledger, world.id)
    assert end is not None
    assert not end.passed
    assert world.ledger.backfill(world.id).state is BackfillState.EXPIRED
    assert left(world) == []
    world.check_stop = go_on
    assert drilled(world, "drill 2").passed


def test_one_of_more_partitions_than_may_go_unasked_needs_the_approval_of_its_plan(world: World) -> None:
    world.spec = make_spec(approval={"required": "always"})
    with pytest.raises(NotApproved, match=r"A drill of 4 partitions needs an approval.*Name at most 3 partitions"):
        drilled(world, start_date=DAYS[0], end_date=DAYS[3])
    assert world.ledger.backfill(world.id).state is BackfillState.EXPIRED
    world.spec = make_spec(approval={"required": {"over_partitions": 4}})
    assert drilled(world, "drill 2", start_date=DAYS[0], end_date=DAYS[3]).passed


def test_it_does_not_pass_when_it_never_came_to_the_damage(world: World) -> None:
    world.spec = make_spec(transform={"sql": RIGHT.replace(", note", ", CAST(random() AS VARCHAR) AS note")})
    end = drilled(world)
    assert (end.passed, end.damaged) == (False, "")
    assert "ended before a partition could be damaged" in end.found
    assert "the trial failed" in end.found
    assert left(world) == []


def test_it_does_not_pass_on_rows_that_are_not_there(world: World) -> None:
    end = drilled(world, start_date="2024-04-01", end_date="2024-04-02")
    assert (end.passed, end.damaged) == (False, "")
    assert "has no row, so nothing could be damaged; name a range with rows" in end.found


def test_without_a_range_it_is_over_the_last_three_partitions(world: World) -> None:
    request = with_range(world.spec, Request.from_conf({"drill": True}))
    assert (request.start_date, request.expand) == ("-3d", True)
    listed = make_spec(
        target={"table": "analytics.orders", "partition_by": "note", "key": ["order_id"], "grain": "list"}
    )
    with pytest.raises(RequestError, match="needs partitions"):
        with_range(listed, Request.from_conf({"drill": True}))


@pytest.mark.parametrize("other", [{"mode": "stage"}, {"backfill_id": "0123456789ab"}, {"restage": True}])
def test_it_is_a_backfill_of_its_own_that_goes_as_far_as_a_publish(other: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="a drill is a backfill of its own"):
        Request.from_conf({"drill": True} | other)


def test_an_ended_drill_says_how_it_came_out_and_a_real_backfill_nothing(world: World) -> None:
    drilled(world)
    assert ended(world.ledger, world.id) is not None
    world.run_id = "run 1"
    world.run(**RANGE)
    assert ended(world.ledger, world.id) is None


def test_code_is_damaged_in_what_it_gave_and_called_once_for_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    returns, called = team_code.returns, []

    def counted(context: Any) -> list[dict[str, Any]]:
        called.append(context.partition_key)
        return returns(context)

    monkeypatch.setattr(team_code, "returns", counted)
    world.spec = make_spec(transform={"python": "team_code:returns"})
    end = drilled(world, start_date=DAYS[0], end_date=DAYS[0])
    assert end.passed, end.found
    assert called == [DAYS[0]] * 3, "twice by the trial, whose rows are staged, and once for the damage"


def test_rows_that_are_not_twice_those_before_are_not_called_damaged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    returns, called = team_code.returns, []

    def loses_a_row(context: Any) -> list[dict[str, Any]]:
        called.append(context.partition_key)
        return returns(context)[len(called) > 2 :]

    monkeypatch.setattr(team_code, "returns", loses_a_row)
    world.spec = make_spec(transform={"python": "team_code:returns"})
    end = drilled(world, start_date=DAYS[0], end_date=DAYS[0])
    assert (end.passed, end.damaged) == (False, "")
    assert world.ledger.events(world.id, DAMAGED_EVENT) == []
    assert left(world) == []
