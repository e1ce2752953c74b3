"""Clearing and resuming: who a partition is, what is computed again, and what a stop in the middle of a publish leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.errors import ConnectionLost, PublishRefused, Stopped, ValidationFailed, WarehouseError
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps import stage
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.validate import validate_batch

BREAKS = RIGHT.replace(
    "note\n", "CAST(CASE WHEN note = 'broken' THEN CAST(note AS INTEGER) ELSE 0 END AS VARCHAR) AS note\n"
)


def attempts(world: World) -> list[int]:
    return [record.attempt for record in world.ledger.partitions(world.id).values()]


def dealt_in(size: int, **changes: Any) -> dict[str, Any]:
    return {"compute": {"conn_id": "warehouse", "partitions_per_task": size, **changes}}


def test_a_partition_is_known_by_its_key_when_the_batches_are_dealt_otherwise(world: World) -> None:
    world.spec = make_spec(**dealt_in(4))
    scoped = world.scope()
    stage_batch(world.work(), scoped.batches[1].keys)
    world.spec = make_spec(**dealt_in(3))
    again = world.scope()
    assert set(again.batches[1].keys) != set(scoped.batches[1].keys)
    done = [stage_batch(world.work(), batch.keys) for batch in again.batches]
    assert sum(one.reused for one in done) == len(scoped.batches[1].keys)
    assert attempts(world) == [1] * len(DAYS)
    world.validate(again)
    world.publish()
    assert all(None in world.amounts(day).values() for day in DAYS)


def test_the_second_and_the_third_resume_compute_again_only_what_failed(world: World) -> None:
    world.spec = make_spec(transform={"sql": BREAKS}, compare=[], **dealt_in(3, fail_fast=False))
    world.engine.execute(
        f"UPDATE raw.orders SET note = 'broken' WHERE order_id = 201 AND order_date = DATE '{DAYS[2]}'"
    )
    scoped = world.scope(partitions=list(DAYS[:3]))
    for _ in range(2):
        with pytest.raises(WarehouseError, match=f"1 of .* partitions could not be staged.*{DAYS[2]}"):
            world.stage(scoped)
    world.engine.execute(f"UPDATE raw.orders SET note = 'fine' WHERE order_id = 201 AND order_date = DATE '{DAYS[2]}'")
    assert [(one.staged, one.reused) for one in world.stage(scoped)] == [(1, 2)]
    assert attempts(world) == [1, 1, 3]


def rejected(world: World) -> tuple[str, ...]:
    """The keys of a task of which two partitions were rejected, for a cause that is mended by now."""
    world.spec = make_spec(checks=[{"not_null": {"column": "note"}}], **dealt_in(3, fail_fast=False))
    world.engine.execute("UPDATE raw.orders SET note = NULL WHERE order_id IN (101, 201)")
    (batch,) = world.scope(partitions=list(DAYS[:3])).batches
    stage_batch(world.work(), batch.keys)
    with pytest.raises(ValidationFailed):
        validate_batch(world.work(), batch.keys)
    world.engine.execute("UPDATE raw.orders SET note = 'mended' WHERE order_id IN (101, 201)")
    return tuple(batch.keys)


@pytest.mark.parametrize("survived", [0, 1])
def test_a_validation_that_broke_off_while_it_staged_again_goes_on_when_it_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    keys, write, written = rejected(world), stage.write, []

    def lost(*args: Any) -> Any:
        written.append(args)
        if len(written) > survived:
            raise ConnectionLost("The server closed the connection.")
        return write(*args)

    monkeypatch.setattr(stage, "write", lost)
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            validate_batch(world.work(), keys)
    monkeypatch.undo()
    validate_batch(world.work(), keys)
    assert set(world.ledger.counts(world.id) - Counter()) == {PartitionState.VALIDATED}


def test_a_validation_does_not_stage_again_what_another_task_has_begun_to_stage_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*args: Any) -> Any:
        raise ConnectionLost("The server closed the connection.")

    keys = rejected(world)
    monkeypatch.setattr(stage, "write", lost)
    with pytest.raises(ConnectionLost):
        validate_batch(world.work(), keys)
    monkeypatch.undo()
    world.ledger.start_staging(world.id, [DAYS[1]], owner="the task stage_recompute")
    with pytest.raises(PublishRefused, match=f"{DAYS[1]} cannot be validated before being staged"):
        validate_batch(world.work(), keys)


def test_a_stop_at_any_moment_of_a_publish_leaves_all_of_it_or_nothing(world: World) -> None:
    world.prepare()
    before = world.published()
    for survived in range(20):
        left = [survived]

        def check(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Stopped("the switch")

        world.check_stop = check
        try:
            world.publish()
        except Stopped:
            assert world.published() == before
            assert world.ledger.backfill(world.id).state is BackfillState.HALTED
        else:
            break
    assert survived > 1, "it was stopped in the middle too"
    assert [None in world.amounts(day).values() for day in DAYS] == [True] * len(DAYS)
    assert world.ledger.backfill(world.id).state is BackfillState.PUBLISHED
