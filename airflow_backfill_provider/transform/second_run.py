"""The SELECT as a second run would find the world: rows stored in another order, or its own rows published already."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from airflow_backfill_provider.real_tables import real_tables
from airflow_backfill_provider.transform import reads
from airflow_backfill_provider.transform.parse import names_end_alike, same_table

_ROWS = "safe_backfill_rows"


def reordered(select: str, dialect: str) -> str | None:
    """The SELECT with the rows of every table it reads sorted downwards; None when it reads one in a way that has no order.

    The same rows go in, so the same come out unless the SELECT picks or numbers by where a row stands.
    """
    tree = sqlglot.parse_one(select, dialect=dialect)
    tables = [table for table in real_tables(tree) if isinstance(table.this, exp.Identifier)]
    return _with(select, tables, dialect, lambda name: f"(SELECT * FROM {name} AS {_ROWS} ORDER BY {_ROWS} DESC)")  # noqa: S608


def reads_table(select: str, target: str, dialect: str) -> bool:
    """Whether the SELECT reads that table, by its whole name."""
    return any(same_table(table, target, dialect) for table in real_tables(sqlglot.parse_one(select, dialect=dialect)))


def may_read_table(select: str, target: str, dialect: str) -> bool:
    """Whether the SELECT reads that table, or one that it may be by a shorter or a longer name."""
    return any(
        names_end_alike(table, target, dialect) for table in real_tables(sqlglot.parse_one(select, dialect=dialect))
    )


def other_tables(select: str, target: str, dialect: str) -> tuple[str, ...]:
    """The dotted names of all other tables that the SELECT reads."""
    found = real_tables(sqlglot.parse_one(select, dialect=dialect))
    names = (".".join(part.name for part in table.parts) for table in found if not same_table(table, target, dialect))
    return tuple(dict.fromkeys(names))


def over(select: str, target: str, other: str, dialect: str) -> str | None:
    """The SELECT with another table, named as SQL, in the place of its target; None when it does not read that, or not as a table."""
    tree = sqlglot.parse_one(select, dialect=dialect)
    tables = [table for table in real_tables(tree) if same_table(table, target, dialect)]
    return _with(select, tables, dialect, lambda _: f"(SELECT * FROM {other})")  # noqa: S608


def _with(select: str, tables: list[exp.Table], dialect: str, by: reads.By) -> str | None:
    if not tables or any(map(reads.more_than_a_name, tables)):
        return None
    tokens = Dialect.get_or_raise(dialect).tokenize(select)
    return reads.replaced(select, tokens, reads.find(tables, tokens), by)
