"""One small published Delta table on a disk, and processes that are killed while they use it: for the Delta tests."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import duckdb
import duckdb_outside
import pyarrow
import pytest
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
from airflow_backfill_provider.warehouses.delta import DeltaWarehouse, publish, stage, storage
from airflow_backfill_provider.warehouses.delta.session import DeltaSession
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


FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["delta_shop"])


@cache
def _start_server() -> None:
    """Start it with this process's import path, which it only takes over after having preloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        ensure_running()


def kill(folder: Path, step: str, survived: int) -> bool:
    """Run ``stage``, ``back_up``, ``publish`` or ``rollback`` and kill it; whether it ended by itself instead.

    It dies before its Nth statement, batch of rows or commit, or right after a commit.
    """
    _start_server()
    process = FORKS.Process(target=_run, args=(folder, step, survived))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"{step} broke instead of being killed: {process.exitcode}"
    return process.exitcode == 0


def _run(folder: Path, step: str, survived: int) -> None:
    shop = Shop.open(folder)
    backup = next((item.location for item in shop.warehouse.storage() if item.kind == "backup"), "")
    publication = shop.publication(shop.stage(*RANGE)) if step == "publish" else None
    countdown = iter(range(survived))

    def live() -> None:
        if next(countdown, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    run = DeltaSession.run
    DeltaSession.run = lambda self, sql: (live(), run(self, sql))[1]  # type: ignore[method-assign]
    for module in (publish, stage, storage):
        module.write_deltalake = _dying(live)  # type: ignore[attr-defined]
    match step:
        case "stage":
            shop.stage(*RANGE[:2])
        case "back_up":
            shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")
        case "publish":
            assert publication is not None
            shop.warehouse.replace_partitions(shop.target, publication)
        case "rollback":
            kept = shop.warehouse.fingerprint(shop.target, Backup(backup), RANGE)
            undo = shop.publication(Backup(backup), action=Action.ROLLBACK, after=kept)
            shop.warehouse.replace_partitions(shop.target, undo)


def _dying(live: Callable[[], None]) -> Callable[..., None]:
    def batches(rows: pyarrow.RecordBatchReader) -> Iterator[pyarrow.RecordBatch]:
        for batch in rows:
            live()
            yield batch
        live()

    def write(to: Any, rows: pyarrow.RecordBatchReader, **settings: Any) -> None:
        live()
        write_deltalake(to, pyarrow.RecordBatchReader.from_batches(rows.schema, batches(rows)), **settings)
        live()

    return write
