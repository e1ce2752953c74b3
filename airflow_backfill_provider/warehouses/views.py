"""Views that show all of one table, and the versions of that table: what every engine with ``view_swap`` shares."""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import PublishRefused, SpecError
from airflow_backfill_provider.real_tables import real_tables
from airflow_backfill_provider.warehouses.base import Action, Receipt, Target

_LONGEST_NAME = 63
"""Bytes; PostgreSQL cuts longer names."""


def table_shown(view: str, sql: str, dialect: str) -> tuple[str, ...]:
    """The name, part by part, of the one table that a view shows all columns and rows of, as they are.

    ``sql`` is the view's CREATE VIEW statement, or its SELECT alone.

    :raises SpecError: it shows anything else; the message holds what it found.
    """
    query = _query(view, sql, dialect)
    match query:
        case exp.Select(expressions=[exp.Star(args=star)]) if not any(star.values()):
            others = {name for name, value in query.args.items() if value} - {"expressions", "from_"}
            source = query.args.get("from_")
            if source is not None and not others and _is_named(source.this):
                return _parts(source.this)
    raise SpecError(
        f"{view} is a view that does more than show one table: {query.sql(dialect)}. Such a view has no rows of its own to "
        f"replace. Name the table that a pipeline writes, or make the view CREATE VIEW {view} AS SELECT * FROM one table."
    )


def _is_named(source: exp.Expr) -> bool:
    """Whether it is a table by its name and nothing more: no function, no sample, no other names for its columns."""
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        return False
    said = {name for name, value in source.args.items() if value}
    alias = source.args.get("alias")
    return said <= {"this", "db", "catalog", "alias"} and not (alias and alias.args.get("columns"))


def _parts(table: exp.Table) -> tuple[str, ...]:
    return tuple(part.name for part in table.parts)


def tables_read(sql: str, dialect: str) -> frozenset[tuple[str, ...]]:
    """The names, part by part, of the tables that a view's statement reads.

    Nothing when it cannot be understood.
    """
    try:
        query = _query("", sql, dialect)
    except SpecError:
        return frozenset()
    return frozenset(map(_parts, real_tables(query)))


def _query(view: str, sql: str, dialect: str) -> exp.Expr:
    try:
        tree = sqlglot.parse_one(sql, dialect=dialect)
    except SqlglotError as error:
        raise SpecError(f"{view} is a view that cannot be understood: {str(error).splitlines()[0]}.") from error
    if not isinstance(tree, exp.Create):
        return tree
    if isinstance(tree.this, exp.Schema):
        raise SpecError(
            f"{view} is a view that gives columns other names: {tree.sql(dialect)}. Make it show its table as it is: "
            f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM that table."
        )
    query: exp.Expr = tree.expression
    return query


def version_name(view: str, backfill_id: str) -> str:
    """The name of the version of a view that a backfill publishes, which leads back to it; at most 63 bytes."""
    suffix = f"__{backfill_id}"
    return view.encode()[: _LONGEST_NAME - len(suffix.encode())].decode(errors="ignore") + suffix


def require_table(target: Target) -> None:
    """:raises PublishRefused: the target is a view, whose rows are another table's."""
    if target.version is not None:
        raise PublishRefused(
            f"{target.table} is a view of {target.version.table}, so no rows of it can be replaced. Nothing was written. "
            "Use publish.mechanism view_swap, or name the table."
        )


def require_view(target: Target) -> None:
    """:raises PublishRefused: the target is a table, which nothing can be swapped behind."""
    if target.version is None:
        raise PublishRefused(
            f"{target.table} is a table, and view_swap needs a view of one. Nothing was written. Use another mechanism."
        )


def refuse_newer_version(target: Target, backfill_id: str, receipts: Sequence[Receipt]) -> None:
    """:raises PublishRefused: after this backfill, another one published a version that was not rolled back."""
    newer: dict[str, None] = {}
    for receipt in receipts:
        if receipt.action is not Action.PUBLISH:
            newer.pop(receipt.backfill_id, None)
        elif receipt.backfill_id == backfill_id:
            newer.clear()
        else:
            newer[receipt.backfill_id] = None
    if newer:
        raise PublishRefused(
            f"Backfill {', '.join(newer)} published a newer version of {target.table} after {backfill_id}: roll that one "
            "back first. Nothing was written."
        )
