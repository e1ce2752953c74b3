"""A commit that happened: recorded as what it is, whatever became of the worker and of the backfill meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from contract_engines import Memory
from late_commit import Killed, once_confirmed
from steps_world import World

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.ending import accept
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.retention import retention

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])


def state(world: World) -> BackfillState:
    return world.ledger.backfill(world.id).state


def test_a_range_that_something_else_changed_is_never_completed_when_the_worker_dies_while_it_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare()
    late = "INSERT INTO analytics.orders VALUES (9700, DATE '2024-03-10', 1, 'late')"
    once_confirmed(world, lambda: None, monkeypatch, after=lambda: world.engine.execute(late))
    move = world.ledger.move

    def move_and_die(found: str, to: BackfillState, **named: Any) -> None:
        move(found, to, **named)
        if to is not BackfillState.PUBLISHING:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger, "move", move_and_die)
        with pytest.raises(Killed):
            world.publish()

    with pytest.raises(PublishRefused, match="do not hold what was staged"):
        world.publish()
    assert conclude(world.work()).backfill.state is BackfillState.PUBLISHED_UNVERIFIED
    accept(world.work(), "the late row is right")
    kept = retention(world.ledger, world.id)
    assert kept is not None
    assert kept.published_at is not None
