"""The table behind a view, and how another one is made like it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import PublishRefused, SpecError
from airflow_backfill_provider.warehouses.base import Version
from airflow_backfill_provider.warehouses.duckdb.catalog import is_of, places
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import literal, quote, text_literal
from airflow_backfill_provider.warehouses.views import table_shown, tables_read, version_name

_NAME = r'(?:"(?:[^"]|"")*"|\w+)'
_TABLE_HEAD = re.compile(rf"\ACREATE TABLE (?:{_NAME}\.)*{_NAME}(?=\()")
_INDEX_HEAD = re.compile(rf"\A(CREATE (?:UNIQUE )?INDEX ){_NAME} ON (?:{_NAME}\.)*{_NAME}(?=[ (])")


def shown_by(run: Run, view: Place) -> Place:
    """The table that the view shows all of.

    :raises SpecError: it shows anything else.
    """
    ((sql,),) = run(
        f"SELECT sql FROM duckdb_views() WHERE database_name = {text_literal(view.database)} "
        f"AND schema_name = {text_literal(view.schema)} AND view_name = {text_literal(view.name)}"
    )
    parts = table_shown(str(view), sql, DIALECT.name)
    found = _meant(view, parts, places(run))
    if found is None or found.is_view:
        raise SpecError(
            f"{view} is a view of {'.'.join(parts)}, which is no table of this database. A view that is swapped shows a table "
            "beside it, of which new versions can be made."
        )
    return found


def _meant(view: Place, parts: tuple[str, ...], there: Sequence[Place]) -> Place | None:
    """The table or view that a name in the statement of a view means; without a schema, the one beside the view comes first."""
    name = parts[-1]
    schemas = [parts[-2]] if len(parts) > 1 else [view.schema, "main"]
    database = parts[-3] if len(parts) > 2 else view.database
    tables = {(place.database.lower(), place.schema.lower(), place.name.lower()): place for place in there}
    named = (tables.get((database.lower(), schema.lower(), name.lower())) for schema in schemas)
    return next((place for place in named if place is not None), None)


def describe_version(run: Run, view: Place, table: Place) -> Version:
    """What a new version of the table costs, and what it will not have.

    :raises SpecError: the table's definition cannot be used for another table.
    """
    _refuse_entangled(run, table)
    ((rows,),) = run(f"SELECT count(*) FROM {table.sql}")
    lost = [
        f"The trigger {name} of {table} is not made anew."
        for (name,) in run(f"SELECT trigger_name FROM duckdb_triggers() WHERE {is_of(table)} ORDER BY ALL")
    ]
    lost += [
        f"The view {reader} reads {table} by name and goes on showing the old version."
        for reader in readers(run, table)
        if reader != view
    ]
    return Version(str(table), rows, tuple(lost))


def _refuse_entangled(run: Run, table: Place) -> None:
    """Refuse a table whose definition names itself, or that other tables refer to."""
    own = f"schema_name = {text_literal(table.schema)} AND database_name = {text_literal(table.database)}"
    referring = run(
        f"SELECT table_name, constraint_text FROM duckdb_constraints() WHERE {own} "
        f"AND constraint_type = 'FOREIGN KEY' AND referenced_table = {text_literal(table.name)} ORDER BY ALL"
    )
    naming = [
        (table.name, text)
        for text, expression in run(
            f"SELECT constraint_text, expression FROM duckdb_constraints() WHERE {is_of(table)} "
            "AND constraint_type = 'CHECK' ORDER BY ALL"
        )
        if table.name.casefold() in _qualifiers(expression)
    ]
    if found := [f"{text} of {name}" for name, text in (*referring, *naming)]:
        raise SpecError(
            f"No new version of {table} can be made, because its name stands in {', '.join(found)}. Define that without the "
            "name of the table, or use another publish.mechanism on the table itself."
        )


def _qualifiers(expression: str) -> frozenset[str]:
    """The table names, in lower case, that columns of the expression are written with."""
    try:
        tree = sqlglot.parse_one(expression, dialect=DIALECT.name)
    except SqlglotError:
        return frozenset()
    return frozenset(column.table.casefold() for column in tree.find_all(exp.Column))


def readers(run: Run, table: Place) -> list[Place]:
    """The views whose statement names the table."""
    return [view for view, read in _views(run, table.database).items() if table in read]


def readers_through(run: Run, table: Place) -> frozenset[Place]:
    """The views that read the table, also through other views."""
    views = _views(run, table.database)
    found: frozenset[Place] = frozenset()
    new = frozenset({table})
    while new:
        new = frozenset(view for view, read in views.items() if read & new) - found
        found |= new
    return found


def _views(run: Run, database: str) -> dict[Place, frozenset[Place]]:
    """Every view, and the tables and views that its statement names."""
    there = places(run)
    return {
        (view := Place(database, schema, name, is_view=True)): frozenset(
            place for parts in tables_read(sql, DIALECT.name) if (place := _meant(view, parts, there)) is not None
        )
        for schema, name, sql in run(
            "SELECT schema_name, view_name, sql FROM duckdb_views() "
            f"WHERE database_name = {text_literal(database)} AND NOT internal ORDER BY ALL"
        )
    }


def create_like(run: Run, old: Place, view: Place, backfill_id: str) -> Place:
    """Make an empty table with the columns, defaults and constraints of the old one.

    :raises PublishRefused: there is a table of its name already.
    """
    new = Place(old.database, old.schema, version_name(view.name, backfill_id), is_view=False)
    if any((place.schema, place.name) == (new.schema, new.name) for place in places(run)):
        raise PublishRefused(
            f"The new version of {view} would be {new}, which exists already; nothing was written. Find out what it is, "
            "and drop or rename it."
        )
    ((sql,),) = run(f"SELECT sql FROM duckdb_tables() WHERE {is_of(old)}")
    head = _TABLE_HEAD.match(sql)
    if head is None:
        raise PublishRefused(f"The definition of {old} is not understood, so nothing was written: {sql}")
    run(f"CREATE TABLE {new.sql}{sql[head.end() :]}")
    return new


def dress_like(run: Run, old: Place, new: Place, backfill_id: str) -> None:
    """Give the filled table the comments and indexes of the old one. Names of indexes are unique in a schema."""
    ((comment,),) = run(f"SELECT comment FROM duckdb_tables() WHERE {is_of(old)}")
    if comment is not None:
        run(f"COMMENT ON TABLE {new.sql} IS {literal(comment)}")
    _copy_column_comments(run, old, new)
    suffix = "__" + old.name.rpartition("__")[2]
    for name, sql in run(
        f"SELECT index_name, sql FROM duckdb_indexes() WHERE {is_of(old)} AND sql IS NOT NULL ORDER BY ALL"
    ):
        index = quote(version_name(name.removesuffix(suffix), backfill_id))
        head = _INDEX_HEAD.match(sql)
        if head is None:
            raise PublishRefused(f"The definition of the index {name} is not understood, so nothing was written: {sql}")
        run(f"{head[1]}{index} ON {new.sql}{sql[head.end() :]}")


def point(run: Run, view: Place, table: Place) -> None:
    """Make the view show all of the table; its comments stay."""
    ((comment,),) = run(
        f"SELECT comment FROM duckdb_views() WHERE database_name = {text_literal(view.database)} "
        f"AND schema_name = {text_literal(view.schema)} AND view_name = {text_literal(view.name)}"
    )
    comments = _column_comments(run, view)
    run(f"CREATE OR REPLACE VIEW {view.sql} AS SELECT * FROM {table.short_sql}")
    if comment is not None:
        run(f"COMMENT ON VIEW {view.sql} IS {literal(comment)}")
    _comment_columns(run, view, comments)


def _copy_column_comments(run: Run, old: Place, new: Place) -> None:
    _comment_columns(run, new, _column_comments(run, old))


def _column_comments(run: Run, place: Place) -> list[tuple[str, str]]:
    found = run(f"SELECT column_name, comment FROM duckdb_columns() WHERE {is_of(place)} AND comment IS NOT NULL")
    return [(name, comment) for name, comment in found]


def _comment_columns(run: Run, place: Place, comments: list[tuple[str, str]]) -> None:
    for name, comment in comments:
        run(f"COMMENT ON COLUMN {place.sql}.{quote(name)} IS {literal(comment)}")
