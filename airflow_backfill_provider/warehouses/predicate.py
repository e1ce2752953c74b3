"""SQL of a spec that goes into a statement of ours: proven to be one expression over one row, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import SpecError

_MORE_THAN_A_ROW = (exp.Query, exp.Window, exp.AggFunc, exp.Star, exp.Placeholder, exp.Parameter, exp.Alias)


@lru_cache(maxsize=1024)
def row_expression(text: str, dialect: str) -> str:
    """The expression as sqlglot writes it in the dialect, so that what is run is what was understood.

    :raises SpecError: it is not one expression, or looks at more than one row: a subquery, an aggregate, a window.
    """
    return _parse(text, dialect).sql(dialect=dialect, comments=False)


def columns_of(text: str, dialect: str) -> frozenset[str]:
    """The names of the columns that the expression reads.

    :raises SpecError: as :func:`row_expression`.
    """
    return frozenset(column.name for column in _parse(text, dialect).find_all(exp.Column))


def unknown_columns(text: str, dialect: str, known: Iterable[str]) -> list[str]:
    """The columns that the expression reads and that are not among those known, in any case.

    :raises SpecError: as :func:`row_expression`.
    """
    there = {name.casefold() for name in known}
    return sorted(name for name in columns_of(text, dialect) if name.casefold() not in there)


def _parse(text: str, dialect: str) -> exp.Expr:
    try:
        statements = sqlglot.parse(text, dialect=dialect)
        tokens = sqlglot.tokenize(text, dialect=dialect)
    except SqlglotError as error:
        raise SpecError(f"{text!r} is not one expression of {dialect} SQL: {str(error).splitlines()[0]}.") from error
    ends = any(token.token_type is TokenType.SEMICOLON for token in tokens)
    if ends or len(statements) != 1 or statements[0] is None:
        raise SpecError(f"{text!r} is not one expression: write one predicate, without a semicolon.")
    tree = statements[0]
    if not isinstance(tree, exp.Condition):
        raise SpecError(f"{text!r} is {type(tree).__name__.upper()}, not an expression such as amount >= 0.")
    for node in tree.walk():
        if isinstance(node, _MORE_THAN_A_ROW):
            raise SpecError(
                f"{text!r} holds {node.sql(dialect)!r}, and an expression here reads the columns of one row. "
                "Write a check of kind sql for anything that looks at other rows or tables."
            )
        if isinstance(node, exp.Column) and node.table:
            raise SpecError(f"{text!r} names {node.sql(dialect)!r}; name columns without their table.")
    return tree
