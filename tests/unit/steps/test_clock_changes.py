"""The whole life of a day on which clocks change, on engines that keep instants, whatever zone their sessions have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_engines import ENGINES
from ledger_file import new_ledger
from steps_world import World, make_spec

from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger

ZONED = [engine for engine in ENGINES if engine.name in ("postgres", "delta")]
SOLD_AT = (
    "2024-03-10 04:59:59.999999",
    "2024-03-10 05:00:00",  # midnight in New York, where this day has 23 hours
    "2024-03-10 07:30:00",  # in the hour that clocks leave out
    "2024-03-11 03:59:59.999999",
    "2024-03-11 04:00:00",
)
TWICE = (
    "SELECT id, sold_at, amount * 2 AS amount FROM raw.sales "
    "WHERE sold_at >= TIMESTAMPTZ '{{ data_interval_start.to_iso8601_string() }}' "
    "AND sold_at < TIMESTAMPTZ '{{ data_interval_end.to_iso8601_string() }}'"
)


@pytest.fixture(params=ZONED, ids=[engine.name for engine in ZONED])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    engine = request.param()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        yield World(engine, warehouse, ledger)
    warehouse.close()


def test_a_day_of_23_hours_is_deleted_and_written_at_the_same_instants_and_put_back(world: World) -> None:
    if world.engine.name == "postgres":
        world.engine.execute(f"ALTER DATABASE {world.engine.database} SET TimeZone = 'Asia/Kolkata'")  # type: ignore[attr-defined]
    rows = ", ".join(f"({number}, TIMESTAMPTZ '{at}+00', 10)" for number, at in enumerate(SOLD_AT))
    world.engine.execute("CREATE SCHEMA IF NOT EXISTS raw")
    for table in ("analytics.sales", "raw.sales"):
        world.engine.execute(
            f"CREATE TABLE {table} (id BIGINT, sold_at TIMESTAMPTZ, amount BIGINT)",
            f"INSERT INTO {table} VALUES {rows}",
        )
    world.spec = make_spec(
        target={"table": "analytics.sales", "partition_by": "sold_at", "key": ["id"], "timezone": "America/New_York"},
        transform={"sql": TWICE},
        source={"table": "raw.sales", "partition_by": "sold_at"},
        checks=[],
    )
    published = "SELECT id, amount FROM analytics.sales ORDER BY id"
    old = world.engine.rows(published)

    summary = world.run(start_date="2024-03-10", end_date="2024-03-10")

    assert summary.backfill.state is BackfillState.COMPLETED
    assert summary.plan.source_rows == {"2024-03-10": 3}
    (receipt,) = world.warehouse.receipts(summary.plan.target)
    assert (receipt.deleted, receipt.inserted) == (3, 3)
    assert world.engine.rows(published) == [(0, 10), (1, 20), (2, 20), (3, 20), (4, 10)]
    world.rollback()
    assert world.engine.rows(published) == old
