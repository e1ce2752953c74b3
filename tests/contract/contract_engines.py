"""The engines that the contract suite runs on: how to make one, and how to reach its tables from outside.

A new engine is one small class here, added to ``ENGINES``.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol, cast

import duckdb_outside
import postgres_server
import sqlglot
from databricks_local import client as databricks_local
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.spec.metric import Metric
from airflow_backfill_provider.warehouses.base import (
    Constraint,
    ConstraintKind,
    Recompute,
    Rows,
    Source,
    Staged,
    StageWriter,
    Target,
    Tell,
    Warehouse,
    untold,
)
from airflow_backfill_provider.warehouses.memory import MemoryWarehouse


class Engine(Protocol):
    """What the suite needs besides the warehouse itself. SQL is quoted with double quotes."""

    name: str
    types: dict[str, str]
    """The engine's spelling of: integer, date, timestamp, text, money (12 digits, 2 of them decimals), real, flag."""
    lacks: frozenset[str]
    """What the engine cannot have at all: ``view``, ``constraint`` (that spans rows), ``zoned``, ``nan`` (nor infinity), ``odd names`` of
    tables (with quotes or blanks in them)."""

    def create(self, tmp_path: Path) -> Warehouse:
        """A warehouse of its own whose published database has an empty schema ``analytics``."""

    def execute(self, *statements: str) -> None:
        """Run DDL or DML statements on the published database, one after the other, and commit them."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read the published database."""

    def staged_rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement that the warehouse gave for staged rows, as the person would who reads it in a report."""

    def tables(self) -> set[str]:
        """The ``schema.name`` of every table a consumer can see."""


TYPES = {
    "integer": "BIGINT",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "text": "VARCHAR",
    "money": "DECIMAL(12,2)",
    "real": "DOUBLE",
    "flag": "BOOLEAN",
}


class Memory:
    name = "memory"
    types = TYPES
    lacks = frozenset({"versions", "zoned", "nan"})

    def create(self, tmp_path: Path) -> Warehouse:
        self.warehouse = MemoryWarehouse()
        return self.warehouse

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.warehouse.query(sql)

    def staged_rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.warehouse.query(sql)

    def tables(self) -> set[str]:
        return set(self.warehouse._tables)

    def execute(self, *statements: str) -> None:
        for sql in statements:
            self._execute(sql)

    def _execute(self, sql: str) -> None:
        """One of the few statements the suite uses, turned into a SELECT whose rows become the table's."""
        tree = sqlglot.parse_one(sql, dialect="duckdb")
        match tree:
            case exp.Create(kind="SCHEMA"):
                pass  # a name of a table is all there is
            case exp.Create(kind="TABLE"):
                columns = {
                    column.name: column.kind.sql("duckdb") + (" NOT NULL" if column.constraints else "")
                    for column in tree.this.expressions
                    if isinstance(column, exp.ColumnDef)
                }
                constraints = [
                    _constraint(entry) for entry in tree.this.expressions if isinstance(entry, exp.Constraint)
                ]
                self.warehouse.create_table(_name(tree.this.this), columns, constraints=constraints)
            case exp.Create(kind="VIEW"):
                self.warehouse.create_view(_name(tree.this), tree.expression.sql("duckdb"))
            case exp.Drop(kind="TABLE"):
                del self.warehouse._tables[_name(tree.find(exp.Table))]
            case exp.Insert(expression=exp.Values() as values):
                names = self._names(tree.this)
                picks = (
                    ", ".join(
                        f"{value.sql('duckdb')} AS {_quote(name)}" for name, value in zip(names, row, strict=True)
                    )
                    for row in (entry.expressions for entry in values.expressions)
                )
                self._add(tree.this, " UNION ALL ".join(f"SELECT {pick}" for pick in picks))
            case exp.Insert():
                self._add(tree.this, tree.expression.sql("duckdb"))
            case exp.Delete():
                condition = tree.args["where"].this.sql("duckdb") if tree.args.get("where") else "TRUE"
                source = tree.this.sql("duckdb")
                kept = self.rows(f"SELECT * FROM {source} WHERE CASE WHEN {condition} THEN 0 ELSE 1 END = 1")
                self.warehouse.set_rows(_name(tree.this), kept)
            case exp.Update():
                condition = tree.args["where"].this.sql("duckdb") if tree.args.get("where") else "TRUE"
                new = {entry.this.name: entry.expression.sql("duckdb") for entry in tree.expressions}
                picks = ", ".join(
                    f"CASE WHEN {condition} THEN {new[name]} ELSE {_quote(name)} END AS {_quote(name)}"
                    if name in new
                    else _quote(name)
                    for name in self._names(tree.this)
                )
                self.warehouse.set_rows(_name(tree.this), self.rows(f"SELECT {picks} FROM {tree.this.sql('duckdb')}"))
            case exp.Alter(actions=[exp.ColumnDef() as column]):
                table = self.warehouse._table(_name(tree.this))
                columns = {column.name: column.type for column in table.columns}
                columns[column.name] = column.kind.sql("duckdb")
                self.warehouse.create_table(_name(tree.this), columns, [(*row, None) for row in table.rows])
            case _:
                raise NotImplementedError(sql)

    def _names(self, table: exp.Expression) -> list[str]:
        return [column.name for column in self.warehouse._table(_name(table)).columns]

    def _add(self, table: exp.Expression, select: str) -> None:
        names = self._names(table)
        self.warehouse.insert(_name(table), [dict(zip(names, row, strict=True)) for row in self.rows(select)])


