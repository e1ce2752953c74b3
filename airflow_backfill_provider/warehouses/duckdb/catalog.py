"""What the warehouse's catalog says of a table."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from airflow_backfill_provider.errors import SpecError, TransformRefused
from airflow_backfill_provider.warehouses.base import Column, Constraint, ConstraintKind, Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Place, Table, no_table
from airflow_backfill_provider.warehouses.sql import quote, quote_all, text_literal


def locate(run: Run, name: str) -> Place:
    """The table or view of that name in the default database: ``schema.name``, in any case.

    Without a schema it is ``main``; with three parts the first is the database. A name with a dot in it is found too.

    :raises SpecError: there is none; the message names what exists.
    """
    there = [
        Place(*found)
        for found in run(
            "SELECT database_name, schema_name, table_name, FALSE FROM duckdb_tables() "
            "WHERE database_name = current_database() AND NOT internal UNION ALL "
            "SELECT database_name, schema_name, view_name, TRUE FROM duckdb_views() "
            "WHERE database_name = current_database() AND NOT internal ORDER BY ALL"
        )
    ]
    wanted = name.lower()
    for place in there:
        spellings = [str(place), f"{place.database}.{place}", *([place.name] if place.schema == "main" else [])]
        if wanted in (spelling.lower() for spelling in spellings):
            return place
    raise no_table(name, there)


def find_table(run: Run, name: str) -> Table:
    """The table or view of that name with its columns; see :func:`locate`."""
    place = locate(run, name)
    return Table(place, _columns(run, place))


def describe(run: Run, name: str, partition_by: str, key: Sequence[str], reading: Reading) -> Target:
    """The published table as a target, its name and its columns' in the catalog's spelling.

    However a spec spells the table, two backfills of it then claim the same name.

    :raises SpecError: as :meth:`Warehouse.describe`.
    """
    table = find_table(run, name)
    if table.place.is_view:
        raise SpecError(
            f"{name} is a view: it has no rows of its own to replace. Name the table that it reads, or the one that "
            "a pipeline writes."
        )
    partition_column = table.stored(partition_by)
    keys = tuple(table.stored(column) for column in key)
    place = table.place
    return Target(
        name if place.has_odd_name else str(place),
        partition_column.name,
        table.clock(DIALECT, partition_by, reading),
        tuple(column.name for column in keys),
        table.columns,
        _constraints(run, place),
    )


def select_columns(session: Session, select: str) -> tuple[Column, ...]:
    """Name and type of every column a SELECT would return; see :meth:`Warehouse.select_columns`."""
    try:
        if (text := session.one_select(select)) is None:
            raise TransformRefused("The transform is not one SELECT statement and nothing else.")
        described = session.run(f"DESCRIBE {text}")
    except duckdb.InterruptException:
        raise
    except duckdb.Error as exc:
        raise TransformRefused(f"DuckDB cannot bind the transform: {exc}") from exc
    return tuple(
        Column(name, data_type.strip('"'), nullable=nullable == "YES") for name, data_type, nullable, *_ in described
    )


def comment(run: Run, place: Place) -> str | None:
    """The table's comment."""
    ((text,),) = run(f"SELECT comment FROM duckdb_tables() WHERE {_is(place)}")
    return None if text is None else str(text)


def _columns(run: Run, place: Place) -> tuple[Column, ...]:
    return tuple(
        Column(name, data_type, nullable=is_nullable, generated=is_generated)
        for name, data_type, is_nullable, is_generated in run(
            "SELECT column_name, data_type, is_nullable, coalesce(is_generated, FALSE) FROM duckdb_columns() "
            f"WHERE {_is(place)} ORDER BY column_index"
        )
    )


_KINDS = {
    "CHECK": ConstraintKind.CHECK,
    "NOT NULL": ConstraintKind.NOT_NULL,
    "UNIQUE": ConstraintKind.UNIQUE,
    "PRIMARY KEY": ConstraintKind.UNIQUE,
}


def _constraints(run: Run, place: Place) -> tuple[Constraint, ...]:
    kinds = ", ".join(map(text_literal, _KINDS))
    found = run(
        "SELECT constraint_type, constraint_name, constraint_text, constraint_column_names, coalesce(expression, '') "
        f"FROM duckdb_constraints() WHERE {_is(place)} AND constraint_type IN ({kinds}) ORDER BY constraint_index"
    )
    return tuple(_constraint(_KINDS[kind], *rest) for kind, *rest in found)


def _constraint(kind: ConstraintKind, name: str, text: str, columns: list[str], expression: str) -> Constraint:
    if kind is ConstraintKind.NOT_NULL:
        text = f"{text}({quote_all(columns)})"
    where = " AND ".join(f"{quote(column)} IS NOT NULL" for column in columns) if kind is ConstraintKind.UNIQUE else ""
    return Constraint(kind, name, text, tuple(columns), expression, where)


def _is(place: Place) -> str:
    return (
        f"database_name = {text_literal(place.database)} AND schema_name = {text_literal(place.schema)} "
        f"AND table_name = {text_literal(place.name)}"
    )
