"""What a person is told to do next, for every state a backfill can be in."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from steps_world import DAYS, NOW, World, make_spec

from airflow_backfill_provider.errors import BudgetExceeded, Stopped, Throttled, WaitedTooLong
from airflow_backfill_provider.ledger.states import STOPPED, BackfillState
from airflow_backfill_provider.spec.throttle import Throttle
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.throttle import Throttling
from airflow_backfill_provider.steps.way_on import clear_command, once_lifted, way_on


@pytest.fixture
def planned(world: World) -> World:
    world.scope()
    return world


def test_every_state_says_what_to_do_next(planned: World) -> None:
    record = planned.ledger.backfill(planned.id)
    said = {state: way_on(planned.ledger, dataclasses.replace(record, state=state)) for state in BackfillState}
    assert len(set(said.values())) >= len(BackfillState) - 2  # planned and running, rolled back and expired
    for state in STOPPED:
        assert clear_command(record) in said[state]


def test_a_staged_backfill_is_published_by_its_id_and_not_by_clearing(planned: World) -> None:
    record = dataclasses.replace(planned.ledger.backfill(planned.id), state=BackfillState.VALIDATED)
    publish = f"""airflow dags trigger {record.dag_id} --conf '{{"backfill_id": "{record.backfill_id}", "mode": "publish"}}'"""
    assert publish in way_on(planned.ledger, dataclasses.replace(record, mode="stage"))
    assert clear_command(record) in way_on(planned.ledger, dataclasses.replace(record, mode="publish"))


def test_a_run_id_with_spaces_is_one_word_of_the_command(planned: World) -> None:
    record = dataclasses.replace(planned.ledger.backfill(planned.id), run_id="my run; rm -rf /")
    assert "--run-id 'my run; rm -rf /' --only-failed" in clear_command(record)


def next_step(world: World) -> str:
    record = world.ledger.backfill(world.id)
    assert record.state is BackfillState.HALTED
    return way_on(world.ledger, record)


def test_a_used_up_budget_is_raised_and_the_whole_run_cleared(world: World) -> None:
    world.spec = make_spec(compute={"conn_id": "warehouse", "max_staging_bytes": "1 B"})
    scoped = world.scope()
    with pytest.raises(BudgetExceeded):
        world.stage(scoped)
    record = world.ledger.backfill(world.id)
    assert "safe-backfill resume" not in next_step(world)
    assert "A budget of its spec is used up. Raise it" in next_step(world)
    assert clear_command(record, only_failed=False) in next_step(world)
    assert f"airflow safe-backfill abandon {world.id}" in next_step(world)
    assert once_lifted(world.ledger, record) in next_step(world)
    world.spec = make_spec(compute={"conn_id": "warehouse", "max_staging_bytes": "1 GB"})
    world.stage(world.scope())


def test_a_throttle_that_gave_up_is_no_stop_that_is_lifted(planned: World) -> None:
    live_lag = Throttle.model_validate(
        {"name": "live_lag", "sql": "SELECT 1", "conn_id": "live", "max": 30, "give_up_after": "1h"}
    )
    now = NOW
    planned.ledger._now = lambda: now
    work = planned.work()
    check = Throttling(planned.ledger, planned.id, [live_lag], lambda _: 31, lambda: now, "tester", run_id=work.run_id)
    work = dataclasses.replace(work, check_throttle=check)
    with pytest.raises(Throttled):
        stage_batch(work, DAYS)
    now += timedelta(hours=2)
    with pytest.raises(WaitedTooLong, match="longer than its give_up_after of 1h"):
        stage_batch(work, DAYS)
    assert "safe-backfill resume" not in next_step(planned)
    assert "It waited for others for longer than give_up_after" in next_step(planned)
    assert next_step(planned).endswith(clear_command(planned.ledger.backfill(planned.id)))


def test_a_stop_is_lifted_and_the_last_one_counts(world: World) -> None:
    world.spec = make_spec(compute={"conn_id": "warehouse", "max_staging_bytes": "1 B"})
    scoped = world.scope()
    with pytest.raises(BudgetExceeded):
        world.stage(scoped)
    world.spec = make_spec()
    scoped = world.scope()

    def stop() -> None:
        raise Stopped("Stopped: the kill switch.")

    world.check_stop = stop
    with pytest.raises(Stopped):
        world.stage(scoped)
    record = world.ledger.backfill(world.id)
    assert "airflow safe-backfill resume orders" in next_step(world)
    assert f"airflow dags unpause {record.dag_id}" in next_step(world)
    assert next_step(world).endswith(f"then: {clear_command(record)}")
    assert once_lifted(world.ledger, record) == f"Go on with: {clear_command(record)}"