def _constraint(tree: exp.Expression) -> Constraint:
    """A ``CONSTRAINT name CHECK (…)`` or ``CONSTRAINT name UNIQUE (…)`` of a table."""
    (body,) = tree.expressions
    text = body.sql("duckdb")
    if isinstance(body, exp.CheckColumnConstraint):
        columns = tuple(column.name for column in body.find_all(exp.Column))
        return Constraint(ConstraintKind.CHECK, tree.name, text, columns, body.this.sql("duckdb"))
    columns = tuple(identifier.name for identifier in body.find_all(exp.Identifier))
    where = " AND ".join(f"{_quote(name)} IS NOT NULL" for name in columns)
    return Constraint(ConstraintKind.UNIQUE, tree.name, text, columns, where=where)


def _name(table: exp.Expression) -> str:
    return ".".join(part.name for part in table.parts)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DuckDB:
    name = "duckdb"
    types = TYPES
    lacks: frozenset[str] = frozenset({"versions"})

    def create(self, tmp_path: Path) -> Warehouse:
        from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse

        self.path = tmp_path / "warehouse.duckdb"
        self.execute("CREATE SCHEMA analytics")
        return DuckDBWarehouse(self.path, staging_dir=tmp_path / "staging")

    def execute(self, *statements: str) -> None:
        duckdb_outside.run(self.path, *statements)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return duckdb_outside.run(self.path, sql)

    def staged_rows(self, sql: str) -> list[tuple[Any, ...]]:
        import duckdb

        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{self.path}' AS shown (READ_ONLY); USE shown")
            for attach in re.findall(
                r"^-- in the staging folder: ATTACH '(.*)' AS (\w+) \(READ_ONLY\)$", sql, re.MULTILINE
            ):
                connection.execute(f"ATTACH '{self.path.parent / 'staging' / attach[0]}' AS {attach[1]} (READ_ONLY)")
            return connection.execute(sql).fetchall()

    def tables(self) -> set[str]:
        return {
            f"{schema}.{name}"
            for schema, name in self.rows("SELECT table_schema, table_name FROM information_schema.tables")
        }


