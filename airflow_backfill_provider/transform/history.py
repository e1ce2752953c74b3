"""Tables that keep their own history (``valid_from``, ``valid_to``), read without saying at what time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from sqlglot import exp

from airflow_backfill_provider.real_tables import real_tables
from airflow_backfill_provider.spec.model import HistoryTable
from airflow_backfill_provider.transform.parse import same_table

ColumnsOf = Callable[[str], Collection[str]]
"""The columns of a table, named as in SQL; none when they are not known."""

_WELL_KNOWN = (("valid_from", "valid_to"), ("dbt_valid_from", "dbt_valid_to"))
_COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.Between)
_FILTERS = (exp.Where, exp.Join, exp.Having, exp.Qualify)


def read_as_of_today(
    query: exp.Expr, declared: Sequence[HistoryTable], dialect: str, columns_of: ColumnsOf
) -> Iterator[tuple[exp.Table, str]]:
    """Each table whose start of validity nothing is compared with, and the name of that column.

    ``valid_to IS NULL`` is no such comparison: it picks the rows that are valid today, for every partition.
    """
    tables = [table for table in real_tables(query) if isinstance(table.this, exp.Identifier)]
    for table in tables:
        valid_from = _valid_from(table, declared, dialect, columns_of)
        others = {other.alias_or_name.casefold() for other in tables} - {table.alias_or_name.casefold()}
        if valid_from and not _is_compared(query, valid_from, others):
            yield table, valid_from


def _valid_from(table: exp.Table, declared: Sequence[HistoryTable], dialect: str, columns_of: ColumnsOf) -> str:
    """The column that says since when a row is valid; empty when the table keeps no history."""
    for known in declared:
        if same_table(table, known.table, dialect):
            return known.valid_from
    name = exp.Table(this=table.this, db=table.args.get("db"), catalog=table.args.get("catalog"))
    columns = {column.casefold() for column in columns_of(name.sql(dialect=dialect))}
    return next((start for start, end in _WELL_KNOWN if {start, end} <= columns), "")


def _is_compared(query: exp.Expr, column: str, other_tables: Collection[str]) -> bool:
    """Whether a filter compares the column, of the table or of a subquery around it."""
    return any(
        found.name.casefold() == column.casefold()
        and found.table.casefold() not in other_tables
        and found.find_ancestor(*_COMPARISONS) is not None
        and found.find_ancestor(*_FILTERS) is not None
        for found in query.find_all(exp.Column)
    )
