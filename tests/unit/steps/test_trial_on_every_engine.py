"""What a trial finds on each engine: SQL that cannot be run again, and nothing on SQL that can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_engines import ENGINES
from ledger_file import new_ledger
from steps_world import DAYS, PER_DAY, RIGHT, World, fill, make_spec

from airflow_backfill_provider.errors import TrialFailed
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.tried import trial_of

DAY = "order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'"


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    engine = request.param()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()


def noted(expression: str) -> str:
    return RIGHT.replace("note\nFROM", f"CAST({expression} AS VARCHAR) AS note\nFROM")


def test_a_right_transform_passes_and_what_was_tried_is_published_and_undone(world: World) -> None:
    scoped, before = world.scope(), world.published()
    world.try_one()
    assert world.published() == before
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]
    trial = trial_of(world.ledger, scoped.plan)
    assert trial is not None
    assert trial.rehearsal.neighbours == ("2024-02-29", DAYS[1])
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    world.rollback()
    assert world.published() == before


FAILING = {
    "a clock": (noted("now()"), f"the two runs differ: note in {PER_DAY} of {PER_DAY} rows. Likely", "[clock]"),
    "a random value": (noted("random()"), f"differ: note in {PER_DAY} of {PER_DAY} rows. Likely", "[random]"),
    "row_number without an order": (noted("row_number() OVER ()"), "differ: note in 6 of 6 rows", "[unordered_window]"),
    "row_number with ties": (
        noted("row_number() OVER (ORDER BY order_date)"),
        "differ: note in 6 of 6 rows",
        "[window_ties]",
    ),
    "rows twice": (
        RIGHT.replace(
            "FROM raw.orders", "FROM raw.orders CROSS JOIN (SELECT 1 AS one UNION ALL SELECT 2 AS one) AS twice"
        ),
        f"{PER_DAY} of its {2 * PER_DAY} staged rows repeat the order_id of another",
        "a join that finds several rows for one",
    ),
    "rows added to the published ones": (
        f"{RIGHT} UNION ALL SELECT order_id + 100000 AS order_id, order_date, 1 AS amount, 'more' AS note "
        f"FROM analytics.orders WHERE {DAY}",
        f"gives others: order_id itself, by which 0 rows are of the first alone and {PER_DAY} of the other",
        "The SQL reads analytics.orders, the table that it rebuilds",
    ),
}


@pytest.mark.parametrize("fault", FAILING)
def test_sql_that_cannot_be_run_again_is_told_by_column_rows_and_cause(world: World, fault: str) -> None:
    sql, difference, cause = FAILING[fault]
    if world.engine.name == "memory" and fault in ("a clock", "row_number without an order", "row_number with ties"):
        pytest.skip("the in-memory warehouse has no clock and keeps rows in one order")
    world.spec = make_spec(transform={"sql": sql, "depends_on_past": False})
    world.scope()
    before = world.published()

    with pytest.raises(TrialFailed) as failed:
        world.try_one()

    message = str(failed.value)
    assert difference in message
    assert cause in message
    assert "nothing was published" in message
    assert world.published() == before
    assert world.ledger.partitions(world.id, [DAYS[0]])[DAYS[0]].state is PartitionState.REJECTED
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]


def test_sql_that_keeps_what_its_own_table_holds_may_run_again(world: World) -> None:
    kept = (
        "SELECT o.order_id, o.order_date, CASE WHEN r.refunded THEN NULL ELSE r.amount END AS amount, o.note "
        "FROM analytics.orders AS o JOIN raw.orders AS r ON r.order_id = o.order_id "
        f"WHERE {DAY.replace('order_date', 'o.order_date')}"
    )
    world.spec = make_spec(transform={"sql": kept, "depends_on_past": False})
    world.scope()
    assert world.try_one().tried


def test_an_order_that_decides_between_any_two_rows_is_repeatable(world: World) -> None:
    if world.engine.name == "memory":
        pytest.skip("keeps rows in one order")
    world.spec = make_spec(transform={"sql": noted("row_number() OVER (ORDER BY order_id)")})
    world.scope()
    assert world.try_one().tried
