"""A published table on the local Databricks warehouse, reached by the real client, for the tests of its own failures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from airflow_backfill_provider.warehouses.base import Action, Publication, Published, Staged, Target, Warehouse
from airflow_backfill_provider.windows import Grain, Partition, partition_at
from databricks_local import client

TABLE = "analytics.shop"
DAY, NEXT = (partition_at(date(2024, 1, number), Grain.DAY) for number in (2, 3))
needs_spark = pytest.mark.skipif(bool(client.missing()), reason=client.missing())


def run(*statements: str) -> None:
    """Statements of somebody else."""
    client.run(*statements)


def rows(sql: str) -> list[tuple[Any, ...]]:
    """What somebody else reads."""
    with client.shared() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


def open_warehouse(**settings: Any) -> Warehouse:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    return DatabricksWarehouse(client.bounded, **{"lock_timeout": timedelta(seconds=30)} | settings)


def create() -> None:
    """Three rows of three days."""
    client.tables()
    run(
        f"CREATE TABLE {TABLE} (id BIGINT NOT NULL, day DATE, amount DECIMAL(12,2)) PARTITIONED BY (day)",
        f"INSERT INTO {TABLE} VALUES (1, DATE '2024-01-01', 1.00), (2, DATE '2024-01-02', 2.00), (3, DATE '2024-01-03', 3.00)",
    )


def select(partition: Partition = DAY, amount: str = "amount + 10") -> str:
    """The rows of a day with other amounts."""
    return f"SELECT id, day, CAST({amount} AS DECIMAL(12,2)) AS amount FROM {TABLE} WHERE day = DATE '{partition.key}'"


def publication(warehouse: Warehouse, target: Target, staged: Staged, **changes: Any) -> Publication:
    """What a correct caller hands over."""
    partitions = tuple(entry.partition for entry in staged.partitions)
    parts: dict[str, Any] = {
        "backfill_id": "b1",
        "action": Action.PUBLISH,
        "plan_hash": "p1",
        "partitions": partitions,
        "rows": staged,
        "before": warehouse.fingerprint(target, Published(), partitions),
        "after": {entry.partition.key: entry.fingerprint for entry in staged.partitions},
    }
    return Publication(**parts | changes)


def opened(**settings: Any) -> Iterator[Warehouse]:
    """For a fixture: a warehouse with the table in it, closed in the end."""
    create()
    warehouse = open_warehouse(**settings)
    yield warehouse
    warehouse.close()