class Delta:
    """A folder of Delta tables. A statement runs in DuckDB on a copy of every table, whose rows are written back then."""

    name = "delta"
    types = TYPES
    lacks = frozenset({"view", "constraint"})

    def create(self, tmp_path: Path) -> Warehouse:
        from airflow_backfill_provider.warehouses.delta import DeltaWarehouse

        self.root = tmp_path / "warehouse"
        self.root.mkdir()
        return DeltaWarehouse(str(self.root))

    def execute(self, *statements: str) -> None:
        for sql in statements:
            self._execute(sqlglot.parse_one(sql, dialect="duckdb"), sql)

    def _execute(self, tree: exp.Expression, sql: str) -> None:
        import pyarrow
        from deltalake import DeltaTable, write_deltalake

        name = tree if isinstance(tree, exp.Table) else tree.find(exp.Table)
        path = self.root.joinpath(*(part.name for part in name.parts))
        match tree:
            case exp.Create(kind="SCHEMA"):
                return  # a folder comes with its first table
            case exp.Drop():
                shutil.rmtree(path)
                return
        with self._connection(copied=True) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quote(name.db)}; {sql}")
            rows = connection.sql(f"SELECT * FROM {name.sql('duckdb')}")
            if not isinstance(tree, exp.Create):
                widened = "overwrite" if isinstance(tree, exp.Alter) else None
                write_deltalake(path, rows.to_arrow_reader(), mode="overwrite", schema_mode=widened)
                return
            required = {c.name for c in tree.find_all(exp.ColumnDef) if c.find(exp.NotNullColumnConstraint)}
            fields = [field.with_nullable(field.name not in required) for field in rows.to_arrow_table().schema]
            table = DeltaTable.create(path, pyarrow.schema(fields))
            for constraint in tree.find_all(exp.Constraint):
                for check in constraint.find_all(exp.CheckColumnConstraint):
                    table.alter.add_constraint({constraint.name: check.this.sql("spark")})

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection(copied=False) as connection:
            for number, uri in enumerate(re.findall(r"delta_scan\('((?:[^']|'')*)'\)", sql)):
                connection.register(f"scan{number}", self._dataset(uri.replace("''", "'")))
                sql = sql.replace(f"delta_scan('{uri}')", f"scan{number}")
            return connection.execute(sql).fetchall()

    staged_rows = rows

    def tables(self) -> set[str]:
        return {f"{path.parent.name}.{path.name}" for path in self._paths()}

    def _paths(self) -> list[Path]:
        return [path.parent for path in self.root.glob("[!_]*/*/_delta_log")]

    def _dataset(self, path: Path | str) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(path).to_pyarrow_dataset()

    @contextmanager
    def _connection(self, *, copied: bool) -> Iterator[Any]:
        with duckdb_outside.empty() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for number, path in enumerate(self._paths()):
                connection.register(f"dataset{number}", self._dataset(path))
                kind = "TABLE" if copied else "VIEW"
                name = f"{_quote(path.parent.name)}.{_quote(path.name)}"
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quote(path.parent.name)}")
                connection.execute(f"CREATE {kind} {name} AS SELECT * FROM dataset{number}")
            yield connection


