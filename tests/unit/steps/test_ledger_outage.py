"""The ledger's database is restarted in the middle of a backfill: the task may be tried again, and ends as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from contract_engines import DuckDB
from sqlalchemy import URL
from steps_world import DAYS, PER_DAY, World, fill

from airflow_backfill_provider.demo.local_postgres import LocalPostgres
from airflow_backfill_provider.errors import LedgerUnavailable
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.publish import publish
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.work import go_on

FOUR = {"start_date": DAYS[0], "end_date": DAYS[3]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalPostgres]:
    """A server of this test alone, to be stopped and started."""
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.NEEDS)
    server = LocalPostgres(tmp_path / "server.json", login="trust", settings={"fsync": "off"})
    server.create()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def world(server: LocalPostgres, tmp_path: Path) -> Iterator[World]:
    engine = DuckDB()
    warehouse = engine.create(tmp_path)
    url = URL.create("postgresql+psycopg", server.user, server.password, "127.0.0.1", server.port, "postgres")
    with Ledger(url) as ledger:
        ledger.upgrade()
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()


def after(calls: int, act: Callable[[], None]) -> Callable[[], None]:
    """A stop signal that acts, once, when it is asked for the time after so many."""
    left = [calls]

    def check() -> None:
        left[0] -= 1
        if left[0] == -1:
            act()

    return check


def test_a_ledger_that_goes_away_between_two_partitions_may_be_tried_again_and_what_is_staged_is_reused(
    world: World, server: LocalPostgres
) -> None:
    scoped = world.scope(**FOUR)
    keys = scoped.batches[0].keys
    world.check_stop = after(2, server.stop)  # as the task begins, before its first partition, before the next ones
    with pytest.raises(LedgerUnavailable, match="Check that the database runs"):
        stage_batch(world.work(), keys)

    world.check_stop = go_on
    with pytest.raises(LedgerUnavailable):
        stage_batch(world.work(), keys)
    server.start()
    again = stage_batch(world.work(), keys)
    assert (again.staged, again.reused, again.rows) == (3, 1, 4 * PER_DAY)
    world.validate(scoped)
    assert world.publish().published
    assert [row[1].isoformat() for row in world.published() if row[2] is None and row[1]] == list(DAYS[:4])


def test_a_ledger_that_goes_away_while_a_partition_is_written_costs_that_partition_alone(
    world: World, server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoped = world.scope(**FOUR)
    keys = scoped.batches[0].keys
    finish, finished = Ledger.finish_staging, []

    def late(*args: Any, **named: Any) -> None:
        finished.append(args)
        if len(finished) == 2:
            server.stop()
        finish(*args, **named)

    monkeypatch.setattr(Ledger, "finish_staging", late)
    with pytest.raises(LedgerUnavailable):
        stage_batch(world.work(), keys)
    monkeypatch.undo()
    server.start()
    states = [record.state for record in world.ledger.partitions(world.id).values()]
    assert states.count(PartitionState.STAGED) == 1
    assert stage_batch(world.work(), keys).reused == 1
    world.validate(scoped)
    assert world.publish().published


def test_a_ledger_that_goes_away_while_the_range_is_published_is_completed_by_the_next_try(
    world: World, server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare(**FOUR)
    replace_partitions = world.warehouse.replace_partitions

    def and_then_it_is_gone(*args: Any, **named: Any) -> Any:
        receipt = replace_partitions(*args, **named)
        server.stop()
        return receipt

    monkeypatch.setattr(world.warehouse, "replace_partitions", and_then_it_is_gone)
    with pytest.raises(LedgerUnavailable):
        publish(world.work())
    monkeypatch.undo()
    written = world.published()
    server.start()
    assert world.ledger.backfill(world.id).state is BackfillState.PUBLISHING
    assert publish(world.work()).published
    assert world.ledger.backfill(world.id).state is BackfillState.PUBLISHED
    assert world.published() == written
