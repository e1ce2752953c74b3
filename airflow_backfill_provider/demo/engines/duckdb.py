"""The demo on DuckDB: one file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_backfill_provider.demo.data import COLUMNS, TARGET, build_warehouse, connect
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Warehouse


class DuckDBEngine:
    """See :class:`airflow_backfill_provider.demo.engines.base.DemoEngine`."""

    def __init__(self, home: Path) -> None:
        self.path = home / "warehouse.duckdb"

    @property
    def place(self) -> str:
        return str(self.path)

    @property
    def is_built(self) -> bool:
        return self.path.exists()

    def build(self) -> None:
        build_warehouse(self.path)

    def start(self) -> None:
        """There is no server."""

    def stop(self) -> None:
        """There is no server."""

    @property
    def connection(self) -> dict[str, Any]:
        return {"conn_type": "duckdb", "host": str(self.path.resolve())}

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with connect(self.path, read_only=True) as connection:
            return connection.execute(sql).fetchall()

    def append(self, select: str) -> None:
        with connect(self.path) as connection:
            connection.execute(f"INSERT INTO {TARGET} ({COLUMNS}) {select}")

    def open(self) -> Warehouse:
        return open_warehouse("duckdb", path=str(self.path.resolve()), lock_timeout=timedelta(minutes=1))
