"""Budgets: what is expected stands in the plan, what is used up stops the run between partitions, each with a line of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract_engines import Memory
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.errors import BudgetExceeded, PublishRefused, SpecError
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.budget import Budgets, started_at

on_memory = pytest.mark.parametrize("world", [Memory], indirect=True, ids=["memory"])
ALL_ROWS = len(DAYS) * PER_DAY


def spec_with(**budget: Any) -> BackfillSpec:
    return make_spec(compute={"conn_id": "warehouse", "partitions_per_task": 4, **budget})


def doubled(spec: BackfillSpec) -> BackfillSpec:
    """The spec with SQL that gives twice the rows that are expected."""
    sql = spec.transform.sql + " UNION ALL " + spec.transform.sql.replace("order_id,", "order_id + 5000,")
    return spec.model_copy(update={"transform": spec.transform.model_copy(update={"sql": sql})})


@on_memory
def test_a_plan_that_expects_more_rows_than_the_budget_is_refused_with_both_numbers(world: World) -> None:
    world.spec = spec_with(max_rows=ALL_ROWS - 1)
    with pytest.raises(SpecError, match=f"expected to have {ALL_ROWS} rows, and compute.max_rows is {ALL_ROWS - 1}"):
        world.scope()
    assert world.ledger.backfills() == []


@on_memory
def test_the_plan_shows_the_budgets_beside_what_is_expected(world: World) -> None:
    world.spec = spec_with(max_rows=ALL_ROWS, max_runtime="2h", max_staging_bytes="50 GiB")
    text = preview(world.scope(mode="plan").plan)
    assert "budget      at most 60 rows, 2h of running, 50.0 GiB set aside; about 60 rows are expected" in text


@on_memory
def test_more_rows_than_the_budget_stop_the_run_and_nothing_is_published(world: World) -> None:
    world.spec = doubled(spec_with(max_rows=ALL_ROWS))
    before = world.published()
    scoped = world.scope()
    with pytest.raises(BudgetExceeded, match=r"compute\.max_rows is 60, and \d+ rows of \d partitions are staged"):
        world.stage(scoped)

    counts = world.ledger.counts(world.id)
    staged, rows = world.ledger.staged_rows(world.id)
    assert counts[PartitionState.STAGED] == staged
    assert ALL_ROWS < rows
    assert counts[PartitionState.STAGED] < len(DAYS)
    assert world.ledger.backfill(world.id).state is BackfillState.HALTED
    with pytest.raises(BudgetExceeded):  # another task of the same run
        world.stage(scoped)
    with pytest.raises(PublishRefused):
        world.publish()
    assert world.published() == before


@on_memory
def test_rows_beyond_the_budget_in_the_very_last_partition_stop_it_too(world: World) -> None:
    world.spec = doubled(spec_with(max_rows=PER_DAY))
    scoped = world.scope(start_date=DAYS[0], end_date=DAYS[0])
    for _ in ("at first", "cleared, with nothing left to stage"):
        with pytest.raises(BudgetExceeded, match="12 rows of 1 partitions are staged"):
            world.stage(scoped)
        assert world.ledger.backfill(world.id).state is BackfillState.HALTED
    with pytest.raises(PublishRefused):
        world.publish()


@on_memory
def test_a_range_beyond_its_budget_is_not_called_validated_when_the_task_that_stopped_is_passed_over(
    world: World,
) -> None:
    world.spec = spec_with(max_staging_bytes="1 B")
    before = world.published()
    scoped = world.scope(start_date=DAYS[0], end_date=DAYS[0])
    with pytest.raises(BudgetExceeded):
        world.stage(scoped)
    with pytest.raises(BudgetExceeded, match=r"compute\.max_staging_bytes is 1 B"):
        world.validate(scoped)
    assert world.ledger.counts(world.id)[PartitionState.VALIDATED] == 1
    with pytest.raises(BudgetExceeded):
        world.publish()
    assert world.ledger.backfill(world.id).state is BackfillState.HALTED
    assert world.published() == before


@on_memory
def test_what_is_set_aside_is_asked_for_every_half_minute_and_once_all_is_staged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = spec_with(max_staging_bytes="1 GB")
    world.scope()
    asked: list[None] = []
    storage = world.warehouse.storage
    monkeypatch.setattr(world.warehouse, "storage", lambda: asked.append(None) or storage())
    budgets = Budgets(world.work())
    for seconds, so_far in ((0, 1), (29, 1), (1, 2), (0, 2)):
        world.now += timedelta(seconds=seconds)
        budgets.require()
        assert len(asked) == so_far
    budgets.require_amounts()
    assert len(asked) == 3


@on_memory
def test_time_that_is_used_up_stops_the_run_and_clearing_scope_gives_it_anew(world: World) -> None:
    world.spec = spec_with(max_runtime="1h")
    world.now = datetime.now(UTC)
    scoped = world.scope()
    world.stage(type(scoped)(scoped.plan, scoped.batches[:1], resumed=False))
    world.now = datetime.now(UTC) + timedelta(hours=1, minutes=1)
    with pytest.raises(BudgetExceeded, match=r"compute\.max_runtime is 1h, and the backfill has been running for"):
        world.stage(scoped)
    assert world.ledger.backfill(world.id).state is BackfillState.HALTED
    with pytest.raises(BudgetExceeded):
        world.stage(scoped)

    world.ledger._now = lambda: world.now
    again = world.scope()
    assert started_at(world.ledger, world.id) is None
    assert sum(result.staged for result in world.stage(again)) == len(DAYS) - 4
    world.validate(again)
    assert world.publish().published


def test_what_is_set_aside_is_measured_by_the_engines_account(world: World) -> None:
    world.spec = spec_with(max_staging_bytes="1 KB")
    scoped = world.scope()
    with pytest.raises(
        BudgetExceeded, match=r"compute\.max_staging_bytes is 1,000 B, and the backfill has set .* KiB aside"
    ):
        world.stage(scoped)
    world.spec = spec_with(max_staging_bytes="1 GB")
    again = world.scope()
    world.stage(again)
    world.validate(again)
    assert world.publish().published


@on_memory
def test_without_budgets_nothing_is_asked(world: World) -> None:
    assert world.run().backfill.state is BackfillState.COMPLETED


def test_the_trial_says_how_long_the_others_take(world: World) -> None:
    world.scope()
    note = world.try_one().note
    assert "; the others take about" in note
    (event,) = world.ledger.events(world.id, "trial_passed")
    record = world.ledger.partitions(world.id, [event.detail["partition"]])[event.detail["partition"]]
    assert event.detail["rest_seconds"] == pytest.approx(record.seconds * 9 / 4, abs=0.01)
