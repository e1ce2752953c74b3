"""The table that the contract tests publish to, and the few moves they make on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from contract_engines import Engine
from stage_writing import write_one

from airflow_backfill_provider.errors import BackfillError, PublishRefused
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Fingerprint,
    Publication,
    Published,
    Receipt,
    Staged,
    StagedPartition,
    Target,
    Warehouse,
)
from airflow_backfill_provider.windows import Grain, Partition, partition_at

COLUMNS = ("order_id", "order_date", "Status", "amount", "note", "seen_at")
KEYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05")
EMPTY_DAY = "2024-01-04"
RANGE = ("2024-01-02", "2024-01-03", "2024-01-04")
"""What most tests publish: two days with rows and an empty one; the first and the last day are the neighbours."""

ROWS: tuple[tuple[Any, ...], ...] = (
    (1, "2024-01-01", "paid", "10.00", None, "2024-01-01 00:00:00"),
    (2, "2024-01-01", "open", "20.50", "a", "2024-01-01 23:59:59.999999"),
    (3, "2024-01-02", "paid", "30.00", "b", "2024-01-02 00:00:00"),
    (4, "2024-01-02", "open", "0.10", None, "2024-01-02 12:00:00"),
    (5, "2024-01-02", None, None, 'it\'s; -- "c"', "2024-01-02 23:59:59.999999"),
    (6, "2024-01-03", "paid", "-5.25", "", "2024-01-03 00:00:00"),
    (7, "2024-01-03", "void", "0.20", "d", "2024-01-03 08:30:00"),
    (8, "2024-01-05", "paid", "80.00", "e", "2024-01-05 00:00:00"),
    (9, None, "paid", "90.00", "lost", None),
    (10, None, "open", None, None, None),
)


def day(key: str) -> Partition:
    return partition_at(date.fromisoformat(key), Grain.DAY)


def days(*keys: str) -> tuple[Partition, ...]:
    return tuple(day(key) for key in keys)


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def row_sql(row: Iterable[Any]) -> str:
    """One row of the table as a SELECT with the table's names and types."""
    order_id, order_date, status, amount, note, seen_at = (literal(value) for value in row)
    return (
        f"SELECT CAST({order_id} AS BIGINT) AS order_id, CAST({order_date} AS DATE) AS order_date, "
        f'CAST({status} AS VARCHAR) AS "Status", CAST({amount} AS DECIMAL(12,2)) AS amount, '
        f"CAST({note} AS VARCHAR) AS note, CAST({seen_at} AS TIMESTAMP) AS seen_at"
    )


def rows_sql(rows: Iterable[Iterable[Any]], partition_by: str = "order_date") -> str:
    """The rows as one SELECT; no rows as one that returns none."""
    rows = list(rows)
    return (
        " UNION ALL ".join(map(row_sql, rows))
        if rows
        else f"SELECT * FROM ({row_sql([0, *[None] * 5])}) AS n WHERE 1 = 0"
    )


