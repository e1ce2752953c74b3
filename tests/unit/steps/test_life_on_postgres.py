"""The whole life of a backfill in PostgreSQL, and how long it kept other writers out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import postgres_server
import pytest
from contract_engines import Postgres
from ledger_file import new_ledger
from report_reading import Report
from steps_world import DAYS, PER_DAY, World, fill, make_spec

from airflow_backfill_provider.errors import SourceMoved
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import RECEIPT_EVENT, WRITE_BLOCK_EVENT
from airflow_backfill_provider.spec.model import PublishSpec
from airflow_backfill_provider.steps.report import conclude

pytestmark = pytest.mark.skipif(not postgres_server.is_installed(), reason=postgres_server.NEEDS)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    engine = Postgres()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()


def test_the_results_and_the_summary_say_how_long_nobody_else_could_write(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old = world.published()
    plan = world.prepare().plan
    dead = f"rows that it deletes, up to {len(DAYS) * PER_DAY}, in"
    assert any(dead in warning for warning in plan.warnings)
    caplog.set_level("INFO")

    published = world.publish()

    assert dead in caplog.text

    (event,) = [event for event in world.ledger.events(world.id) if event.action == "write_block"]
    assert event.detail.pop("waited_seconds") < published.write_block_seconds + 30
    assert event.detail == {"sequence": 1, "action": "publish", "seconds": published.write_block_seconds}
    assert published.write_block_seconds is not None
    assert 0 < published.write_block_seconds < 30
    assert world.publish().write_block_seconds is None
    summary = conclude(world.work())
    assert summary.backfill.state is BackfillState.COMPLETED
    blocked = f"  blocked     nobody else could write analytics.orders for {published.write_block_seconds:.1f} s"
    assert blocked in summary.lines()
    assert len([row for row in world.published() if row[2] is None]) == len(DAYS)

    undone = world.rollback()

    assert undone.write_block_seconds is not None
    assert world.published() == old


def test_the_audit_trail_says_by_what_a_commit_was_made_and_how_long_its_lock_was_waited_for(world: World) -> None:
    world.spec = world.spec.model_copy(update={"publish": PublishSpec(mechanism="merge")})
    world.prepare()
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"

    with world.engine.connect() as writer, ThreadPoolExecutor(1) as beside:
        writer.execute("LOCK TABLE analytics.orders IN SHARE MODE")
        publishing = beside.submit(world.publish)
        while not world.engine.rows(waits):
            time.sleep(0.01)
        time.sleep(0.2)
        writer.rollback()
        publishing.result()
    world.rollback()

    published, undone = (event.detail for event in world.ledger.events(world.id, WRITE_BLOCK_EVENT))
    assert published["waited_seconds"] >= 0.2
    assert (published["action"], undone["action"]) == ("publish", "rollback")
    receipts = [event.detail for event in world.ledger.events(world.id, RECEIPT_EVENT)]
    assert [one["mechanism"] for one in receipts] == ["merge", "replace_partitions"]
    page = Report(world).text
    assert "inserted, by merge" in page
    assert "s for the lock, and kept others from writing for" in page


def test_what_arrives_in_the_source_after_the_plan_does_not_enter_and_what_it_lost_stops_the_publish(
    world: World,
) -> None:
    add = "INSERT INTO raw.orders VALUES ({}, DATE '2024-03-02', 1, 'late', FALSE, '2024-06-01 12:00:00.000001Z')"
    world.engine.execute(
        "ALTER TABLE raw.orders ADD ingested_at TIMESTAMPTZ DEFAULT '2024-06-01 12:00Z'",
        f"ALTER DATABASE {world.engine.database} SET TimeZone = 'Asia/Kolkata'",  # type: ignore[attr-defined]
    )
    source = {"table": "raw.orders", "partition_by": "order_date", "cutoff": {"column": "ingested_at"}}
    world.spec = make_spec(source=source)
    scoped = world.scope()
    world.engine.execute(add.format(170))  # March 2 was not staged yet
    world.stage(scoped)
    world.engine.execute(add.format(171))  # and now it is
    world.validate(scoped)
    world.engine.execute("DELETE FROM raw.orders WHERE order_id = 101")

    with pytest.raises(SourceMoved, match="2024-03-02 had 6 rows and has 5"):
        world.publish()
    world.engine.execute("INSERT INTO raw.orders VALUES (101, DATE '2024-03-02', 111, 'note 101', FALSE)")

    assert world.publish().published
    assert sorted(world.amounts("2024-03-02")) == [100, 101, 102, 103, 104, 105]


def test_of_several_commits_the_longest_is_told(world: World) -> None:
    world.spec = world.spec.model_copy(update={"publish": world.spec.publish.model_copy(update={"unit": "week"})})
    world.prepare()

    published = world.publish()

    events = [event for event in world.ledger.events(world.id) if event.action == "write_block"]
    assert [event.detail["sequence"] for event in events] == [1, 2]
    assert published.write_block_seconds == max(event.detail["seconds"] for event in events)
    assert [line for line in conclude(world.work()).lines() if line.endswith(" s at the longest")]
