"""Receipts that the table's log does not hold any more: what the ledger recorded still has its way back."""

from __future__ import annotations

import pytest
from contract_engines import Memory
from killed_step import BY_WEEK
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import PublishRefused, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.ending import give_up
from airflow_backfill_provider.warehouses.base import Receipt, Target

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
TWO_DAYS = {"start_date": DAYS[0], "end_date": DAYS[1]}


def lose_receipts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there by now."""
    real = world.warehouse.receipts
    lost = {receipt.sequence for receipt in real(world.work().stored_plan().target)}

    def left(target: Target) -> tuple[Receipt, ...]:
        return tuple(receipt for receipt in real(target) if receipt.sequence not in lost)

    monkeypatch.setattr(world.warehouse, "receipts", left)


def test_a_rollback_goes_by_the_ledger_and_a_second_one_does_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.published()
    world.run(**TWO_DAYS)
    lose_receipts(world, monkeypatch)

    assert world.publish().note == "published before; nothing to publish"
    assert world.rollback().partitions == 2

    assert world.published() == before
    assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK
    assert not world.rollback().restored
    lose_receipts(world, monkeypatch)
    assert world.rollback().note == "rolled back before; nothing to do"
    assert world.published() == before


def test_a_range_that_is_not_what_was_published_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(**TWO_DAYS)
    lose_receipts(world, monkeypatch)
    world.engine.execute(f"INSERT INTO analytics.orders VALUES (9200, DATE '{DAYS[1]}', 1, 'a fix')")
    published = world.published()

    with pytest.raises(TargetMoved, match=DAYS[1]):
        world.rollback()

    assert world.published() == published


def test_units_of_which_only_some_receipts_are_left_are_all_put_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = make_spec(**BY_WEEK)
    before = world.published()
    publish_a_week(world, monkeypatch)
    lose_receipts(world, monkeypatch)

    with pytest.raises(PublishRefused, match="rows of it are published"):
        give_up(world.work(), "tired of it", publish_is_dead=True)
    assert world.publish().published
    assert world.rollback().partitions == len(DAYS)

    assert world.published() == before


def test_a_backfill_that_had_nothing_to_publish_has_nothing_to_undo(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(**TWO_DAYS)
    world.run_id = "run 2"
    world.run(**TWO_DAYS)
    lose_receipts(world, monkeypatch)
    with pytest.raises(PublishRefused, match="there is nothing to undo"):
        world.rollback()


def publish_a_week(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies before the second."""

    class Killed(BaseException):
        pass

    world.prepare()
    real = world.warehouse.replace_partitions
    done: list[Receipt] = []

    def once(*given: object) -> Receipt:
        if done:
            raise Killed
        done.append(real(*given))  # type: ignore[arg-type]
        return done[0]

    with monkeypatch.context() as patch:
        patch.setattr(world.warehouse, "replace_partitions", once)
        with pytest.raises(Killed):
            world.publish()
