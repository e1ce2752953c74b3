"""What the warehouse's catalog says of a table."""

from __future__ import annotations

import duckdb

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.warehouses.base import Column, Constraint, ConstraintKind
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Place, Table, no_table
from airflow_backfill_provider.warehouses.sql import quote, quote_all, text_literal


def places(run: Run) -> list[Place]:
    """Every table and view of the default database."""
    return [
        Place(*found)
        for found in run(
            "SELECT database_name, schema_name, table_name, FALSE FROM duckdb_tables() "
            "WHERE database_name = current_database() AND NOT internal UNION ALL "
            "SELECT database_name, schema_name, view_name, TRUE FROM duckdb_views() "
            "WHERE database_name = current_database() AND NOT internal ORDER BY ALL"
        )
    ]


def locate(run: Run, name: str) -> Place:
    """The table or view of that name in the default database: ``schema.name``, in any case.

    Without a schema it is ``main``; with three parts the first is the database. A name with a dot in it is found too.

    :raises SpecError: there is none; the message names what exists.
    """
    there = places(run)
    wanted = name.lower()
    for place in there:
        spellings = [str(place), f"{place.database}.{place}", *([place.name] if place.schema == "main" else [])]
        if wanted in (spelling.lower() for spelling in spellings):
            return place
    raise no_table(name, there)


def find_table(run: Run, name: str) -> Table:
    """The table or view of that name with its columns; see :func:`locate`."""
    place = locate(run, name)
    return Table(place, columns(run, place))


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
    ((text,),) = run(f"SELECT comment FROM duckdb_tables() WHERE {is_of(place)}")
    return None if text is None else str(text)


def columns(run: Run, place: Place) -> tuple[Column, ...]:
    """The columns of a table or view, in its order."""
    return tuple(
        Column(name, data_type, nullable=is_nullable, generated=is_generated)
        for name, data_type, is_nullable, is_generated in run(
            "SELECT column_name, data_type, is_nullable, coalesce(is_generated, FALSE) FROM duckdb_columns() "
            f"WHERE {is_of(place)} ORDER BY column_index"
        )
    )


_KINDS = {
    "CHECK": ConstraintKind.CHECK,
    "NOT NULL": ConstraintKind.NOT_NULL,
    "UNIQUE": ConstraintKind.UNIQUE,
    "PRIMARY KEY": ConstraintKind.UNIQUE,
}


def constraints(run: Run, place: Place) -> tuple[Constraint, ...]:
    """What the table demands of its rows."""
    kinds = ", ".join(map(text_literal, _KINDS))
    found = run(
        "SELECT constraint_type, constraint_name, constraint_text, constraint_column_names, coalesce(expression, '') "
        f"FROM duckdb_constraints() WHERE {is_of(place)} AND constraint_type IN ({kinds}) ORDER BY constraint_index"
    )
    return tuple(_constraint(_KINDS[kind], *rest) for kind, *rest in found)


def _constraint(kind: ConstraintKind, name: str, text: str, columns: list[str], expression: str) -> Constraint:
    if kind is ConstraintKind.NOT_NULL:
        text = f"{text}({quote_all(columns)})"
    where = " AND ".join(f"{quote(column)} IS NOT NULL" for column in columns) if kind is ConstraintKind.UNIQUE else ""
    return Constraint(kind, name, text, tuple(columns), expression, where)


def is_of(place: Place) -> str:
    """The condition on a catalog function's rows that they are of this table; columns of a view have its name there too."""
    return (
        f"database_name = {text_literal(place.database)} AND schema_name = {text_literal(place.schema)} "
        f"AND table_name = {text_literal(place.name)}"
    )
