"""The way back holds its range from its first look to its end: also when it breaks between two units, and beside the run itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from contract_engines import Memory
from killed_step import BY_WEEK
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, RangeLocked
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.ending import give_up
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.retention import retention
from airflow_backfill_provider.steps.waiting import waiting_lines
from airflow_backfill_provider.warehouses.base import Receipt
from airflow_backfill_provider.windows import merge

pytestmark = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
FIRST_WEEK, SECOND_WEEK = DAYS[:3], DAYS[3:]
A_FIX = "INSERT INTO analytics.orders VALUES ({}, DATE '{}', 1, 'a fix')"


@pytest.fixture
def weekly(world: World) -> World:
    world.spec = make_spec(**BY_WEEK)
    return world


def holds_range(world: World) -> bool:
    return world.ledger.holds_range(world.id, merge(world.work().stored_plan().partitions))


@contextmanager
def locked(world: World, *, after: int) -> Iterator[None]:
    """The table is locked once so many units are written."""
    replace, written = world.warehouse.replace_partitions, 0

    def then_wait(*given: Any) -> Receipt:
        nonlocal written
        if written == after:
            raise LockTimeout("somebody holds the table")
        written += 1
        return replace(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.warehouse, "replace_partitions", then_wait)
        with pytest.raises(LockTimeout, match="somebody holds the table"):
            yield


def just_before_the_range_is_held(world: World, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    begin = world.ledger.begin_way_back

    def late(*given: Any, **named: Any) -> bool:
        monkeypatch.setattr(world.ledger, "begin_way_back", begin)
        act()
        return begin(*given, **named)

    monkeypatch.setattr(world.ledger, "begin_way_back", late)


def test_a_half_done_rollback_keeps_its_range_however_often_it_fails(weekly: World) -> None:
    before = weekly.published()
    weekly.run()
    with locked(weekly, after=1):
        weekly.rollback()
    for _ in range(2):
        with locked(weekly, after=0):
            weekly.rollback()

        assert holds_range(weekly)
        found = retention(weekly.ledger, weekly.id)
        assert found is not None
        assert found.needed_by == "its rollback is under way"
    now, backfill = datetime.now(UTC), weekly.ledger.backfill(weekly.id)
    assert any("way back    begun" in line for line in waiting_lines(weekly.ledger, backfill, now))
    with pytest.raises(PublishRefused, match=r"7 partitions .* are put back and 3 are not"):
        give_up(weekly.work(), "tired of it")
    first, weekly.run_id = weekly.id, "run 2"
    with pytest.raises(RangeLocked, match=f"Backfill '{first}' owns"):
        weekly.scope(partitions=[DAYS[0]])
    weekly.run_id = "run 1"
    assert weekly.rollback().partitions == 3
    assert weekly.published() == before
    assert not holds_range(weekly)


def test_a_rollback_that_breaks_before_it_writes_gives_its_range_back(world: World) -> None:
    world.run()
    with locked(world, after=0):
        world.rollback()
    assert not holds_range(world)


def test_a_rollback_that_died_before_it_wrote_is_freed_by_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    world.ledger.begin_way_back(world.id, merge(world.work().stored_plan().partitions), by="killed")
    with locked(world, after=0):
        world.rollback()
    assert holds_range(world), "the other one may be about to write"
    give_up(world.work(), "the other one is dead")
    assert not holds_range(world)


def test_a_report_beside_a_rollback_does_not_free_the_range(world: World) -> None:
    before = world.published()
    world.prepare()
    world.publish()
    replace, found = world.warehouse.replace_partitions, []

    def report_first(*given: Any) -> Receipt:
        found.append((conclude(world.work()).backfill.state, holds_range(world)))
        return replace(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.warehouse, "replace_partitions", report_first)
        assert world.rollback().restored
    assert found == [(BackfillState.COMPLETED, True)]
    assert world.published() == before
    assert not holds_range(world)


def test_a_rollback_that_breaks_before_the_report_leaves_the_range_to_the_report(world: World) -> None:
    world.prepare()
    world.publish()
    with locked(world, after=0):
        world.rollback()
    assert holds_range(world)
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    assert not holds_range(world)


@pytest.mark.parametrize("verb", ["rollback", "restore_overwritten"])
def test_nothing_is_put_back_over_a_backfill_that_published_until_the_range_was_held(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    world.run()
    if verb == "restore_overwritten":
        world.rollback(force=True)
    first, equal = world.id, world.amounts(DAYS[2])

    def publish_another() -> None:
        world.run_id, world.spec = "run 2", make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "-1")})
        world.run(partitions=[DAYS[2]])
        # So that no fingerprint tells.
        (refunded,) = (order for order, amount in world.amounts(DAYS[2]).items() if amount == -1)
        old = "NULL" if equal[refunded] is None else equal[refunded]
        world.engine.execute(f"UPDATE analytics.orders SET amount = {old} WHERE order_id = {refunded}")
        assert world.amounts(DAYS[2]) == equal

    just_before_the_range_is_held(world, publish_another, monkeypatch)
    work = world.work()
    with pytest.raises(PublishRefused, match=r"Backfill \w+ wrote to this range after"):
        world.rollback(first) if verb == "rollback" else world.restore_overwritten(first)
    assert world.amounts(DAYS[2]) == equal
    assert not world.ledger.is_on_way_back(work.backfill_id)


def test_a_forced_rollback_that_broke_between_two_units_is_brought_back_from_both_copies(weekly: World) -> None:
    weekly.run()
    weekly.engine.execute(A_FIX.format(9201, FIRST_WEEK[0]), A_FIX.format(9202, SECOND_WEEK[0]))
    fixed = weekly.published()
    with locked(weekly, after=1):
        weekly.rollback(force=True)
    assert weekly.rollback(force=True).partitions == len(FIRST_WEEK)
    old = weekly.published()

    with locked(weekly, after=1):
        weekly.restore_overwritten()
    assert weekly.published() not in (old, fixed)
    with locked(weekly, after=0):
        weekly.restore_overwritten()
    assert holds_range(weekly)
    with pytest.raises(PublishRefused, match=r'are not: .*"restore_overwritten": true'):
        give_up(weekly.work(), "tired of it")
    result = weekly.restore_overwritten()

    assert result.restored
    assert weekly.published() == fixed
    assert not holds_range(weekly)
    assert weekly.restore_overwritten().note == "brought back before; nothing to do"


def test_both_copies_of_a_broken_forced_rollback_are_brought_back_by_one_call(weekly: World) -> None:
    weekly.run()
    weekly.engine.execute(A_FIX.format(9201, FIRST_WEEK[0]), A_FIX.format(9202, SECOND_WEEK[0]))
    fixed = weekly.published()
    with locked(weekly, after=1):
        weekly.rollback(force=True)
    weekly.rollback(force=True)

    result = weekly.restore_overwritten()

    assert (result.partitions, result.note) == (10, "restored in one commit; restored in one commit")
    assert weekly.published() == fixed
