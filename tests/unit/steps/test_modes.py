"""Stage, look, publish: each in a run of its own, and every wait says what it waits for and since when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.spec.request import Mode
from airflow_backfill_provider.steps.asking import ask
from airflow_backfill_provider.steps.publish import publish
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.waiting import lasting, waiting_lines
from airflow_backfill_provider.steps.way_on import clear_command


def status(world: World, found: str) -> str:
    record = world.ledger.backfill(found)
    return "\n".join(waiting_lines(world.ledger, record, record.updated_at + timedelta(hours=5, minutes=59)))


def test_what_one_run_staged_another_publishes_and_computes_only_what_is_gone(world: World) -> None:
    found = world.prepare(mode="stage").plan.backfill_id
    assert conclude(world.work(found)).reached(Mode.STAGE)
    assert "validated, 20" in status(world, found)
    assert "(5 hours)" in status(world, found)
    assert f'"backfill_id": "{found}", "mode": "publish"' in status(world, found)

    gone = world.ledger.partitions(found)[DAYS[0]].location
    assert gone is not None
    world.warehouse.drop(gone)
    world.run_id = "run 2"
    assert world.scope(backfill_id=found, mode="plan").batches == ()
    assert world.ledger.backfill(found).run_id == "run 1", "a preview takes nothing over"
    again = world.scope(backfill_id=found, mode="publish")
    assert again.resumed
    assert [result.staged for result in world.stage(again)] == [len(again.batches[0].keys), 0, 0]
    world.validate(again)
    assert publish(world.work(found)).published
    assert conclude(world.work(found)).reached(Mode.PUBLISH)
    assert world.amounts(DAYS[0])[0] is None


def test_the_run_that_took_a_backfill_over_is_the_one_to_clear_and_both_are_known(world: World) -> None:
    world.scope(mode="stage")
    found, world.run_id = world.id, "run 2"
    for _ in range(2):
        world.scope(backfill_id=found)
    record = world.ledger.backfill(found)
    assert (record.run_id, record.mode) == ("run 2", "publish")
    assert "--run-id 'run 2'" in clear_command(record)
    assert world.ledger.runs(found) == {("backfill__orders", "run 1"), ("backfill__orders", "run 2")}
    assert len(world.ledger.events(found, "run.took_over")) == 1


def test_an_id_that_nobody_has_is_refused(world: World) -> None:
    with pytest.raises(RequestError, match="no backfill 0123456789ab"):
        world.scope(backfill_id="0123456789ab", mode="publish")


def test_a_question_says_since_when_it_waits_and_in_which_run(world: World) -> None:
    world.spec = make_spec(approval={"required": "always"})
    world.scope()
    ask(world.work(), Gate.PLAN, "ann")
    assert world.ledger.backfill(world.id).state is BackfillState.AWAITING_APPROVAL
    said = status(world, world.id)
    assert "awaiting_approval, 20" in said
    assert "about the plan on 20" in said
    assert "(5 hours), in run run 1; nobody has answered" in said
    assert "Required Actions" in said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 seconds"), (61, "1 minute"), (7_200, "2 hours"), (172_799, "1 day"), (172_800, "2 days")],
)
def test_a_wait_is_rounded_down(seconds: int, said: str) -> None:
    assert lasting(timedelta(seconds=seconds)) == said
