"""The demo on Databricks SQL: the real client, in front of a local Spark with Delta Lake of its own."""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlglot

from airflow_backfill_provider.demo.data import COLUMNS, PUBLISHED_TABLE, TARGET, WRONG_RULE, build_warehouse, connect
from airflow_backfill_provider.demo.local_databricks.server import LocalDatabricks
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Warehouse


class LocalDatabricksEngine:
    """See :class:`airflow_backfill_provider.demo.engines.base.DemoEngine`."""

    def __init__(self, home: Path) -> None:
        self.server = LocalDatabricks(home / "databricks")
        self._built = home / "databricks-is-loaded"

    @property
    def place(self) -> str:
        schema, _, name = TARGET.partition(".")
        return str(self.server.tables / f"{schema}.db" / name)

    @property
    def is_built(self) -> bool:
        return self._built.exists()

    def build(self) -> None:
        self._built.unlink(missing_ok=True)
        self.server.remove()
        self.server.start()
        with tempfile.TemporaryDirectory() as folder:
            flights = self._flights(Path(folder))
            (published,) = sqlglot.transpile(PUBLISHED_TABLE, read="postgres", write="databricks")
            for sql in (
                "CREATE SCHEMA raw",
                "CREATE SCHEMA analytics",
                f"CREATE TABLE raw.flights AS SELECT * FROM parquet.`{flights}`",  # noqa: S608 - a file of our own
                published,
                f"INSERT INTO {TARGET} ({COLUMNS}) {WRONG_RULE}",
            ):
                self.run(sql)
        self._built.touch()

    def _flights(self, folder: Path) -> Path:
        """The rows of raw.flights as a file, by DuckDB, which knows how to read the package's data."""
        build_warehouse(folder / "source.duckdb")
        with connect(folder / "source.duckdb", read_only=True) as source:
            source.execute(f"COPY raw.flights TO '{folder / 'flights.parquet'}'")
        return folder / "flights.parquet"

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    @property
    def connection(self) -> dict[str, Any]:
        found = self.server.connection()
        return found | {"extra": json.dumps(found["extra"])}

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self.server.connect({}) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def append(self, select: str) -> None:
        self.run(f"INSERT INTO {TARGET} ({COLUMNS}) {select}")

    def open(self) -> Warehouse:
        return open_warehouse("databricks", connect=self.server.connect, lock_timeout=timedelta(minutes=1))
