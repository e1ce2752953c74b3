"""Every read of the source bounded by when its rows arrived; all else in the user's text stays as it is."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.transform.parse import names_end_alike, same_table, tables_read

_PLAIN = {"this", "db", "catalog", "alias"}


def cut_off(select: str, source: str, arrived: str, dialect: str, origin: str = "The SQL") -> str:
    """The SELECT in which each read of the table ``source`` gives only the rows for which ``arrived`` is true.

    :raises TransformRefused: it does not read the source by the spec's name, or reads it in a way that cannot be bounded.
    """
    tree = sqlglot.parse_one(select, dialect=dialect)
    _refuse_other_spellings(tree, source, dialect, origin)
    reads = [table for table in tables_read(tree) if same_table(table, source, dialect)]
    if not reads:
        raise TransformRefused(
            f"{origin} does not read {source}, so source.cutoff would bound nothing. Write the same name, with every part, "
            "in source.table and in the SQL, or leave source.cutoff out."
        )
    bounded = select
    for read in sorted(reads, key=lambda table: _start(table), reverse=True):
        if surplus := [name for name, value in read.args.items() if value and name not in _PLAIN]:
            raise TransformRefused(
                f"{origin} reads {read.sql(dialect)}: a read with {', '.join(surplus)} cannot be bounded by source.cutoff."
            )
        bounded = _bound(bounded, read, arrived)
    if sqlglot.parse_one(bounded, dialect=dialect) != _bounded_tree(tree, reads, arrived, dialect):
        raise TransformRefused(f"{origin} reads {source} in a way that source.cutoff cannot bound.")
    return bounded


def _refuse_other_spellings(tree: exp.Expr, source: str, dialect: str, origin: str) -> None:
    """What may be the source under another name would be read unbounded."""
    if source.casefold() in {cte.alias.casefold() for cte in tree.find_all(exp.CTE)}:
        raise TransformRefused(
            f"{origin} calls a WITH query {source}, like the source, so source.cutoff cannot tell the two apart. Rename it."
        )
    for table in tables_read(tree):
        if names_end_alike(table, source, dialect) and not same_table(table, source, dialect):
            raise TransformRefused(
                f"{origin} reads {table.sql(dialect)}, which may be {source} under another name, so source.cutoff cannot "
                "bound it. Write the same name, with every part, in source.table and in the SQL."
            )


def _start(table: exp.Table) -> int:
    return int(table.parts[0].meta["start"])


def _bound(text: str, read: exp.Table, arrived: str) -> str:
    start, last, end = _start(read), int(read.parts[-1].meta["start"]), int(read.parts[-1].meta["end"]) + 1
    alias = "" if read.alias else f" AS {text[last:end]}"
    return f"{text[:start]}(SELECT * FROM {text[start:end]} WHERE {arrived}){alias}{text[end:]}"  # noqa: S608


def _bounded_tree(tree: exp.Expr, reads: list[exp.Table], arrived: str, dialect: str) -> exp.Expr:
    """What the text must parse to: proof that nothing but the reads was changed."""
    for read in reads:
        alias = read.args.get("alias") or exp.TableAlias(this=read.this.copy())
        plain = read.copy()
        plain.set("alias", None)
        bounded = exp.select("*").from_(plain).where(arrived, dialect=dialect)
        read.replace(exp.Subquery(this=bounded, alias=alias.copy()))
    return tree
