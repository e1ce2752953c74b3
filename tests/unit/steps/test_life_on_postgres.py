"""The whole life of a backfill in PostgreSQL, and how long it kept other writers out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from contract_engines import Postgres
from steps_world import DAYS, PER_DAY, World, fill

from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude

pytestmark = pytest.mark.skipif(not postgres_server.is_installed(), reason=postgres_server.NEEDS)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    engine = Postgres()
    warehouse = engine.create(tmp_path)
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        ledger.upgrade()
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()


def test_the_results_and_the_summary_say_how_long_nobody_else_could_write(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old = world.published()
    plan = world.prepare().plan
    dead = f"rows that it deletes, up to {len(DAYS) * PER_DAY}, in"
    assert any(dead in warning for warning in plan.warnings)
    caplog.set_level("INFO")

    published = world.publish()

    assert dead in caplog.text

    (event,) = [event for event in world.ledger.events(world.id) if event.action == "write_block"]
    assert event.detail == {"sequence": 1, "seconds": published.write_block_seconds}
    assert published.write_block_seconds is not None
    assert 0 < published.write_block_seconds < 30
    assert world.publish().write_block_seconds is None
    summary = conclude(world.work())
    assert summary.backfill.state is BackfillState.COMPLETED
    blocked = f"  blocked     nobody else could write analytics.orders for {published.write_block_seconds:.1f} s"
    assert blocked in summary.lines()
    assert len([row for row in world.published() if row[2] is None]) == len(DAYS)

    undone = world.rollback()

    assert undone.write_block_seconds is not None
    assert world.published() == old


def test_of_several_commits_the_longest_is_told(world: World) -> None:
    world.spec = world.spec.model_copy(update={"publish": world.spec.publish.model_copy(update={"unit": "week"})})
    world.prepare()

    published = world.publish()

    events = [event for event in world.ledger.events(world.id) if event.action == "write_block"]
    assert [event.detail["sequence"] for event in events] == [1, 2]
    assert published.write_block_seconds == max(event.detail["seconds"] for event in events)
    assert [line for line in conclude(world.work()).lines() if line.endswith(" s at the longest")]