@dataclass
class World:
    """One engine, one warehouse and one published table."""

    engine: Engine
    warehouse: Warehouse
    target: Target

    @classmethod
    def by_date(cls, engine: Engine, warehouse: Warehouse) -> World:
        return cls._create(engine, warehouse, "order_date")

    @classmethod
    def by_timestamp(cls, engine: Engine, warehouse: Warehouse) -> World:
        return cls._create(engine, warehouse, "seen_at")

    @classmethod
    def behind_view(cls, engine: Engine, warehouse: Warehouse, partition_by: str) -> World:
        """The rows in ``analytics.orders__v1``, and ``analytics.orders`` a view of it."""
        engine.execute(
            create_orders(engine, "analytics.orders__v1"),
            f"INSERT INTO analytics.orders__v1 {rows_sql(ROWS)}",
            "CREATE VIEW analytics.orders AS SELECT * FROM analytics.orders__v1",
        )
        return cls(engine, warehouse, warehouse.describe("analytics.orders", partition_by, ["order_id"]))

    @classmethod
    def _create(cls, engine: Engine, warehouse: Warehouse, partition_by: str) -> World:
        engine.execute(create_orders(engine, "analytics.orders"), f"INSERT INTO analytics.orders {rows_sql(ROWS)}")
        return cls(engine, warehouse, warehouse.describe("analytics.orders", partition_by, ["order_id"]))

    @property
    def partition_by(self) -> str:
        return self.target.partition_by

    def select(self, key: str, amount: str = "amount") -> str:
        """The published rows of one day, as a transform would recompute them."""
        start, end = (
            f"TIMESTAMP '{bound:%Y-%m-%d %H:%M:%S}'" for bound in (day(key).window.start, day(key).window.end)
        )
        return (
            f'SELECT order_id, order_date, "Status", {amount} AS amount, note, seen_at FROM analytics.orders '
            f"WHERE {self.partition_by} >= {start} AND {self.partition_by} < {end}"
        )

    def stage(self, selects: Mapping[str, str], backfill_id: str = "b1", label: str = "batch-1") -> Staged:
        """Stage one SELECT per day in one attempt."""
        with self.warehouse.open_stage(self.target, backfill_id, label) as writer:
            return Staged(tuple(write_one(writer, day(key), select) for key, select in selects.items()))

    def stage_rows(self, rows: Mapping[str, Iterable[Iterable[Any]]], **kwargs: Any) -> Staged:
        return self.stage({key: rows_sql(chosen) for key, chosen in rows.items()}, **kwargs)

    def stage_corrected(self, *keys: str, **kwargs: Any) -> Staged:
        """Stage the days with every amount raised by one."""
        return self.stage({key: self.select(key, "CAST(amount + 1 AS DECIMAL(12,2))") for key in keys}, **kwargs)

    def fingerprint(self, *keys: str) -> dict[str, Fingerprint]:
        return self.warehouse.fingerprint(self.target, Published(), days(*keys))

    def publication(self, rows: Staged | Backup, keys: Iterable[str], **changes: Any) -> Publication:
        """What a correct caller hands over; ``changes`` replace its parts."""
        partitions = days(*keys)
        parts: dict[str, Any] = {
            "backfill_id": "b1",
            "action": Action.PUBLISH,
            "plan_hash": "p1",
            "partitions": partitions,
            "rows": rows,
            "before": self.warehouse.fingerprint(self.target, Published(), partitions),
        }
        if "after" not in changes:
            parts["after"] = after(rows) if isinstance(rows, Staged) else {}
        return Publication(**(parts | changes))

    def contents(self, where: str = "1 = 1") -> list[tuple[Any, ...]]:
        return self.engine.rows(f"SELECT * FROM analytics.orders WHERE {where} ORDER BY order_id, note, amount")

    def refuses(
        self,
        publish: Callable[[Target, Publication], Receipt],
        publication: Publication,
        error: type[BackfillError] = PublishRefused,
    ) -> BackfillError:
        """Publishing raises, and the table and its receipts are what they were."""
        contents, receipts = self.contents(), self.warehouse.receipts(self.target)
        with pytest.raises(error) as refused:
            publish(self.target, publication)
        assert self.contents() == contents
        assert self.warehouse.receipts(self.target) == receipts
        return refused.value

    def outside(self) -> list[tuple[Any, ...]]:
        """Every row that publishing ``RANGE`` may not touch."""
        return self.contents(
            f"{self.partition_by} < TIMESTAMP '2024-01-02 00:00:00' OR {self.partition_by} >= TIMESTAMP '2024-01-05 00:00:00' "
            f"OR {self.partition_by} IS NULL"
        )


def create_orders(engine: Engine, name: str) -> str:
    """The statement that creates a table with the columns of ``ROWS``."""
    types = engine.types
    return (
        f'CREATE TABLE {name} (order_id {types["integer"]}, order_date {types["date"]}, "Status" {types["text"]}, '
        f"amount {types['money']}, note {types['text']}, seen_at {types['timestamp']})"
    )


def after(staged: Staged) -> dict[str, Fingerprint]:
    return {entry.partition.key: entry.fingerprint for entry in staged.partitions}


def only(staged: Staged) -> StagedPartition:
    (entry,) = staged.partitions
    return entry
