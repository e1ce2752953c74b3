"""One small published Delta table on a disk, and processes that are killed while they use it: for the Delta tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import duckdb_outside
import pyarrow
from deltalake import DeltaTable, write_deltalake
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
from airflow_backfill_provider.warehouses.delta import DeltaWarehouse
from airflow_backfill_provider.windows import Grain, Partition, partition_at

ROWS = (
    "SELECT i AS id, DATE '2024-01-01' + CAST(i // 10 AS INTEGER) AS day, "
    "CASE i % 3 WHEN 0 THEN 'eu/w e=s%t' WHEN 1 THEN 'it''s' END AS region, i AS amount FROM range(100) AS t(i) "
    "UNION ALL SELECT -1, NULL, 'lost', 1 UNION ALL SELECT -2, NULL, NULL, 1"
)
"""Ten days of ten orders, in regions with odd names and in none; and two orders that no day can hold."""
AMOUNTS = (
    "SELECT day, count(*), sum(amount) FROM orders WHERE day >= DATE '2024-01-02' AND day < DATE '2024-01-05' "
    "GROUP BY day ORDER BY day"
)


def day(number: int) -> Partition:
    return partition_at(date(2024, 1, number), Grain.DAY)


RANGE = tuple(map(day, (2, 3, 4)))


def corrected(partition: Partition) -> str:
    return f"SELECT id, day, region, amount + 1 AS amount FROM analytics.orders WHERE day = DATE '{partition.key}'"


def rows_of(sql: str) -> pyarrow.RecordBatchReader:
    """The rows of a statement that reads no table."""
    return duckdb.sql(sql).to_arrow_reader()


@dataclass
class Shop:
    """A warehouse with ten days of orders; new amounts are old amounts plus one."""

    path: Path
    warehouse: DeltaWarehouse
    target: Target

    @classmethod
    def create(cls, folder: Path, *, partition_by: str | None = None) -> Shop:
        write_deltalake(folder / "analytics" / "orders", rows_of(ROWS), partition_by=partition_by)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path, **settings: Any) -> Shop:
        warehouse = DeltaWarehouse(str(folder), **settings)
        return cls(folder / "analytics" / "orders", warehouse, warehouse.describe("analytics.orders", "day", ["id"]))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def append(self, sql: str) -> None:
        write_deltalake(self.path, rows_of(sql), mode="append")

    def stage(self, *partitions: Partition, select: Callable[[Partition], str] = corrected) -> Staged:
        with self.warehouse.open_stage(self.target, "b1", "batch-1") as writer:
            return Staged(tuple(write_one(writer, partition, select(partition)) for partition in partitions))

    def publication(self, rows: Staged | Backup, **changes: Any) -> Publication:
        before = changes.pop("before", None) or self.fingerprint(*RANGE)
        after = changes.pop("after", None)
        if after is None and isinstance(rows, Staged):
            after = {entry.partition.key: entry.fingerprint for entry in rows.partitions}
        action = changes.pop("action", Action.PUBLISH)
        return Publication("b1", action, "p1", RANGE, rows, before, after or {}, **changes)

    def fingerprint(self, *partitions: Partition) -> dict[str, Fingerprint]:
        return self.warehouse.fingerprint(self.target, Published(), partitions)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a reader gets who knows nothing of us; the table is ``orders``."""
        with duckdb_outside.empty() as connection:
            connection.register("orders", self.table.to_pyarrow_dataset())
            return connection.execute(sql).fetchall()

    def outside(self) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT * FROM orders WHERE day NOT IN ('2024-01-02', '2024-01-03', '2024-01-04') OR day IS NULL ORDER BY id"
        )

    def amounts(self) -> list[tuple[Any, ...]]:
        """What a reader sees of the range: one row for each day."""
        return self.rows(AMOUNTS)
