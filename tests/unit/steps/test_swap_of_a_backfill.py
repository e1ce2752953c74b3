"""``publish.swap``: a whole backfill of a table that PostgreSQL partitions, its way back, and what is refused early."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from contract_engines import DuckDB, Memory, Postgres
from ledger_file import new_ledger
from pydantic import ValidationError
from steps_world import DAYS, World, fill, make_spec

from airflow_backfill_provider.errors import ConnectionLost, SpecError, TargetMoved
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.report import summarise
from airflow_backfill_provider.warehouses.base import Receipt

SWAP: dict[str, Any] = {"publish": {"swap": True, "lock_timeout": "5s"}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.NEEDS)
    engine = Postgres()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        engine.execute(
            "ALTER TABLE analytics.orders RENAME TO plain",
            "CREATE TABLE analytics.orders (LIKE analytics.plain) PARTITION BY RANGE (order_date)",
            "CREATE TABLE analytics.first PARTITION OF analytics.orders FOR VALUES FROM ('2024-03-01') TO ('2024-03-08')",
            "CREATE TABLE analytics.second PARTITION OF analytics.orders FOR VALUES FROM ('2024-03-08') TO ('2024-03-11')",
            "CREATE TABLE analytics.rest PARTITION OF analytics.orders DEFAULT",
            "INSERT INTO analytics.orders SELECT * FROM analytics.plain",
            "DROP TABLE analytics.plain",
        )
        yield World(engine, warehouse, ledger, make_spec(**SWAP))
    warehouse.close()


def _corrected(world: World) -> int:
    return len([row for row in world.published() if row[2] is None])


def test_a_correction_is_exchanged_and_exchanged_back_and_later_writes_elsewhere_stay(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old, outside = world.published(), world.outside()

    with caplog.at_level(logging.INFO):
        summary = world.run()

    assert summary.backfill.state is BackfillState.COMPLETED
    assert _corrected(world) == len(DAYS)
    assert world.outside() == outside
    assert summary.locked_seconds is not None
    said = f"nobody could read the table for {summary.locked_seconds:.3f} s"
    assert f"  locked      {said}" in summary.lines()
    assert said in caplog.text
    kinds = [item.kind for item in world.warehouse.storage() if item.kind != "stage"]
    assert kinds == ["backup"]
    world.engine.execute("INSERT INTO analytics.orders VALUES (9100, DATE '2024-03-12', 5, 'later')")
    later = world.outside()

    undone = world.rollback()

    assert [row for row in world.published() if row not in later] == [row for row in old if row not in outside]
    assert world.outside() == later
    assert "restored in one commit; nobody could read the table for" in undone.note
    assert not world.rollback().restored


def test_a_plan_that_keeps_writers_out_for_too_long_names_the_exchange_that_would_not(world: World) -> None:
    of_rows = world.scope(mode="plan").plan.model_copy(update={"swap": None}).write_block
    seconds = of_rows.total_seconds() / 2
    world.spec = make_spec(publish={"max_write_block": f"PT{seconds:.9f}S"})

    with pytest.raises(SpecError, match=r"Set publish\.swap: true, .*; or publish\.unit: day"):
        world.scope(mode="plan")

    world.engine.execute("ALTER TABLE analytics.first SET UNLOGGED")
    with pytest.raises(SpecError, match=r"Set publish\.unit: day"):
        world.scope(mode="plan")


def test_the_plan_says_what_is_exchanged_and_that_writers_wait_for_one_reading_only(world: World) -> None:
    plan = world.scope().plan
    text = preview(plan)

    assert plan.swap is not None
    assert plan.swap.children == ("analytics.first", "analytics.second")
    assert plan.write_block.total_seconds() == plan.baseline_rows / plan.swap.reread_per_second
    assert "mechanism   replace_partitions: the partitions of the whole range are exchanged in one commit" in text
    assert (
        "swap exchanges 2 partitions of the table (analytics.first, analytics.second). Meanwhile nobody can read"
        in text
    )
    assert "for about 0.02 s" in text
    assert "exchanges the partitions again for the old ones" in text
    assert "as dead ones" not in text
    assert plan.from_document(plan.document()) == plan


def test_the_result_says_how_long_nobody_could_read_the_table(world: World) -> None:
    world.prepare()

    result = world.publish()

    assert result.locked_seconds is not None
    assert result.note == f"published in one commit; nobody could read the table for {result.locked_seconds:.3f} s"
    assert world.publish().locked_seconds == result.locked_seconds


def test_a_commit_whose_answer_was_lost_is_recorded_and_can_be_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.published()
    world.prepare()
    original = world.warehouse.swap_children

    def lost(*given: Any) -> Receipt:
        original(*given)
        raise ConnectionLost("The network went away.")

    monkeypatch.setattr(world.warehouse, "swap_children", lost)
    result = world.publish()
    monkeypatch.undo()

    assert (result.published, result.note, result.locked_seconds) == (True, "published in one commit", None)
    assert summarise(world.ledger, world.id).locked_seconds is None
    assert _corrected(world) == len(DAYS)
    assert world.rollback().restored
    assert world.published() == old


def test_a_range_that_moved_is_refused_and_published_once_it_was_planned_anew(world: World) -> None:
    world.prepare()
    world.engine.execute("UPDATE analytics.orders SET note = 'odd' WHERE order_id = 401")
    moved = world.published()
    with pytest.raises(TargetMoved, match=DAYS[4]):
        world.publish()
    assert world.published() == moved

    scoped = world.scope(rebase=True)
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    assert _corrected(world) == len(DAYS)
    world.rollback()

    assert world.published() == moved


def test_a_forced_rollback_exchanges_what_was_changed_since_and_keeps_a_copy_of_it(world: World) -> None:
    old = world.published()
    world.run()
    world.engine.execute("UPDATE analytics.orders SET note = 'odd' WHERE order_id = 401")
    with pytest.raises(TargetMoved, match=DAYS[4]):
        world.rollback()

    assert world.rollback(force=True).restored

    assert world.published() == old
    assert sorted(item.kind for item in world.warehouse.storage() if item.kind != "stage") == ["backup", "spare"]


def test_a_range_that_holds_what_was_staged_is_not_exchanged(world: World) -> None:
    world.run()
    world.run_id = "run 2"
    world.prepare()

    result = world.publish()

    assert not result.published
    assert result.locked_seconds is None


def test_a_range_that_whole_partitions_do_not_hold_is_refused_by_the_plan(world: World) -> None:
    with pytest.raises(SpecError, match=r"analytics\.second holds FROM .* only a part of it.*publish\.swap: false"):
        world.scope(start_date=DAYS[0], end_date=DAYS[8])


@pytest.mark.parametrize("engine", [Memory(), DuckDB()], ids=lambda engine: engine.name)
def test_an_engine_without_such_partitions_refuses_the_plan(engine: Any, tmp_path: Path) -> None:
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        with pytest.raises(SpecError, match=r"no partitions that can be exchanged. Set publish\.swap: false"):
            World(engine, warehouse, ledger, make_spec(**SWAP)).scope()
    warehouse.close()


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"mechanism": "merge"}, "swap replaces whole partitions, which mechanism merge does not"),
        ({"mechanism": "view_swap"}, "swap replaces whole partitions, which mechanism view_swap does not"),
        ({"unit": "month"}, "which unit month would not make shorter; leave unit out"),
    ],
)
def test_what_does_not_go_with_an_exchange_is_refused_by_the_spec(section: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        make_spec(publish={"swap": True} | section)
