"""A copy of part of the published table in a file of its own, where a publish is rehearsed and holds nobody up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import duckdb

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.warehouses.base import Column, ConstraintKind, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import locate
from airflow_backfill_provider.warehouses.duckdb.errors import cause, without_values
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.sql import quote, quote_all, quote_path


def copy_definition(
    session: Session, database: str, target: Target, published: Piece, lacking: Collection[Column]
) -> Target:
    """Make the table, and the view of it, under their own names in that file, and fill it; the target that it is.

    Columns that the table computes are left out, and so are references to other tables; it lacks what the table lacks.

    :raises PublishRefused: the published rows break a constraint of the table.
    """
    stored = tuple(column for column in target.columns if not column.generated)
    names = {column.name for column in stored}
    shadow = replace(
        target, columns=stored, constraints=tuple(one for one in target.constraints if set(one.columns) <= names)
    )
    shown = locate(session.run, target.table)
    holder = shown if target.version is None else locate(session.run, target.version.table)
    table = f"{database}.{quote_path(holder.schema, holder.name)}"
    there = [column for column in stored if column not in lacking]
    columns = [f"{quote(one.name)} {one.type}{'' if one.nullable else ' NOT NULL'}" for one in there]
    kept = [one.text for one in shadow.constraints if one.kind is not ConstraintKind.NOT_NULL]
    listed = quote_all([column.name for column in there])
    with session.bulk_loading(), session.transaction():
        for schema in {holder.schema, shown.schema}:
            session.run(f"CREATE SCHEMA IF NOT EXISTS {database}.{quote(schema)}")
        session.run(f"CREATE TABLE {table} ({', '.join([*columns, *kept])})")
        if target.version is not None:
            view = f"{database}.{quote_path(shown.schema, shown.name)}"
            session.run(f"CREATE VIEW {view} AS SELECT * FROM {quote_path(holder.schema, holder.name)}")
        try:
            session.run(
                f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {published.table} AS r WHERE {published.predicate}"
            )
        except duckdb.ConstraintException as exc:
            raise PublishRefused(
                f"Published rows of {target.table} break a constraint of it, so no rollback could put them back: {without_values(str(exc))}"
            ) from cause(exc)
    return shadow
