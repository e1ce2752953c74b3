"""The demo on Delta Lake: two tables in one folder."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable, write_deltalake

from airflow_backfill_provider.demo.data import COLUMNS, TARGET, build_warehouse, connect
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Warehouse

_TABLES = ("raw.flights", TARGET)


class DeltaEngine:
    """See :class:`airflow_backfill_provider.demo.engines.base.DemoEngine`."""

    def __init__(self, home: Path) -> None:
        self.root = home / "lake"
        self._built = home / "lake-is-loaded"

    @property
    def place(self) -> str:
        return str(self._path(TARGET))

    @property
    def is_built(self) -> bool:
        return self._built.exists()

    def build(self) -> None:
        self._built.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            build_warehouse(Path(folder) / "source.duckdb")
            with connect(Path(folder) / "source.duckdb", read_only=True) as source:
                for table in _TABLES:
                    path = self._path(table)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_deltalake(str(path), source.table(table).to_arrow_table())
        self._built.touch()

    def start(self) -> None:
        """There is no server."""

    def stop(self) -> None:
        """There is no server."""

    @property
    def connection(self) -> dict[str, Any]:
        return {"conn_type": "delta", "host": str(self.root.resolve())}

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(sql).fetchall()

    def append(self, select: str) -> None:
        with self._reading() as connection:
            rows = connection.sql(select).to_arrow_table().select(COLUMNS.split(", "))
        write_deltalake(str(self._path(TARGET)), rows, mode="append")

    def open(self) -> Warehouse:
        return open_warehouse("delta", root=str(self.root.resolve()), lock_timeout=timedelta(minutes=1))

    def _path(self, table: str) -> Path:
        return self.root.joinpath(*table.split("."))

    def _reading(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB of its own, with each table as it is now under its name."""
        connection = duckdb.connect(":memory:")
        connection.execute("SET enable_progress_bar = false")
        for table in _TABLES:
            dataset = table.replace(".", "_")
            connection.register(dataset, DeltaTable(str(self._path(table))).to_pyarrow_dataset())
            connection.execute(f"CREATE SCHEMA {table.partition('.')[0]}")
            connection.execute(f"CREATE VIEW {table} AS FROM {dataset}")
        return connection
