"""What a person is told to do next, for every state a backfill can be in."""

from __future__ import annotations

import dataclasses

import pytest
from steps_world import World

from airflow_backfill_provider.ledger.states import STOPPED, BackfillState
from airflow_backfill_provider.steps.way_on import clear_command, way_on


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
