"""The demo on PostgreSQL: a server of its own on loopback."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from airflow_backfill_provider.demo.data import COLUMNS, PUBLISHED_TABLE, TARGET, WRONG_RULE, build_warehouse, connect
from airflow_backfill_provider.demo.local_postgres import LocalPostgres
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Warehouse

_DATABASE = "warehouse"


class PostgresEngine:
    """See :class:`airflow_backfill_provider.demo.engines.base.DemoEngine`."""

    def __init__(self, home: Path) -> None:
        self.server = LocalPostgres(home / "postgres.json")
        self._built = home / "postgres-is-loaded"

    @property
    def place(self) -> str:
        return f"postgresql://{self.server.user}@127.0.0.1:{self.server.port}/{_DATABASE}"

    @property
    def is_built(self) -> bool:
        return self._built.exists()

    def build(self) -> None:
        self._built.unlink(missing_ok=True)
        self.server.create()
        self.server.start()
        with self._connected("postgres") as server:
            server.execute(f"DROP DATABASE IF EXISTS {_DATABASE}")
            server.execute(f"CREATE DATABASE {_DATABASE}")
        with tempfile.TemporaryDirectory() as folder, self._connected() as warehouse:
            self._load(Path(folder), warehouse)
            warehouse.execute("CREATE SCHEMA analytics")
            warehouse.execute(PUBLISHED_TABLE)
            self._append(warehouse, WRONG_RULE)
            warehouse.execute("ANALYZE")
        self._built.touch()

    def _load(self, folder: Path, warehouse: psycopg.Connection[Any]) -> None:
        """Copy raw.flights from a DuckDB file, which knows how to read the package's data."""
        build_warehouse(folder / "source.duckdb")
        with connect(folder / "source.duckdb", read_only=True) as source:
            described = source.execute("DESCRIBE raw.flights").fetchall()
            source.execute(f"COPY raw.flights TO '{folder / 'flights.csv'}' (HEADER false)")
        warehouse.execute("CREATE SCHEMA raw")
        warehouse.execute(f"CREATE TABLE raw.flights ({', '.join(f'{name} {kind}' for name, kind, *_ in described)})")
        with (
            (folder / "flights.csv").open("rb") as rows,
            warehouse.cursor().copy("COPY raw.flights FROM STDIN (FORMAT csv)") as copy,
        ):
            while block := rows.read(1 << 20):
                copy.write(block)

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    @property
    def connection(self) -> dict[str, Any]:
        server = self.server
        address = {"host": "127.0.0.1", "port": server.port, "login": server.user, "password": server.password}
        return {"conn_type": "postgres", "schema": _DATABASE, **address}

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return connection.execute(sql).fetchall()

    def append(self, select: str) -> None:
        with self._connected() as connection:
            self._append(connection, select)

    def open(self) -> Warehouse:
        return open_warehouse(
            "postgres", connect=lambda: self.server.connect(_DATABASE), lock_timeout=timedelta(minutes=1)
        )

    def _append(self, connection: psycopg.Connection[Any], select: str) -> None:
        connection.execute(f"INSERT INTO {TARGET} ({COLUMNS}) {select}")

    @contextmanager
    def _connected(self, database: str = _DATABASE) -> Iterator[psycopg.Connection[Any]]:
        with self.server.connect(database) as connection:
            connection.autocommit = True
            yield connection
