"""Runs one SELECT, written for DuckDB, over tables held in Python.

sqlglot binds it (names, stars, types) and Python's own SQLite runs it. sqlglot's own executor was not good enough:
it has no TIMESTAMP or DECIMAL literal, no window function and no VALUES, and an EXCEPT between two readings of one
table comes back empty. Casts and date literals run as Python, because SQLite's turn text that is no number into 0.
What SQLite cannot run is an error, not another answer. Decimals are computed in doubles and refused beyond 15 digits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache, partial

import sqlglot
from sqlglot import MappingSchema, exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.canonicalize import canonicalize
from sqlglot.optimizer.qualify import qualify

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Constraint
from airflow_backfill_provider.warehouses.memory.values import Value, cast

DIALECT = "duckdb"
_BINDING = f"{DIALECT}, normalization_strategy=case_sensitive"
_CAST = "cast_value"

Row = tuple[Value, ...]
Encoded = int | float | str | None


@dataclass(frozen=True)
class Table:
    """A table as it stands at one moment; a write makes a new one."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class Select:
    """One SELECT bound to the tables it reads."""

    columns: tuple[Column, ...]
    _sql: str
    _tables: Mapping[str, Table]

    @classmethod
    def bind(cls, sql: str, tables: Mapping[str, Table]) -> Select:
        """Resolve every name; runs nothing.

        :raises WarehouseError: not exactly one SELECT, or a table, column or function that is not known.
        """
        shapes = tuple((name, table.columns) for name, table in tables.items())
        try:
            columns, text, sources = _bind(sql, shapes)
        except (SqlglotError, ValueError) as error:
            raise WarehouseError(f"The query cannot be bound: {error}") from error
        return cls(columns, text, {plain: tables[name] for plain, name in sources.items()})

    def run(self) -> tuple[Row, ...]:
        """Every row; values have the type of their column where binding could tell it.

        :raises WarehouseError: the statement failed.
        """
        with closing(sqlite3.connect(":memory:")) as connection:
            refused: list[str] = []  # SQLite keeps no word of what a function raised
            connection.create_function(_CAST, 3, partial(_cast_encoded, refused=refused), deterministic=True)
            connection.execute("PRAGMA case_sensitive_like = ON")
            try:
                for name, table in self._tables.items():
                    _load(connection, name, table)
                rows = connection.execute(self._sql).fetchall()
            except (sqlite3.Error, OverflowError) as error:
                reason = refused[-1] if refused else str(error)
                raise WarehouseError(f"The query failed: {reason}. It ran as: {self._sql}") from error
        try:
            return tuple(
                tuple(_decode(value, column.type) for value, column in zip(row, self.columns, strict=True))
                for row in rows
            )
        except ValueError as error:
            raise WarehouseError(f"The query failed: {error}.") from error


@lru_cache(maxsize=256)
def _bind(
    sql: str, shapes: tuple[tuple[str, tuple[Column, ...]], ...]
) -> tuple[tuple[Column, ...], str, dict[str, str]]:
    """The columns, the text for SQLite, and the name of the table behind each plain name in it."""
    query = _one_query(sql)
    _type_literals(query)
    sources = _rename_tables(query, [name for name, _ in shapes])
    schema = MappingSchema(dialect=_BINDING, normalize=False)
    for plain, name in sources.items():
        columns = dict(shapes)[name]
        schema.add_table(plain, {column.name: column.type for column in columns}, dialect=_BINDING)
    bound = annotate_types(qualify(query, schema=schema, dialect=_BINDING), schema=schema, dialect=_BINDING)
    selected = tuple(Column(item.alias_or_name, _type_of(item)) for item in query.selects)
    tree = canonicalize(bound, dialect=_BINDING).transform(_cast_in_python)
    return selected, tree.sql("sqlite", unsupported_level=ErrorLevel.RAISE), sources


def _one_query(sql: str) -> exp.Query:
    statements = [tree for tree in sqlglot.parse(sql, dialect=_BINDING) if tree is not None]
    if len(statements) == 1 and isinstance(statements[0], exp.Query):
        return statements[0]
    raise WarehouseError(f"The query is not one SELECT: {sql}")


