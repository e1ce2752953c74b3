"""``publish.unit``: one period after the other, each in a commit of its own; what goes wrong between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract_faults import InterruptedDuckDB
from killed_step import BY_WEEK, SAMPLED, Place, killed
from pydantic import ValidationError
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import (
    ConnectionLost,
    LockTimeout,
    PublishRefused,
    Stopped,
    TargetMoved,
    ValidationFailed,
    WarehouseError,
)
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, PUBLISH_FAILED_EVENT
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.ending import give_up
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Published, Receipt, Rows, Target
from airflow_backfill_provider.windows import Partition, merge

FIRST_WEEK, SECOND_WEEK = DAYS[:3], DAYS[3:]
"""March 1 to 3, 2024 are a Friday to a Sunday."""


@pytest.fixture
def weekly(world: World) -> World:
    world.spec = make_spec(**BY_WEEK)
    return world


def corrected(world: World) -> list[str]:
    """The days whose refunded order has no amount any more."""
    rows = world.engine.rows("SELECT order_date FROM analytics.orders WHERE amount IS NULL ORDER BY order_date")
    return [str(day) for (day,) in rows]


def receipts(world: World) -> list[tuple[Action, tuple[str, ...]]]:
    return [(receipt.action, receipt.keys) for receipt in world.warehouse.receipts(world.work().stored_plan().target)]


def publish_the_first_week(world: World) -> str:
    """The second week is refused, because somebody writes to it when the first is published; the words of that."""
    world.prepare()
    replace = world.warehouse.replace_partitions

    def then_write(*given: Any) -> Receipt:
        receipt = replace(*given)
        world.engine.execute(f"UPDATE analytics.orders SET amount = amount + 1 WHERE order_date = DATE '{DAYS[5]}'")
        return receipt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.warehouse, "replace_partitions", then_write)
        with pytest.raises(TargetMoved, match=DAYS[5]) as refused:
            world.publish()
    return str(refused.value)


def test_each_week_is_published_and_restored_in_a_commit_of_its_own(weekly: World) -> None:
    before = weekly.published()

    summary = weekly.run()

    assert summary.backfill.state is BackfillState.COMPLETED
    assert corrected(weekly) == list(DAYS)
    assert receipts(weekly) == [(Action.PUBLISH, FIRST_WEEK), (Action.PUBLISH, SECOND_WEEK)]
    assert weekly.publish().note == "published before; nothing to publish"

    restored = weekly.rollback()

    assert (restored.partitions, restored.note) == (10, "restored in 2 commits")
    assert weekly.published() == before
    assert receipts(weekly)[2:] == [(Action.ROLLBACK, SECOND_WEEK), (Action.ROLLBACK, FIRST_WEEK)]
    assert not weekly.rollback().restored


def test_the_plan_says_that_the_range_is_mixed_on_the_way(weekly: World) -> None:
    text = preview(weekly.scope(mode="plan").plan)
    assert "each week in one commit" in text
    assert "mixture of new and old rows" in text


def test_a_refused_unit_leaves_the_units_before_it_published_and_says_so(weekly: World) -> None:
    publish_the_first_week(weekly)

    assert corrected(weekly) == list(FIRST_WEEK)
    assert weekly.ledger.counts(weekly.id) == {PartitionState.PUBLISHED: 3, PartitionState.VALIDATED: 7}
    assert weekly.ledger.backfill(weekly.id).state is BackfillState.VALIDATED
    assert weekly.ledger.events(weekly.id, MOVED_EVENT)[-1].detail["reason"].endswith("3 of 10 partitions published")


def test_the_next_publish_goes_on_with_the_units_that_are_left(weekly: World) -> None:
    publish_the_first_week(weekly)
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")

    result = weekly.publish()

    assert (result.published, result.note) == (True, "published in 2 commits")
    assert corrected(weekly) == list(DAYS)
    assert [keys for _, keys in receipts(weekly)] == [FIRST_WEEK, SECOND_WEEK]
    assert conclude(weekly.work()).backfill.state is BackfillState.COMPLETED


def test_clearing_the_whole_run_after_a_refused_unit_keeps_what_is_published(weekly: World) -> None:
    publish_the_first_week(weekly)
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")

    assert weekly.run().backfill.state is BackfillState.COMPLETED

    assert [keys for _, keys in receipts(weekly)] == [FIRST_WEEK, SECOND_WEEK]


def test_the_range_is_not_judged_again_by_a_baseline_that_is_published_in_part(world: World) -> None:
    distinct = {"count_distinct": {"column": "amount", "change_between": [-10, -10], "over": "range"}}
    world.spec = make_spec(**BY_WEEK, compare=[distinct])
    publish_the_first_week(world)
    world.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")

    assert world.run().backfill.state is BackfillState.COMPLETED


def test_a_publish_reads_backup_and_evidence_once_for_all_its_units(
    weekly: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    weekly.prepare()
    sides: list[type] = []
    reads: list[str] = []
    fingerprint, evidence = weekly.warehouse.fingerprint, weekly.ledger.evidence

    def watched(target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        sides.append(type(rows))
        return fingerprint(target, rows, partitions)

    def read(backfill_id: str) -> Any:
        reads.append(backfill_id)
        return evidence(backfill_id)

    monkeypatch.setattr(weekly.warehouse, "fingerprint", watched)
    monkeypatch.setattr(weekly.ledger, "evidence", read)

    assert weekly.publish().note == "published in 2 commits"
    assert (sides.count(Backup), len(reads)) == (1, 1)


def test_what_is_published_so_far_can_be_rolled_back(weekly: World) -> None:
    publish_the_first_week(weekly)
    moved = weekly.amounts(DAYS[5])

    restored = weekly.rollback()

    assert restored.partitions == 3
    assert corrected(weekly) == []
    assert weekly.amounts(DAYS[5]) == moved
    assert weekly.ledger.backfill(weekly.id).state is BackfillState.ROLLED_BACK
    assert weekly.ledger.counts(weekly.id) == {PartitionState.ROLLED_BACK: 3, PartitionState.VALIDATED: 7}
    with pytest.raises(PublishRefused, match="new backfill"):
        weekly.publish()


def test_a_rollback_that_breaks_between_two_units_keeps_its_range_and_goes_on(weekly: World) -> None:
    before = weekly.published()
    weekly.run()
    replace = weekly.warehouse.replace_partitions
    later = f"UPDATE analytics.orders SET note = {{}} WHERE order_date = DATE '{DAYS[0]}' AND order_id = 1"

    def then_write(*given: Any) -> Receipt:
        receipt = replace(*given)
        weekly.engine.execute(later.format("'later'"))
        return receipt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weekly.warehouse, "replace_partitions", then_write)
        with pytest.raises(TargetMoved, match=DAYS[0]):
            weekly.rollback()
    assert corrected(weekly) == list(FIRST_WEEK)
    spans = [partition.span for partition in weekly.work().stored_plan().partitions]
    assert weekly.ledger.lock_owner("analytics.orders", spans) == weekly.id

    weekly.engine.execute(later.format("'note 1'"))
    assert weekly.rollback().partitions == 3
    assert weekly.published() == before
    assert weekly.ledger.backfill(weekly.id).state is BackfillState.ROLLED_BACK


@pytest.mark.parametrize("conf", [{"restage": True}, {"rebase": True}])
def test_a_plan_that_is_published_in_part_is_not_revised(weekly: World, conf: dict[str, bool]) -> None:
    publish_the_first_week(weekly)
    with pytest.raises(PublishRefused, match=r"3 of 10 partitions .* are published"):
        weekly.scope(**conf)


def test_a_backfill_that_is_published_in_part_cannot_be_given_up(weekly: World) -> None:
    publish_the_first_week(weekly)
    with pytest.raises(PublishRefused, match="rows of it are published"):
        give_up(weekly.work(), "tired of it")


def test_a_stop_between_two_units_halts_and_clearing_goes_on(weekly: World) -> None:
    weekly.prepare()
    calls = 0

    def stop_before_the_second() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Stopped("the switch")

    weekly.check_stop = stop_before_the_second
    with pytest.raises(Stopped):
        weekly.publish()
    assert corrected(weekly) == list(FIRST_WEEK)
    assert weekly.ledger.backfill(weekly.id).state is BackfillState.HALTED

    weekly.check_stop = lambda: None
    assert weekly.publish().published
    assert corrected(weekly) == list(DAYS)


def test_a_unit_in_which_nothing_changes_writes_nothing(weekly: World) -> None:
    weekly.engine.execute(f"UPDATE raw.orders SET refunded = FALSE WHERE order_date <= DATE '{FIRST_WEEK[-1]}'")

    assert weekly.run().backfill.state is BackfillState.COMPLETED

    assert [keys for _, keys in receipts(weekly)] == [SECOND_WEEK]
    assert weekly.rollback().partitions == 7


def moving(order: int, to: str) -> dict[str, Any]:
    """The spec changes by which one order is found on another day."""
    day = f"CASE WHEN order_id = {order} THEN DATE '{to}' ELSE order_date END"
    sql = f"""
        SELECT order_id, found_on AS order_date, amount, note FROM (SELECT *, {day} AS found_on FROM raw.orders) AS orders
        WHERE found_on >= DATE '{{{{ data_interval_start | ds }}}}' AND found_on < DATE '{{{{ data_interval_end | ds }}}}'
    """
    return {"transform": {"sql": sql}, "compare": []}


def test_a_key_that_moves_to_an_earlier_unit_is_rejected_before_anything_is_written(world: World) -> None:
    world.spec = make_spec(**BY_WEEK, **moving(401, DAYS[1]))
    before = world.published()
    with pytest.raises(ValidationFailed, match=rf"from {DAYS[4]} to {DAYS[1]} \(1\)\. .*publish\.unit: range"):
        world.prepare()
    assert world.published() == before
    assert receipts(world) == []


def test_a_move_to_an_earlier_unit_is_seen_where_published_keys_repeat(world: World) -> None:
    world.engine.execute("INSERT INTO analytics.orders SELECT * FROM analytics.orders WHERE order_id = 405")
    world.spec = make_spec(**BY_WEEK, **moving(401, DAYS[1]))
    with pytest.raises(ValidationFailed, match=rf"from {DAYS[4]} to {DAYS[1]} \(1\)\. "):
        world.prepare()


@pytest.mark.parametrize(
    ("unit", "order", "to"), [("week", 101, DAYS[4]), ("range", 401, DAYS[1]), ("week", 301, DAYS[5])]
)
def test_a_key_that_moves_to_a_later_unit_or_within_its_own_is_published_and_restored(
    world: World, unit: str, order: int, to: str
) -> None:
    world.spec = make_spec(publish={"unit": unit, "lock_timeout": "2s"}, **moving(order, to))
    before = world.published()
    assert world.run().backfill.state is BackfillState.COMPLETED
    assert order in world.amounts(to)
    assert world.rollback().restored
    assert world.published() == before


def test_a_unit_that_moved_names_the_way_on_of_a_backfill_that_is_published_in_part(weekly: World) -> None:
    said = publish_the_first_week(weekly)
    assert "3 of 10 partitions were published before and stay so" in said
    assert f'rollback__orders --conf \'{{"backfill_id": "{weekly.id}"}}\'' in said
    assert "rebase" not in said


def test_a_range_that_moved_before_its_first_commit_is_recomputed_by_a_rebase(weekly: World) -> None:
    weekly.prepare()
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount + 1 WHERE order_date = DATE '{DAYS[1]}'")
    with pytest.raises(TargetMoved) as refused:
        weekly.publish()
    assert f'{{"backfill_id": "{weekly.id}", "rebase": true}}' in str(refused.value)


def test_a_commit_whose_answer_is_lost_is_a_success_when_the_other_unit_had_nothing_to_write(
    weekly: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    weekly.engine.execute(f"UPDATE raw.orders SET refunded = FALSE WHERE order_date <= DATE '{FIRST_WEEK[-1]}'")
    weekly.prepare()
    replace = weekly.warehouse.replace_partitions

    def then_break(*given: Any) -> Receipt:
        replace(*given)
        raise WarehouseError("the answer is lost")

    monkeypatch.setattr(weekly.warehouse, "replace_partitions", then_break)
    assert weekly.publish().note == "published in one commit"
    assert weekly.ledger.events(weekly.id, PUBLISH_FAILED_EVENT) == []


def backups(world: World) -> list[str]:
    return [item.location for item in world.warehouse.storage() if item.kind == "backup"]


@contextmanager
def lost_once(
    world: World, over: type[Rows], lost: type[WarehouseError], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The first look at such rows fails."""
    fingerprint, losses = world.warehouse.fingerprint, iter([lost("the network is gone")])

    def unreachable(target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        if isinstance(rows, over) and (loss := next(losses, None)):
            raise loss
        return fingerprint(target, rows, partitions)

    with monkeypatch.context() as patch:
        patch.setattr(world.warehouse, "fingerprint", unreachable)
        with pytest.raises(lost, match="the network is gone"):
            yield


@pytest.mark.parametrize("lost", [ConnectionLost, LockTimeout])
def test_a_connection_that_is_lost_is_not_a_backup_that_is_lost(
    weekly: World, monkeypatch: pytest.MonkeyPatch, lost: type[WarehouseError]
) -> None:
    publish_the_first_week(weekly)
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")
    kept = backups(weekly)

    with lost_once(weekly, Backup, lost, monkeypatch):
        weekly.publish()

    assert backups(weekly) == kept
    assert weekly.publish().note == "published in 2 commits"
    assert backups(weekly) == kept


@pytest.mark.parametrize("lost", [ConnectionLost, LockTimeout])
def test_a_connection_that_is_lost_on_the_way_back_is_not_a_backup_that_is_lost(
    weekly: World, monkeypatch: pytest.MonkeyPatch, lost: type[WarehouseError]
) -> None:
    before = weekly.published()
    weekly.run()
    with lost_once(weekly, Backup, lost, monkeypatch):
        weekly.rollback()
    assert weekly.rollback().restored
    assert weekly.published() == before


def test_a_rollback_that_lost_its_connection_before_it_wrote_does_not_bar_the_publish(
    weekly: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_the_first_week(weekly)
    with lost_once(weekly, Published, ConnectionLost, monkeypatch):
        weekly.rollback()
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount + 1 WHERE order_date = DATE '{DAYS[0]}'")
    with pytest.raises(TargetMoved, match=DAYS[0]):
        weekly.rollback()
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[0]}'")
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")
    assert weekly.publish().note == "published in 2 commits"


def test_a_rollback_that_died_before_it_wrote_is_called_off_by_a_person(weekly: World) -> None:
    publish_the_first_week(weekly)
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")
    weekly.ledger.begin_way_back(weekly.id, merge(weekly.work().stored_plan().partitions), by="killed")
    with pytest.raises(PublishRefused, match=f"abandon {weekly.id}"):
        weekly.publish()

    give_up(weekly.work(), "it was killed", rollback_is_dead=True)

    assert weekly.ledger.backfill(weekly.id).state is BackfillState.VALIDATED
    assert weekly.publish().note == "published in 2 commits"
    with pytest.raises(PublishRefused, match="rows of it are published"):
        give_up(weekly.work(), "once more")


def test_a_backup_that_is_gone_once_a_unit_is_published_is_said_to_be_gone_and_not_made_again(weekly: World) -> None:
    publish_the_first_week(weekly)
    weekly.engine.execute(f"UPDATE analytics.orders SET amount = amount - 1 WHERE order_date = DATE '{DAYS[5]}'")
    (location,) = backups(weekly)
    weekly.warehouse.drop(location)
    with pytest.raises(PublishRefused, match=r"3 of 10 partitions .* are published, and the backup .* is gone"):
        weekly.publish()
    assert backups(weekly) == []


@pytest.mark.parametrize(("grain", "unit"), [("month", "week"), ("list", "day"), ("year", "month")])
def test_a_unit_that_holds_no_whole_partition_is_refused(grain: str, unit: str) -> None:
    target = {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"], "grain": grain}
    with pytest.raises(ValidationError, match=f"unit {unit} holds no whole {grain} partition"):
        make_spec(target=target, publish={"unit": unit})


@pytest.mark.timeout(600)
def test_a_publish_by_week_killed_before_any_statement_leaves_whole_weeks_and_converges(tmp_path: Path) -> None:
    place = Place.create(InterruptedDuckDB(), tmp_path, **BY_WEEK)
    world = place.open()
    world.prepare()
    world.ledger.close()
    seen = set()
    for world in killed(place, "publish", every=SAMPLED):
        seen.add(len(corrected(world)))
        world.publish()
        assert conclude(world.work()).backfill.state is BackfillState.COMPLETED, seen
        assert corrected(world) == list(DAYS)
        assert [keys for _, keys in receipts(world)] == [FIRST_WEEK, SECOND_WEEK]
    assert seen == {0, 3, 10}
    place.close()
