"""Every read of the source bounded by when its rows arrived; all else in the user's text stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.real_tables import real_tables
from airflow_backfill_provider.transform import reads
from airflow_backfill_provider.transform.cut import Shape, shape_of
from airflow_backfill_provider.transform.parse import names_end_alike, same_table

_KEPT = 64


_READS: dict[tuple[Shape, str, str, str], tuple[reads.Read, ...]] = {}


def cut_off(select: str, source: str, arrived: str, dialect: str, origin: str = "The SQL") -> str:
    """The SELECT in which each read of the table ``source`` gives only the rows for which ``arrived`` is true.

    :raises TransformRefused: it does not read the source by the spec's name, or reads it in a way that cannot be bounded.
    """
    tokens = Dialect.get_or_raise(dialect).tokenize(select)
    # Two parses take some 20 ms; the partitions of a backfill differ in their literals only.
    known = (shape_of(tokens), source, arrived, dialect)
    if (found := _READS.get(known)) is None:
        found = _find_reads(select, tokens, source, arrived, dialect, origin)
        if len(_READS) >= _KEPT:
            _READS.clear()
        _READS[known] = found
    return _bound(select, tokens, found, arrived)


def _find_reads(
    select: str, tokens: Sequence[Token], source: str, arrived: str, dialect: str, origin: str
) -> tuple[reads.Read, ...]:
    """Where the source is read, proved by parsing what the text becomes."""
    tree = sqlglot.parse_one(select, dialect=dialect)
    _refuse_other_spellings(tree, source, dialect, origin)
    tables = [table for table in real_tables(tree) if same_table(table, source, dialect)]
    if not tables:
        raise TransformRefused(
            f"{origin} does not read {source}, so source.cutoff would bound nothing. Write the same name, with every part, "
            "in source.table and in the SQL, or leave source.cutoff out."
        )
    for table in tables:
        if surplus := reads.more_than_a_name(table):
            raise TransformRefused(
                f"{origin} reads {table.sql(dialect)}: a read with {', '.join(surplus)} cannot be bounded by source.cutoff."
            )
    found = reads.find(tables, tokens)
    bounded = sqlglot.parse_one(_bound(select, tokens, found, arrived), dialect=dialect)
    if bounded != reads.bounded_tree(tree, [(table, arrived) for table in tables], dialect):
        raise TransformRefused(f"{origin} reads {source} in a way that source.cutoff cannot bound.")
    return found


def _bound(select: str, tokens: Sequence[Token], found: Sequence[reads.Read], arrived: str) -> str:
    """The text with each read as a subquery of its own."""
    return reads.replaced(select, tokens, found, lambda name: f"(SELECT * FROM {name} WHERE {arrived})")  # noqa: S608


def _refuse_other_spellings(tree: exp.Expr, source: str, dialect: str, origin: str) -> None:
    """What may be the source under another name would be read unbounded."""
    if source.casefold() in {cte.alias.casefold() for cte in tree.find_all(exp.CTE)}:
        raise TransformRefused(
            f"{origin} calls a WITH query {source}, like the source, so source.cutoff cannot tell the two apart. Rename it."
        )
    for table in real_tables(tree):
        if names_end_alike(table, source, dialect) and not same_table(table, source, dialect):
            raise TransformRefused(
                f"{origin} reads {table.sql(dialect)}, which may be {source} under another name, so source.cutoff cannot "
                "bound it. Write the same name, with every part, in source.table and in the SQL."
            )
