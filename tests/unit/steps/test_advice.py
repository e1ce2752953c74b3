"""What a message advises works, and what does not work no message advises."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from contract_engines import Delta, Memory
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import (
    BackfillError,
    ConnectionLost,
    IntentChanged,
    PublishRefused,
    SourceMoved,
    ValidationFailed,
)
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.ending import give_up
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.way_on import way_on

on_memory = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])


def with_target(**changes: str) -> BackfillSpec:
    return make_spec(
        target={"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"]} | changes,
    )


def asked_for(message: str) -> dict[str, Any]:
    """The conf that a message says to trigger with."""
    (conf,) = re.findall(r'\{"backfill_id": "[0-9a-f]{12}", "restage": true\}', message)
    return dict(json.loads(conf))


@on_memory
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"timezone": "Asia/Tokyo"}, "target.timezone ('UTC' then, 'Asia/Tokyo' now)"),
        ({"grain": "week"}, "target.grain ('day' then, 'week' now)"),
        ({"table": "raw.orders"}, "target.table ('analytics.orders' then, 'raw.orders' now)"),
    ],
)
def test_a_backfill_whose_target_changed_is_not_said_to_be_staged_again(
    world: World, changes: dict[str, str], told: str
) -> None:
    scoped = world.scope()
    world.spec = with_target(**changes)
    for refused in (
        lambda: stage_batch(world.work(), scoped.batches[0].keys),
        lambda: world.scope(),
        lambda: world.scope(backfill_id=world.id, restage=True),
    ):
        with pytest.raises(IntentChanged) as error:
            refused()
        assert told in str(error.value)
        assert "restage" not in str(error.value)
        assert f"airflow safe-backfill abandon {world.id}" in str(error.value)
    world.spec = make_spec()
    assert world.scope().resumed, "the planned version goes on"
    give_up(world.work(), "its target changed")
    world.run_id = "run 2"
    assert not world.scope().resumed


@on_memory
def test_a_key_that_changed_is_staged_again_as_the_message_says(world: World) -> None:
    scoped = world.scope()
    world.spec = make_spec(
        target={"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id", "order_date"]}
    )
    with pytest.raises(IntentChanged) as error:
        stage_batch(world.work(), scoped.batches[0].keys)
    again = world.scope(**asked_for(str(error.value)))
    assert sum(result.staged for result in world.stage(again)) == len(DAYS)


def rejected(world: World, *, by: str) -> str:
    """What a backfill that a check of the range, or of a partition, said no to is told."""
    bound = {"row_count": {"change_between": [1, 1], "over": by}}
    world.spec = make_spec(compare=[bound])
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(ValidationFailed) as error:
        world.validate(scoped)
    return str(error.value)


@on_memory
@pytest.mark.parametrize("by", ["partition", "range"])
def test_mended_sql_after_a_no_is_staged_again_and_a_mended_check_is_judged_again(world: World, by: str) -> None:
    said = rejected(world, by=by)
    assert "clear scope_partitions with downstream" in said
    checks = world.spec
    world.spec = make_spec(compare=[])
    world.validate(world.scope())
    assert world.ledger.backfill(world.id).state is BackfillState.VALIDATED
    world.spec = checks.model_copy(
        update={"transform": make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "amount")}).transform}
    )
    with pytest.raises(BackfillError):
        world.scope()
    again = world.scope(**asked_for(said))
    assert sum(result.staged for result in world.stage(again)) == len(DAYS)


@on_memory
def test_the_status_of_a_rejected_backfill_says_what_mended_sql_takes(world: World) -> None:
    said = rejected(world, by="partition")
    conclude(world.work())
    backfill = world.ledger.backfill(world.id)
    assert backfill.state is BackfillState.REJECTED
    assert asked_for(way_on(world.ledger, backfill)) == asked_for(said)


@pytest.mark.parametrize("world", [Delta], indirect=True, ids=["delta"])
def test_where_the_plan_pins_its_sources_nobody_is_told_to_clear_once_they_are_mended(world: World) -> None:
    world.spec = make_spec(checks=[{"not_null": {"column": "note"}}], compare=[])
    world.engine.execute("UPDATE raw.orders SET note = NULL WHERE order_id = 303")
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(ValidationFailed) as error:
        world.validate(scoped)
    assert "clear this task" not in str(error.value)
    world.engine.execute("UPDATE raw.orders SET note = 'found' WHERE order_id = 303")
    with pytest.raises(ValidationFailed):
        world.validate(scoped)
    again = world.scope(**asked_for(str(error.value)))
    world.stage(again)
    world.validate(again)
    assert world.publish().published


def test_a_source_that_moved_between_two_units_is_no_reason_for_a_rebase(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = make_spec(publish={"unit": "week"})
    world.prepare()
    replace, calls = world.warehouse.replace_partitions, iter([True, False])

    def break_at_the_second(*given: Any) -> Any:
        if next(calls):
            return replace(*given)
        raise ConnectionLost("gone")

    monkeypatch.setattr(world.warehouse, "replace_partitions", break_at_the_second)
    with pytest.raises(ConnectionLost):
        world.publish()
    monkeypatch.undo()
    world.engine.execute(f"INSERT INTO raw.orders VALUES (7777, DATE '{DAYS[-1]}', 1, 'late', FALSE)")

    with pytest.raises(SourceMoved) as error:
        world.publish()

    said = str(error.value)
    assert "rebase" not in said
    assert "3 of 10 partitions were published before and stay so" in said
    with pytest.raises(PublishRefused, match="plan cannot be revised any more"):
        world.scope(backfill_id=world.id, rebase=True)
    assert f"airflow safe-backfill rollback {world.id}" in said
    world.engine.execute("DELETE FROM raw.orders WHERE order_id = 7777")
    assert "put the source back as it was and clear atomic_publish" in said
    assert world.publish().published