def _rename_tables(tree: exp.Query, tables: Sequence[str]) -> dict[str, str]:
    """Give every table that is read a plain name, so that no name of a user's reaches SQLite as a table's."""
    named_inside = {cte.alias for cte in tree.find_all(exp.CTE)}
    found: dict[str, str] = {}
    for node in list(tree.find_all(exp.Table)):
        parts = [part.name for part in node.parts]
        if not isinstance(node.this, exp.Identifier) or (len(parts) == 1 and parts[0] in named_inside):
            continue
        name = ".".join(parts)
        if name not in tables:
            raise WarehouseError(f"There is no table {name!r}; there are {', '.join(sorted(tables)) or 'none'}.")
        plain = f"t{tables.index(name)}"
        found[plain] = name
        renamed = node.copy()
        renamed.set("this", exp.to_identifier(plain))
        renamed.set("db", None)
        renamed.set("catalog", None)
        if not node.alias:
            renamed.set("alias", exp.TableAlias(this=exp.to_identifier(parts[-1], quoted=True)))
        node.replace(renamed)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    return found


def _type_literals(query: exp.Query) -> None:
    """``1.25`` is a DECIMAL(3, 2), as in DuckDB; sqlglot calls it a double."""
    for literal in list(query.find_all(exp.Literal)):
        whole, point, fraction = literal.name.partition(".")
        if point and not literal.is_string and fraction.isdigit():
            type_ = f"DECIMAL({len(whole) + len(fraction)}, {len(fraction)})"
            literal.replace(exp.cast(literal.copy(), type_, dialect=DIALECT))


def _cast_in_python(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Cast | exp.TryCast):
        if node.args.get("format"):
            raise ValueError(f"a cast with a format is not supported: {node.sql(DIALECT)}")
        strict = "" if isinstance(node, exp.TryCast) else "strict"
        known = _type_of(node.this)
        arguments = [
            node.this.copy(),
            exp.Literal.string(f"{known}|{node.to.sql(DIALECT)}"),
            exp.Literal.string(strict),
        ]
        return exp.Anonymous(this=_CAST, expressions=arguments)
    return node


def _type_of(node: exp.Expr) -> str:
    return node.type.sql(DIALECT) if isinstance(node.type, exp.DataType) else "UNKNOWN"


def _load(connection: sqlite3.Connection, name: str, table: Table) -> None:
    quoted = ", ".join('"' + column.name.replace('"', '""') + '"' for column in table.columns)
    connection.execute(f'CREATE TABLE "{name}" ({quoted})')
    marks = ", ".join("?" for _ in table.columns)
    rows: Sequence[Sequence[Encoded]] = [[_encode(value) for value in row] for row in table.rows]
    connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)


def _cast_encoded(value: Encoded, types: str, strict: str, refused: list[str]) -> Encoded:
    known, wanted = types.split("|")
    try:
        return _encode(cast(_decode(value, known), wanted))
    except ValueError as error:
        if strict:
            refused.append(str(error))
            raise
        return None


def _encode(value: Value) -> Encoded:
    """Dates and timestamps become text of one width, so that the two compare as SQL compares them."""
    match value:
        case datetime():
            return value.isoformat(" ", "microseconds")
        case date():
            return datetime.combine(value, time.min).isoformat(" ", "microseconds")
        case Decimal():
            number = int(value) if value == value.to_integral_value() else float(value)
            if Decimal(str(number)) != value or len(value.as_tuple().digits) > 15:
                raise OverflowError(f"{value} has more digits than the in-memory warehouse computes with")
            return number
        case _:
            return value


def _decode(value: Encoded, type_: str) -> Value:
    """The value as its type's Python value; as it is where the type is not known."""
    if value is None or type_ in ("UNKNOWN", "NULL"):
        return value
    family = type_.split("(")[0]
    if family in ("DATE", "TIMESTAMP", "BOOLEAN"):
        return cast(value, family)
    if family == "DECIMAL" and not isinstance(value, str):
        return cast(value, "DECIMAL(38, 15)").normalize()  # type: ignore[union-attr]
    return value
