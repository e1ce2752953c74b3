"""The engines of the benchmark: the table of orders in each, the statements a person would type, and the product's way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Protocol

import psutil

HOME = Path(os.environ.get("BENCH_HOME", ".bench")).absolute()
FIRST, DAYS = date(2023, 1, 1), 365
ROWS_PER_DAY = int(os.environ.get("BENCH_ROWS_PER_DAY", 27_000))
WORKERS = os.cpu_count() or 2
COLUMNS = "order_id, order_date, customer_id, amount_minor, discount, status, ordered_at"
SELECT = (
    "SELECT order_id, order_date, customer_id, CASE WHEN refunded THEN 0 ELSE amount_minor END AS amount_minor, "
    "discount, status, ordered_at FROM raw.orders "
)


def in_range(days: int) -> str:
    return f"WHERE order_date >= DATE '{FIRST}' AND order_date < DATE '{FIRST + timedelta(days=days)}'"


class Engine(Protocol):
    """One engine; a *place* is what a child process needs to find the tables again."""

    computes_here: bool
    """Whether the work is done in our processes, so that their memory is worth watching."""

    def start(self) -> str:
        """Have the tables that every round starts from; returns a line about the engine."""

    def stop(self) -> None: ...

    def fresh(self) -> str:
        """A copy of the tables that nobody has used; the one before is removed."""

    def bare(self, place: str, days: int) -> None:
        """One CREATE TABLE AS of the corrected range, and one transaction of DELETE and INSERT."""

    def open(self, place: str, sharers: int) -> Any:
        """The product's warehouse."""

    def append(self, place: str) -> None:
        """Append one row far outside the range, as a live pipeline would."""

    def cpu_seconds(self) -> float:
        """Processor time that a server of the engine has used until now; 0 where our processes compute."""


class DuckDB:
    computes_here = True

    def __init__(self) -> None:
        self.base = HOME / "base.duckdb"

    def start(self) -> str:
        import duckdb

        if not self.base.exists():
            self._build()
        return f"DuckDB {duckdb.__version__}"

    def _build(self) -> None:
        import duckdb

        HOME.mkdir(parents=True, exist_ok=True)
        making = self.base.with_suffix(".making")
        making.unlink(missing_ok=True)
        with duckdb.connect(str(making)) as connection:
            connection.execute("CREATE SCHEMA raw")
            connection.execute("CREATE SCHEMA analytics")
            connection.execute(
                f"""
                CREATE TABLE raw.orders AS
                SELECT i AS order_id, DATE '{FIRST}' + CAST(i // {ROWS_PER_DAY} AS INTEGER) AS order_date,
                       (i * 7919) % 100000 AS customer_id, CAST((i * 104729) % 1000000 AS BIGINT) AS amount_minor,
                       CASE WHEN i % 13 = 0 THEN NULL ELSE CAST(i % 50 AS DOUBLE) END AS discount,
                       'status ' || (i % 5) AS status, TIMESTAMP '{FIRST}' + INTERVAL (i * 3) SECOND AS ordered_at,
                       i % 7 = 0 AS refunded
                FROM range({DAYS * ROWS_PER_DAY}) AS t (i)
                """
            )
            connection.execute(f"CREATE TABLE analytics.orders AS SELECT {COLUMNS} FROM raw.orders")
        making.rename(self.base)

    def stop(self) -> None:
        shutil.rmtree(HOME / "run", ignore_errors=True)

    def fresh(self) -> str:
        folder = HOME / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(self.base, folder / "warehouse.duckdb")
        os.sync()
        return str(folder / "warehouse.duckdb")

    def bare(self, place: str, days: int) -> None:
        import duckdb

        with duckdb.connect(place) as connection:
            connection.execute("SET enable_progress_bar = false")
            connection.execute(f"CREATE TABLE analytics.orders_fixed AS {SELECT} {in_range(days)}")
            connection.execute("BEGIN")
            connection.execute(f"DELETE FROM analytics.orders {in_range(days)}")
            connection.execute("INSERT INTO analytics.orders BY NAME SELECT * FROM analytics.orders_fixed")
            connection.execute("COMMIT")

    def count(self, select: str) -> int:
        """Rows of a SELECT on the copy that was last made."""
        import duckdb

        with duckdb.connect(str(HOME / "run" / "warehouse.duckdb"), read_only=True) as connection:
            ((rows,),) = connection.execute(f"SELECT count(*) FROM ({select}) AS counted").fetchall()
        return int(rows)

    def open(self, place: str, sharers: int) -> Any:
        from airflow_backfill_provider.warehouses import open_warehouse

        return open_warehouse("duckdb", path=place, sharers=sharers)

    def append(self, place: str) -> None:
        raise NotImplementedError("a DuckDB file has one writer")

    def cpu_seconds(self) -> float:
        return 0.0


