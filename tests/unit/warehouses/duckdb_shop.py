"""One small published table in a DuckDB file, and other processes that use it: for the DuckDB tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb_outside
import stage_writing
from stage_writing import write_one

from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Fingerprint,
    Publication,
    Published,
    Staged,
    Target,
)
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.windows import Grain, Partition, partition_at

TABLE = """
CREATE SCHEMA analytics;
CREATE TABLE analytics.orders (id BIGINT {key}, day DATE, amount BIGINT, note VARCHAR);
COMMENT ON TABLE analytics.orders IS 'it''s the orders';
INSERT INTO analytics.orders
    SELECT i, DATE '2024-01-01' + CAST(i // {size} AS INTEGER), i, 'n' || i FROM range(10 * {size}) AS t(i);
INSERT INTO analytics.orders VALUES (-1, NULL, 1, 'no day');
CHECKPOINT;
"""


def day(number: int) -> Partition:
    return partition_at(date(2024, 1, number), Grain.DAY)


def days(*numbers: int) -> tuple[Partition, ...]:
    return tuple(day(number) for number in numbers)


RANGE = days(2, 3, 4)


def corrected(partition: Partition) -> str:
    return (
        "SELECT id, day, amount + 1 AS amount, note FROM analytics.orders "
        f"WHERE day >= DATE '{partition.key}' AND day < DATE '{partition.key}' + 1"
    )


@dataclass
class Shop:
    """A warehouse with ten days of orders; new amounts are old amounts plus one."""

    path: Path
    warehouse: DuckDBWarehouse
    target: Target

    @classmethod
    def create(cls, folder: Path, *, key: str = "", size: int = 10) -> Shop:
        path = folder / "shop.duckdb"
        duckdb_outside.run(path, TABLE.format(key=key, size=size))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path, **settings: Any) -> Shop:
        path = folder / "shop.duckdb"
        warehouse = DuckDBWarehouse(path, **settings)
        return cls(path, warehouse, warehouse.describe("analytics.orders", "day", ["id"]))

    def stage(self, *partitions: Partition, backfill_id: str = "b1") -> Staged:
        with self.warehouse.open_stage(self.target, backfill_id, "batch-1") as stage:
            return Staged(tuple(write_one(stage, partition, corrected(partition)) for partition in partitions))

    def publication(self, rows: Staged | Backup, **changes: Any) -> Publication:
        before = changes.pop("before", None) or self.fingerprint(*RANGE)
        after = changes.pop("after", None)
        if after is None and isinstance(rows, Staged):
            after = {entry.partition.key: entry.fingerprint for entry in rows.partitions}
        return Publication("b1", Action.PUBLISH, "p1", RANGE, rows, before, after or {}, **changes)

    def fingerprint(self, *partitions: Partition) -> dict[str, Fingerprint]:
        return self.warehouse.fingerprint(self.target, Published(), partitions)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return duckdb_outside.run(self.path, sql)

    def outside(self) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT * FROM analytics.orders WHERE day NOT IN ('2024-01-02', '2024-01-03', '2024-01-04') OR day IS NULL ORDER BY id"
        )

    def amounts(self) -> list[tuple[Any, ...]]:
        """What a reader sees of the range: one row for each day."""
        return self.rows(AMOUNTS)


AMOUNTS = (
    "SELECT day, count(*), sum(amount) FROM analytics.orders WHERE day >= DATE '2024-01-02' AND day < DATE '2024-01-05' "
    "GROUP BY day ORDER BY day"
)

_PRELUDE = """
import os, signal, sys, time
from pathlib import Path
sys.path[:0] = {paths!r}
import duckdb
from duckdb_shop import *
folder = Path({folder!r})
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def script(folder: Path, body: str) -> list[str]:
    paths = [str(Path(module).parent) for module in (__file__, stage_writing.__file__)]
    return [sys.executable, "-c", _PRELUDE.format(paths=paths, folder=str(folder)) + body]


def run_process(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run Python with everything of this module in reach, in a process of its own."""
    return subprocess.run(script(folder, body), capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def process(folder: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """The same, running beside the test; it is ready once it printed a line."""
    with subprocess.Popen(script(folder, body), stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child
        finally:
            child.kill()


SHORT = timedelta(seconds=0.5)
