"""The lives that chaos strikes: on which engine, by which mechanism, and step after step to the end.

Each step can be taken again after anything, and ends in the same place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contract_faults import RIGS, Rig
from killed_step import BY_WEEK, SWAPPED, Place
from steps_world import DAYS, World, fill, fill_behind_view

from airflow_backfill_provider.steps.cleanup import clean_up
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.scope import Scoped

PUBLISHED = ("stage", "validate", "rebase", "publish", "cleanup")
UNDONE = ("stage", "validate", "publish", "rollback", "cleanup")

LATE = 777
"""An order that the live pipeline adds inside the range before the rebase."""
LONG_AFTER = timedelta(days=60)
"""When everything that was left aside is over."""


def _fill_by_partitions(engine: Rig) -> None:
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


@dataclass(frozen=True)
class Way:
    """One way to publish, and the table that it needs."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict, hash=False)
    filled: Callable[[Any], None] = fill
    writes_to: str = "analytics.orders"
    """The table that the live pipeline writes."""


WAYS = {
    "duckdb": (
        Way("replace"),
        Way("by week", BY_WEEK),
        Way("merge", {"publish": {"mechanism": "merge", "lock_timeout": "2s"}}),
        Way("view_swap", SWAPPED, fill_behind_view, "analytics.orders__v1"),
    ),
    "delta": (Way("replace"), Way("by week", BY_WEEK)),
    "postgres": (
        Way("replace"),
        Way("by week", BY_WEEK),
        Way("merge", {"publish": {"mechanism": "merge", "lock_timeout": "2s"}}),
        Way("swap", {"publish": {"swap": True, "lock_timeout": "2s"}}, _fill_by_partitions),
    ),
}
"""By the name of the engine; the first of each is what a spec says that says nothing."""


@dataclass(frozen=True)
class Life:
    """One life of a backfill on one engine."""

    rig: type[Rig]
    way: Way
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rig.name} {self.way.name}, {'undone' if 'rollback' in self.steps else 'published'}"

    def place(self, folder: Path) -> Place:
        """The table as it is before the life begins."""
        return Place.create(self.rig(), folder, self.way.filled, **self.way.changes)

    def happens_before(self, step: str, rig: Rig) -> None:
        """What others do before a step is begun for the first time."""
        if step == "rebase":
            row = f"({LATE}, DATE '{DAYS[4]}', 50, 'late'"
            rig.execute(
                f"INSERT INTO {self.way.writes_to} VALUES {row})", f"INSERT INTO raw.orders VALUES {row}, FALSE)"
            )


LIVES = tuple(
    Life(rig, WAYS[rig.name][turn % len(WAYS[rig.name])], steps)
    for turn in range(4)
    for rig in RIGS
    for steps in (PUBLISHED, UNDONE)
)
"""Engines take turns, so that each gets as many."""


def take(world: World, step: str) -> None:
    """Take one step as its task does, from wherever an earlier attempt left things."""
    match step:
        case "stage":
            world.stage(world.scope())
        case "validate":
            _validate(world)
        case "rebase":
            world.stage(world.scope(backfill_id=world.id, rebase=True))
            _validate(world)
        case "publish":
            world.publish()
            conclude(world.work())
        case "rollback":
            world.rollback()
        case "cleanup":
            now = datetime.now(UTC) + LONG_AFTER
            clean_up(world.ledger, world.warehouse, "warehouse", now=now, by="cleaner")


def start_over(world: World) -> None:
    """Clear the scope task with everything below it, up to the publish."""
    world.stage(world.scope())
    _validate(world)


def _validate(world: World) -> None:
    plan = world.work().stored_plan()
    world.validate(Scoped(plan, plan.batches(), resumed=True))