class Postgres:
    """A database of its own for each test, on one server; ``consumer`` is a role that reads ``analytics``."""

    name = "postgres"
    types = TYPES | {"real": "DOUBLE PRECISION"}
    lacks: frozenset[str] = frozenset({"versions"})
    _numbers = count()

    def create(self, tmp_path: Path) -> Warehouse:
        from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse

        self.database = f"contract_{next(self._numbers)}"
        self._database("postgres", f"CREATE DATABASE {self.database}")
        self.execute(
            "DO $$ BEGIN CREATE ROLE consumer; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
            "CREATE SCHEMA analytics",
            "GRANT USAGE ON SCHEMA analytics TO consumer",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA analytics GRANT SELECT ON TABLES TO consumer",
        )
        return PostgresWarehouse(self.connect)

    def connect(self, **settings: Any) -> Any:
        import psycopg

        url = postgres_server.start()
        address = {
            "host": url.host,
            "port": url.port,
            "user": url.username,
            "password": url.password,
            "dbname": self.database,
        }
        return psycopg.connect(**address | settings)

    def execute(self, *statements: str) -> None:
        self._database(self.database, *statements)

    def _database(self, name: str, *statements: str) -> None:
        with self.connect(dbname=name, autocommit=True) as connection:
            for sql in statements:
                connection.execute(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return list(connection.execute(sql).fetchall())

    def staged_rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.rows(sql)

    def tables(self) -> set[str]:
        may_read = (
            "has_schema_privilege('consumer', n.oid, 'USAGE') AND has_table_privilege('consumer', c.oid, 'SELECT')"
        )
        return {
            f"{schema}.{name}"
            for schema, name in self.rows(
                "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
                f"WHERE c.relkind IN ('r', 'p', 'v', 'm') AND n.nspname !~ '^(pg_|information_schema)' AND {may_read}"
            )
        }


class Databricks:
    """One local Spark behind the real client, whose schemas are emptied for each test.

    The suite writes its SQL as DuckDB does; what it hands to the warehouse as a user's is spelled anew on its way.
    """

    name = "databricks"
    types = TYPES
    lacks = frozenset({"view", "constraint", "odd names"})

    def create(self, tmp_path: Path) -> Warehouse:
        from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

        self._tables = databricks_local.tables()
        # With the API, as the connection of any SQL warehouse has it; the tests of the adapter alone do without.
        opened = DatabricksWarehouse(databricks_local.bounded, statement_api=databricks_local.statement_api())
        return cast(Warehouse, Respelled(opened))

    def execute(self, *statements: str) -> None:
        if statements[0].startswith("CREATE TABLE analytics.orders ("):
            self._tables.lay(statements, [one for sql in statements for one in _ddl(sql)])
        else:
            if any("TABLE analytics.orders" in sql for sql in statements):
                self._tables.forget()
            self._run(*(one for sql in _fewer(statements) for one in _ddl(sql)))

    def _run(self, *statements: str) -> None:
        with databricks_local.shared() as connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.staged_rows(respelled(sql))

    def staged_rows(self, sql: str) -> list[tuple[Any, ...]]:
        with databricks_local.shared() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            found = cursor.fetchall_arrow()
            return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def tables(self) -> set[str]:
        schemas = [row[0] for row in self.staged_rows("SHOW SCHEMAS") if row[0] != "backfill_staging"]
        return {f"{schema}.{row[1]}" for schema in schemas for row in self.staged_rows(f"SHOW TABLES IN `{schema}`")}


def _fewer(statements: Sequence[str]) -> Sequence[str]:
    """The same in one commit, where a table is emptied and filled anew."""
    match statements:
        case [str(empty), str(fill)] if empty.startswith("DELETE FROM ") and " WHERE " not in empty:
            into = f"INSERT INTO {empty.removeprefix('DELETE FROM ')} "
            if fill.startswith(into):
                return [fill.replace(into, into.replace("INTO", "OVERWRITE"), 1)]
    return statements


def _ddl(sql: str) -> list[str]:
    """DuckDB's statement as Databricks': a CHECK is added afterwards, and a key, which nothing enforces there, is left out."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    if isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Union):
        # Each SELECT of it would be a task and a file of its own.
        rows = tree.expression.sql("databricks")
        into = "OVERWRITE" if tree.args.get("overwrite") else "INTO"
        return [f"INSERT {into} {tree.this.sql('databricks')} SELECT /*+ COALESCE(1) */ * FROM ({rows}) AS r"]
    if not isinstance(tree, exp.Create):
        return [tree.sql("databricks")]
    checks = []
    for constraint in list(tree.find_all(exp.Constraint)):
        checks += [
            f"ALTER TABLE {tree.this.this.sql('databricks')} ADD CONSTRAINT {constraint.name} CHECK ({check.this.sql('databricks')})"
            for check in constraint.find_all(exp.CheckColumnConstraint)
        ]
        constraint.pop()
    for key in list(tree.find_all(exp.PrimaryKey)):
        key.pop()
    # Delta's files name columns; only with names of their own inside them may a column be called anything.
    odd = any(set(column.name) & set(" ,;{}()=") for column in tree.find_all(exp.ColumnDef))
    mapped = " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')" if odd else ""
    return [f"{tree.sql('databricks')}{mapped}", *checks]


class Respelled:
    """A warehouse that is handed SQL in DuckDB's spelling, and hands it on in Databricks'."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._warehouse, name)

    def select_columns(self, select: str) -> Any:
        return self._warehouse.select_columns(respelled(select))

    def source_versions(self, selects: Any, tables: Any) -> Any:
        return self._warehouse.source_versions([respelled(select) for select in selects], tables)

    def count_rows(self, target: Target, staged: Staged, query: str, *, where: str = "") -> int:
        return self._warehouse.count_rows(target, staged, respelled(query), where=respelled(where))

    def fingerprint(self, target: Target, rows: Rows, partitions: Any) -> Any:
        return self._warehouse.fingerprint(target, _respelled_side(rows), partitions)

    def measure(self, target: Target, rows: Rows, partitions: Any, metrics: Any) -> Any:
        return _as_asked(metrics, lambda own: self._warehouse.measure(target, _respelled_side(rows), partitions, own))

    def measure_together(self, target: Target, rows: Rows, partitions: Any, metrics: Any) -> Any:
        found = self._warehouse.measure_together(
            target, _respelled_side(rows), partitions, [_respelled_metric(metric) for metric in metrics]
        )
        return {metric: found[_respelled_metric(metric)] for metric in metrics}

    def metric_sql(self, target: Target, rows: Rows, partitions: Any, metric: Metric) -> str:
        return self._warehouse.metric_sql(target, _respelled_side(rows), partitions, _respelled_metric(metric))

    @contextmanager
    def open_stage(self, target: Target, backfill_id: str, label: str, tell: Tell = untold) -> Iterator[Any]:
        with self._warehouse.open_stage(target, backfill_id, label, tell) as writer:
            yield RespelledStage(writer)


class RespelledStage:
    def __init__(self, writer: StageWriter) -> None:
        self._writer = writer
        self.location = writer.location

    def write(self, *recomputes: Recompute) -> Any:
        return self._writer.write(*(replace(one, select=respelled(one.select)) for one in recomputes))


def _as_asked(metrics: Any, measure: Any) -> Any:
    own = {metric: _respelled_metric(metric) for metric in metrics}
    found = measure(list(own.values()))
    return {key: {metric: values[spelled] for metric, spelled in own.items()} for key, values in found.items()}


def _respelled_metric(metric: Metric) -> Metric:
    return replace(metric, where=respelled(metric.where), expression=respelled(metric.expression))


def _respelled_side(rows: Rows) -> Rows:
    return replace(rows, where=respelled(rows.where)) if isinstance(rows, Source) else rows


def respelled(sql: str) -> str:
    """DuckDB's spelling as Databricks'; what cannot be understood stays as it is, so that the product can refuse it."""
    try:
        return "; ".join(sqlglot.transpile(sql, read="duckdb", write="databricks")) if sql else ""
    except SqlglotError:
        return sql


ENGINES: list[type[Engine]] = [Memory]
if importlib.util.find_spec("duckdb") and importlib.util.find_spec("airflow_backfill_provider.warehouses.duckdb"):
    ENGINES.append(DuckDB)
if importlib.util.find_spec("deltalake"):
    ENGINES.append(Delta)
if postgres_server.is_installed():
    ENGINES.append(Postgres)
if not databricks_local.missing():
    ENGINES.append(Databricks)
