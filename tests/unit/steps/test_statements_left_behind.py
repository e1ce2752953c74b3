"""A task that is killed while its engine works on: the next attempt takes the statement over, by the id in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract_engines import Memory
from ledger_file import new_ledger
from steps_world import DAYS, PER_DAY, World, fill, make_spec

from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.warehouses.base import (
    Recompute,
    Running,
    StagedPartition,
    StageWriter,
    Target,
    Tell,
    Warehouse,
    untold,
)


class Killed(BaseException):
    """The task is gone."""


class Detached:
    """A warehouse that works its statements off by itself, and knows how each ended."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self.results: dict[str, tuple[StagedPartition, ...]] = {}
        self.taken: list[str] = []
        self.kills = False
        self.kills_who_waits = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._warehouse, name)

    @contextmanager
    def open_stage(self, target: Target, backfill_id: str, label: str, tell: Tell = untold) -> Iterator[Any]:
        with self._warehouse.open_stage(target, backfill_id, label) as writer:
            yield DetachedStage(self, writer, tell)

    def take_over(
        self, target: Target, backfill_id: str, running: Running, partitions: Sequence[Any]
    ) -> tuple[StagedPartition, ...]:
        if self.kills_who_waits:
            raise Killed
        self.taken.append(running.statement)
        assert sorted(running.keys) == sorted(partition.key for partition in partitions)
        return self.results[running.statement]


class DetachedStage:
    def __init__(self, warehouse: Detached, writer: StageWriter, tell: Tell) -> None:
        self._warehouse, self._writer, self._tell = warehouse, writer, tell
        self.location = writer.location

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        staged = self._writer.write(*recomputes)
        statement = f"s{len(self._warehouse.results) + 1}"
        self._warehouse.results[statement] = staged
        self._tell(Running(statement, self.location, tuple(one.partition.key for one in staged)))
        if self._warehouse.kills:
            raise Killed
        return staged


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    engine = Memory()
    warehouse = engine.create(tmp_path)
    fill(engine)
    with Ledger(new_ledger(tmp_path)) as ledger:
        yield World(engine, Detached(warehouse), ledger, make_spec())  # type: ignore[arg-type]


def killed(world: World, scoped: Any) -> Detached:
    """The first task is killed while its first statement runs."""
    warehouse: Any = world.warehouse
    warehouse.kills = True
    with pytest.raises(Killed):
        world.stage(scoped)
    warehouse.kills = False
    return warehouse  # type: ignore[no-any-return]


def test_what_was_begun_is_taken_over_and_not_begun_again(world: World) -> None:
    scoped = world.scope()
    warehouse = killed(world, scoped)
    (first,) = warehouse.results["s1"]

    results = world.stage(scoped)

    assert warehouse.taken == ["s1"]
    assert sum(result.rows for result in results) == PER_DAY * len(DAYS)
    records = world.ledger.partitions(world.id)
    assert {record.state for record in records.values()} == {PartitionState.STAGED}
    assert records[first.partition.key].location == first.location
    assert records[first.partition.key].attempt == 2
    begun = [one.partition.key for staged in warehouse.results.values() for one in staged]
    assert sorted(begun) == sorted(DAYS)


def test_an_attempt_that_is_killed_while_it_waits_leaves_the_statement_to_the_next(world: World) -> None:
    scoped = world.scope()
    warehouse = killed(world, scoped)
    warehouse.kills_who_waits = True
    with pytest.raises(Killed):
        world.stage(scoped)
    warehouse.kills_who_waits = False

    world.stage(scoped)

    assert warehouse.taken == ["s1"]
    assert world.ledger.partitions(world.id)[DAYS[0]].attempt == 3


def test_what_failed_meanwhile_is_staged_anew(world: World) -> None:
    scoped = world.scope()
    warehouse = killed(world, scoped)
    (first,) = warehouse.results["s1"]
    warehouse.results["s1"] = ()

    world.stage(scoped)

    assert warehouse.taken == ["s1"]
    record = world.ledger.partitions(world.id)[first.partition.key]
    assert record.state is PartitionState.STAGED
    assert record.location != first.location


def test_what_came_to_its_end_is_not_asked_about(world: World) -> None:
    scoped = world.scope()
    world.stage(scoped)

    world.ledger.start_staging(world.id, DAYS[:1], owner="somebody", intent=None)
    world.stage(scoped)

    assert world.warehouse.taken == []  # type: ignore[attr-defined]
