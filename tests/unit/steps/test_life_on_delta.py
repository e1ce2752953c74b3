"""The whole life of a backfill on Delta tables: the same steps, the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_engines import Delta
from steps_world import DAYS, World, fill

from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.warehouses.base import Action


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    engine = Delta()
    warehouse = engine.create(tmp_path)
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        ledger.upgrade()
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()


def test_a_correction_is_published_and_undone_and_later_writes_elsewhere_stay(world: World) -> None:
    old, outside = world.published(), world.outside()

    summary = world.run()

    assert summary.backfill.state is BackfillState.COMPLETED
    assert len([row for row in world.published() if row[2] is None]) == len(DAYS)
    assert world.outside() == outside
    assert set(world.ledger.counts(world.id)) == {PartitionState.PUBLISHED}
    world.engine.execute("INSERT INTO analytics.orders VALUES (9100, DATE '2024-03-12', 5, 'later')")
    later = world.outside()

    world.rollback()

    assert [row for row in world.published() if row not in later] == [row for row in old if row not in outside]
    assert world.outside() == later
    assert not world.rollback().restored


def test_publishing_twice_commits_once(world: World) -> None:
    scoped = world.prepare()
    world.publish()

    world.publish()

    (receipt,) = world.warehouse.receipts(scoped.plan.target)
    assert (receipt.action, receipt.backfill_id, receipt.keys) == (Action.PUBLISH, world.id, DAYS)