class Postgres:
    computes_here = False

    def __init__(self) -> None:
        from airflow_backfill_provider.demo.local_postgres import LocalPostgres

        HOME.mkdir(parents=True, exist_ok=True)
        self.server = LocalPostgres(HOME / "postgres.json")

    def start(self) -> str:
        self.server.create()
        self.server.start()
        with self._connected("postgres") as connection:
            ((version,),) = connection.execute("SHOW server_version").fetchall()
            connection.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE DATABASE base")
        with self._connected("base") as connection:
            connection.execute("CREATE SCHEMA raw")
            connection.execute("CREATE SCHEMA analytics")
            connection.execute(
                f"""
                CREATE TABLE raw.orders AS
                SELECT i AS order_id, DATE '{FIRST}' + (i / {ROWS_PER_DAY})::int AS order_date,
                       (i * 7919) % 100000 AS customer_id, (i * 104729) % 1000000 AS amount_minor,
                       CASE WHEN i % 13 = 0 THEN NULL ELSE (i % 50)::double precision END AS discount,
                       'status ' || (i % 5) AS status, TIMESTAMP '{FIRST}' + i * INTERVAL '3 seconds' AS ordered_at,
                       i % 7 = 0 AS refunded
                FROM generate_series(0::bigint, {DAYS * ROWS_PER_DAY - 1}) AS t (i)
                """
            )
            connection.execute(f"CREATE TABLE analytics.orders AS SELECT {COLUMNS} FROM raw.orders")
            # What a table of this size has: the scheduled pipeline finds its day by it.
            for table in ("raw", "analytics"):
                connection.execute(f"CREATE INDEX ON {table}.orders (order_date)")
                connection.execute(f"VACUUM ANALYZE {table}.orders")
        return f"PostgreSQL {version}, settings as installed but max_wal_size 8 GB, an index on order_date"

    def stop(self) -> None:
        self.server.remove()

    def fresh(self) -> str:
        with self._connected("postgres") as connection:
            connection.execute("DROP DATABASE IF EXISTS run")
            connection.execute("CREATE DATABASE run TEMPLATE base")
            connection.execute("CHECKPOINT")
        os.sync()
        return "run"

    def bare(self, place: str, days: int) -> None:
        with self._connected(place) as connection:
            connection.execute(f"CREATE TABLE analytics.orders_fixed AS {SELECT} {in_range(days)}")
            connection.execute("BEGIN")
            connection.execute(f"DELETE FROM analytics.orders {in_range(days)}")
            connection.execute(f"INSERT INTO analytics.orders ({COLUMNS}) SELECT {COLUMNS} FROM analytics.orders_fixed")
            connection.execute("COMMIT")

    def count(self, select: str) -> int:
        """Rows of a SELECT on the copy that was last made."""
        with self._connected("run") as connection:
            ((rows,),) = connection.execute(f"SELECT count(*) FROM ({select}) AS counted").fetchall()
        return int(rows)

    def open(self, place: str, sharers: int) -> Any:
        from airflow_backfill_provider.warehouses import open_warehouse

        return open_warehouse("postgres", connect=lambda: self.server.connect(place), sharers=sharers)

    def append(self, place: str) -> None:
        row = f"SELECT -1, DATE '{FIRST}' - 1, 1, 1, NULL, 'live', TIMESTAMP '{FIRST}'"
        with self._connected(place) as connection:
            connection.execute(f"INSERT INTO analytics.orders ({COLUMNS}) {row}")

    def cpu_seconds(self) -> float:
        server = psutil.Process(self.server.pid)
        own = server.cpu_times()
        # Of a process that ended, the server that waited for it knows.
        ended = own.user + own.system + own.children_user + own.children_system
        living = [process.cpu_times() for process in server.children()]
        return ended + sum(times.user + times.system for times in living)

    @contextmanager
    def _connected(self, database: str) -> Iterator[Any]:
        with self.server.connect(database, autocommit=True) as connection:
            yield connection


class Delta:
    computes_here = True

    def __init__(self) -> None:
        self.base = HOME / "lake"

    def start(self) -> str:
        import deltalake
        import duckdb

        if not self.base.exists():
            self._build()
        return (
            f"Delta (delta-rs {deltalake.__version__}, DuckDB {duckdb.__version__}), tables partitioned by order_date"
        )

    def _build(self) -> None:
        import duckdb
        from deltalake import write_deltalake

        DuckDB().start()
        making = self.base.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        with duckdb.connect(str(DuckDB().base), read_only=True) as source:
            for table in ("raw.orders", "analytics.orders"):
                path = making.joinpath(*table.split("."))
                path.parent.mkdir(parents=True)
                write_deltalake(str(path), source.table(table).to_arrow_reader(), partition_by=["order_date"])
        making.rename(self.base)

    def stop(self) -> None:
        shutil.rmtree(HOME / "run-lake", ignore_errors=True)

    def fresh(self) -> str:
        self.stop()
        shutil.copytree(self.base, HOME / "run-lake")
        os.sync()
        return str(HOME / "run-lake")

    def bare(self, place: str, days: int) -> None:
        import duckdb
        from deltalake import DeltaTable, write_deltalake

        def rows(table: str) -> Any:
            return DeltaTable(f"{place}/{table}").to_pyarrow_dataset()

        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            connection.register("orders", rows("raw/orders"))
            corrected = connection.sql(f"{SELECT.replace('raw.orders', 'orders')} {in_range(days)}")
            fixed = f"{place}/analytics/orders_fixed"
            write_deltalake(fixed, corrected.to_arrow_reader(), partition_by=["order_date"])
            connection.register("fixed", rows("analytics/orders_fixed"))
            write_deltalake(
                DeltaTable(f"{place}/analytics/orders"),
                connection.sql(f"SELECT {COLUMNS} FROM fixed").to_arrow_reader(),
                mode="overwrite",
                predicate=f"order_date >= '{FIRST}' AND order_date < '{FIRST + timedelta(days=days)}'",
            )

    def open(self, place: str, sharers: int) -> Any:
        from airflow_backfill_provider.warehouses import open_warehouse

        return open_warehouse("delta", root=place, sharers=sharers)

    def append(self, place: str) -> None:
        raise NotImplementedError("an append to Delta waits for nobody")

    def cpu_seconds(self) -> float:
        return 0.0


ENGINES: dict[str, type[Engine]] = {"delta": Delta, "duckdb": DuckDB, "postgres": Postgres}
