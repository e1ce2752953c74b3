"""A rule that changes nothing, over five months of real flights: every engine and mechanism calls every row identical."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from ledger_file import new_ledger
from steps_world import World

from airflow_backfill_provider.demo.data import COLUMNS, KEY, RANGE, TARGET, WRONG_RULE, build_warehouse, connect
from airflow_backfill_provider.demo.engines import ENGINES, demo_engine
from airflow_backfill_provider.demo.local_postgres import find_programs
from airflow_backfill_provider.demo.verify import wrong_rows
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import (
    Action,
    Publication,
    Published,
    Recompute,
    Staged,
    Target,
    Warehouse,
)
from airflow_backfill_provider.warehouses.memory import MemoryWarehouse
from airflow_backfill_provider.windows import Grain, Partition, partition_at

SEEN = "analytics.flights_seen"
"""A view of the published table, for engines that swap views."""


class Flights(Protocol):
    """The flights of one engine."""

    rule: str
    """The rule by which the table was published, without its bounds."""
    first_and_last: tuple[Any, Any]

    def open(self) -> Warehouse: ...

    def unlike(self) -> int:
        """How many rows of the whole table are not what they were at first, by plain SQL."""

    def show(self) -> None:
        """Make the view."""


class DemoFlights:
    rule = WRONG_RULE
    first_and_last = RANGE

    def __init__(self, name: str, home: Path) -> None:
        self.engine = demo_engine(name, home)
        self.engine.build()
        self.engine.start()

    def open(self) -> Warehouse:
        return self.engine.open()

    def unlike(self) -> int:
        return wrong_rows(self.engine.run, corrected=False)

    def show(self) -> None:
        with connect(self.engine.path) as connection:  # type: ignore[attr-defined]
            connection.execute(f"CREATE VIEW {SEEN} AS SELECT * FROM {TARGET}")

    def remove(self) -> None:
        self.engine.stop()
        if hasattr(self.engine, "server"):
            self.engine.server.remove()


class MemoryFlights:
    """The days around the blizzard, which the in-memory warehouse can hold."""

    rule = f"SELECT {COLUMNS} FROM {TARGET}"
    first_and_last = (RANGE[0].replace(day=8), RANGE[0].replace(day=9))

    def __init__(self, name: str, home: Path) -> None:
        build_warehouse(home / "source.duckdb")
        around = [day + step * timedelta(days=1) for day, step in zip(self.first_and_last, (-1, 1), strict=True)]
        with connect(home / "source.duckdb", read_only=True) as source:
            columns = {column: kind for column, kind, *_ in source.execute(f"DESCRIBE {TARGET}").fetchall()}
            self.rows = source.execute(f"SELECT * FROM {TARGET} WHERE flight_date BETWEEN ? AND ?", around).fetchall()
        self.warehouse = MemoryWarehouse()
        self.warehouse.create_table(TARGET, columns, self.rows)

    def open(self) -> Warehouse:
        return self.warehouse

    def unlike(self) -> int:
        return len(set(self.warehouse.query(f"SELECT * FROM {TARGET}")) ^ set(self.rows))

    def show(self) -> None:
        self.warehouse.create_view(SEEN, f"SELECT * FROM {TARGET}")

    def remove(self) -> None:
        """It ends with the process."""


# On Spark each of these takes minutes.
@pytest.fixture(scope="module", params=["memory", *sorted(ENGINES.keys() - {"databricks-local"})])
def flights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flights]:
    if request.param == "postgres" and find_programs() is None:
        pytest.skip("needs PostgreSQL's server programs")
    made = (MemoryFlights if request.param == "memory" else DemoFlights)(request.param, tmp_path_factory.mktemp("home"))
    yield made
    made.remove()


@pytest.fixture
def warehouse(flights: Flights) -> Iterator[Warehouse]:
    warehouse = flights.open()
    yield warehouse
    warehouse.close()


def days_of(flights: Flights) -> tuple[Partition, ...]:
    first, last = flights.first_and_last
    return tuple(partition_at(first + timedelta(days=number), Grain.DAY) for number in range((last - first).days + 1))


def stage(flights: Flights, warehouse: Warehouse, target: Target) -> Staged:
    days = days_of(flights)
    bounds = f"flight_date >= DATE '{days[0].key}' AND flight_date <= DATE '{days[-1].key}'"
    with warehouse.open_stage(target, "identity", "all") as writer:
        return Staged(writer.write(Recompute(days, f"{flights.rule} WHERE {bounds}")))


@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge", "view_swap"])
def test_every_row_is_identical_and_publishing_and_undoing_leaves_the_same_rows(
    flights: Flights, warehouse: Warehouse, mechanism: str
) -> None:
    if mechanism not in warehouse.capabilities.mechanisms:
        pytest.skip(f"{warehouse.capabilities.engine} does not offer {mechanism}")
    swaps = mechanism == "view_swap"
    if swaps:
        flights.show()
    target = warehouse.describe(SEEN if swaps else TARGET, "flight_date", KEY)
    days = days_of(flights)
    staged = stage(flights, warehouse, target)

    diffs = warehouse.compare(target, Published(), staged, days)

    assert [diff for diff in diffs.values() if not diff.old == diff.new == diff.identical > 0] == []
    assert sum(diff.identical for diff in diffs.values()) == (1_614 if isinstance(flights, MemoryFlights) else 139_154)
    marks = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
    assert warehouse.fingerprint(target, Published(), days) == marks
    assert warehouse.changed_columns(target, Published(), staged, days) == {day.key: {} for day in days}

    backup, before = warehouse.back_up(target, "identity", days, label="publish")
    assert before == marks
    change = warehouse.swap_view if swaps else getattr(warehouse, mechanism)
    receipt = change(target, Publication("identity", Action.PUBLISH, "p1", days, staged, marks, marks))
    assert receipt.inserted == receipt.deleted == (0 if mechanism == "merge" else sum(m.rows for m in marks.values()))
    assert flights.unlike() == 0
    assert warehouse.fingerprint(target, Published(), days) == marks
    undo = warehouse.swap_view if swaps else warehouse.replace_partitions
    undo(target, Publication("identity", Action.ROLLBACK, "p1", days, backup, marks, marks))
    assert flights.unlike() == 0
    assert warehouse.fingerprint(target, Published(), days) == marks


def test_a_backfill_that_changes_nothing_says_so_and_writes_nothing(
    flights: Flights, warehouse: Warehouse, tmp_path: Path
) -> None:
    first, last = flights.first_and_last
    bounds = (
        "flight_date >= DATE '{{ data_interval_start | ds }}' AND flight_date < DATE '{{ data_interval_end | ds }}'"
    )
    document: dict[str, Any] = {
        "name": "orders",
        "target": {"table": TARGET, "partition_by": "flight_date", "key": list(KEY)},
        "transform": {"sql": f"{flights.rule} WHERE {bounds}", "scope": "range", "depends_on_past": False},
        "compute": {"conn_id": "warehouse", "partitions_per_task": 200},
        "compare": [{"row_diff": {"max_added": 0, "max_removed": 0, "max_changed": 0}}],
    }
    with Ledger(new_ledger(tmp_path)) as ledger:
        world = World(None, warehouse, ledger, BackfillSpec.model_validate(document))  # type: ignore[arg-type]
        known = len(warehouse.receipts(warehouse.describe(TARGET, "flight_date", KEY)))
        scoped = world.prepare(start_date=str(first), end_date=str(last))

        result = world.publish()

        assert result.note == "nothing to publish: the range already holds exactly the staged rows"
        assert len(warehouse.receipts(scoped.plan.target)) == known
        assert ledger.backfill(world.id).state is BackfillState.PUBLISHED
    assert flights.unlike() == 0
