"""After a failure no partition is begun, or all others are finished; either way nothing is published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import team_code
from steps_world import DAYS, PER_DAY, RIGHT, World, make_spec

from airflow_backfill_provider.errors import (
    CodeFailed,
    ConnectionLost,
    HeldBack,
    LockTimeout,
    PublishRefused,
    StrayWrite,
    ValidationFailed,
    WarehouseError,
)
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps.failing import record_failure
from airflow_backfill_provider.steps.scope import Scoped
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.validate import validate_batch
from airflow_backfill_provider.steps.work import Work

POISON = "INSERT INTO raw.orders VALUES (9999999, DATE '2024-03-02', 1, 'poison', FALSE)"
BREAKS = RIGHT.replace(
    "SELECT order_id,",
    "SELECT order_id * CAST(CASE WHEN order_id = 9999999 THEN 'x' ELSE '1' END AS BIGINT) AS order_id,",
)


def spec(*, fail_fast: bool, **changes: object) -> object:
    compute = {"conn_id": "warehouse", "partitions_per_task": 4, "fail_fast": fail_fast}
    return make_spec(compute=compute, source=None, compare=[], **changes)


def broken(world: World, *, fail_fast: bool) -> Scoped:
    """A plan of three tasks, in which the second partition of the first cannot be computed."""
    world.spec = spec(fail_fast=fail_fast, transform={"sql": BREAKS})
    world.engine.execute(POISON)
    return world.scope()


def work(world: World, clears: int = 0, run_id: str = "run 1") -> Work:
    return replace(world.work(world.id), run_id=run_id, clear_number=clears)


def earlier(world: World) -> Work:
    """The work of a task that Airflow tries again when it fails."""
    return replace(work(world), is_last_try=False)


def begun(world: World) -> list[str]:
    """The partitions of which an attempt was begun."""
    return [key for key, record in world.ledger.partitions(world.id).items() if record.attempt]


def staged(world: World) -> set[str]:
    records = world.ledger.partitions(world.id)
    return {key for key, record in records.items() if record.state is PartitionState.STAGED}


def test_after_a_failure_no_other_partition_begins_and_a_cleared_run_goes_on(world: World) -> None:
    scoped = broken(world, fail_fast=True)
    first, second, third = scoped.batches
    with pytest.raises(WarehouseError, match=r"1 of 4 partitions could not be staged; 1 others are, 2 were not begun"):
        stage_batch(work(world), first.keys)
    for batch in (second, third):
        with pytest.raises(HeldBack, match=r"2024-03-02 failed.*airflow dags clear backfill__orders"):
            stage_batch(work(world), batch.keys)
    assert staged(world) == {DAYS[0]}
    assert begun(world) == list(first.keys)

    world.engine.execute("DELETE FROM raw.orders WHERE order_id = 9999999")
    for batch in (second, first, third):
        stage_batch(work(world, clears=1), batch.keys)
    world.validate(scoped)
    assert world.publish().published


def test_another_run_is_not_held_back_by_the_failure_of_an_earlier_one(world: World) -> None:
    scoped = broken(world, fail_fast=True)
    with pytest.raises(WarehouseError):
        stage_batch(work(world), scoped.batches[0].keys)
    assert stage_batch(work(world, run_id="run 2"), scoped.batches[1].keys).staged == 3


def test_a_task_that_is_running_begins_no_other_partition_once_one_failed_elsewhere(world: World) -> None:
    world.spec = spec(fail_fast=True)
    scoped = world.scope()
    asked = 0

    def fail_elsewhere() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:  # when the task begins, before its first partition, before the next ones
            record_failure(work(world), [DAYS[9]], "elsewhere")

    world.check_stop = fail_elsewhere
    with pytest.raises(HeldBack, match="2024-03-10 failed"):
        stage_batch(work(world), scoped.batches[0].keys)
    assert staged(world) == {DAYS[0]}


def test_a_rejected_partition_holds_the_others_back_as_well(world: World) -> None:
    world.spec = spec(fail_fast=True, checks=[{"not_null": {"column": "note"}}])
    world.engine.execute("UPDATE raw.orders SET note = NULL WHERE order_id = 101")
    scoped = world.scope()
    stage_batch(work(world), scoped.batches[0].keys)
    with pytest.raises(ValidationFailed):
        validate_batch(work(world), scoped.batches[0].keys)
    with pytest.raises(HeldBack):
        stage_batch(work(world), scoped.batches[1].keys)


def test_without_fail_fast_all_others_are_finished_and_the_publish_is_refused(world: World) -> None:
    before = world.published()
    scoped = broken(world, fail_fast=False)
    with pytest.raises(WarehouseError, match="1 of 4 partitions could not be staged; 3 others are"):
        stage_batch(work(world), scoped.batches[0].keys)
    for batch in scoped.batches[1:]:
        stage_batch(work(world), batch.keys)
        validate_batch(work(world), batch.keys)
    assert world.ledger.counts(world.id)[PartitionState.VALIDATED] == 6
    assert DAYS[1] not in staged(world)
    with pytest.raises(PublishRefused):
        world.publish()
    assert world.ledger.backfill(world.id).state is BackfillState.RUNNING
    assert world.published() == before


def by_code(world: World, monkeypatch: pytest.MonkeyPatch, *, fail_fast: bool) -> tuple[Scoped, list[str]]:
    """A plan of three tasks whose function always raises, and the partitions that it was called for."""
    called: list[str] = []

    def breaks(context: Any) -> None:
        called.append(context.partition_key)
        raise ValueError("the rates are not there")

    monkeypatch.setattr(team_code, "returns", breaks)
    world.spec = spec(fail_fast=fail_fast, transform={"python": "team_code:returns"})
    return world.scope(), called


def test_code_that_always_fails_is_called_once_in_each_try_of_a_task_and_by_nobody_after_a_last_try(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoped, called = by_code(world, monkeypatch, fail_fast=True)
    first, second, third = scoped.batches
    for _ in range(2):
        with pytest.raises(CodeFailed, match="1 of 4 partitions could not be staged; 0 others are, 3 were not begun"):
            stage_batch(earlier(world), first.keys)
    with pytest.raises(CodeFailed):  # what is tried again holds back no other task
        stage_batch(earlier(world), second.keys)
    with pytest.raises(CodeFailed):
        stage_batch(work(world), first.keys)
    for batch in (second, third):
        with pytest.raises(HeldBack, match=f"{DAYS[0]} failed"):
            stage_batch(earlier(world), batch.keys)
    assert called == [DAYS[0], DAYS[0], DAYS[4], DAYS[0]]


def test_without_fail_fast_code_that_fails_is_called_for_every_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoped, called = by_code(world, monkeypatch, fail_fast=False)
    for batch in scoped.batches:
        with pytest.raises(CodeFailed):
            stage_batch(work(world), batch.keys)
    assert set(called) == set(DAYS)


@pytest.mark.parametrize("kind", [ConnectionLost, LockTimeout])
def test_a_task_that_loses_its_connection_holds_the_others_back_once_its_last_try_has_failed(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[WarehouseError]
) -> None:
    world.spec = spec(fail_fast=True)
    first, second, third = world.scope().batches

    @contextmanager
    def lost(*_: Any, **__: Any) -> Iterator[None]:
        raise kind("nobody answers")
        yield

    def lose(failing: Work) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(world.warehouse, "open_stage", lost)
            with pytest.raises(kind):
                stage_batch(failing, first.keys)

    lose(earlier(world))
    assert stage_batch(work(world), second.keys).staged == 3
    lose(work(world))
    with pytest.raises(HeldBack, match=f"{DAYS[0]}, {DAYS[1]}, {DAYS[2]} failed"):
        stage_batch(work(world), third.keys)


def test_code_that_writes_the_published_table_is_called_by_no_other_task(world: World) -> None:
    params = {"path": str(world.engine.path)}
    world.spec = spec(fail_fast=True, transform={"python": "team_code:publishes_by_itself", "params": params})
    first, second, _ = world.scope().batches
    with pytest.raises(StrayWrite):
        stage_batch(earlier(world), first.keys)
    with pytest.raises(HeldBack):
        stage_batch(earlier(world), second.keys)
    assert len(world.amounts(DAYS[4])) == PER_DAY
