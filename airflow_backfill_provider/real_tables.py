"""The tables that a query reads, told from the names that its own WITH defines."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import traverse_scope


def real_tables(query: exp.Expr) -> Iterator[exp.Table]:
    """Every table of the query, but for names that mean a WITH of its own where they stand.

    In ``WITH orders AS (SELECT * FROM orders) SELECT * FROM orders`` the first ``orders`` is a table and the second is not. Where
    that cannot be told the name counts as a table.
    """
    own = {cte.alias for cte in query.find_all(exp.CTE)}
    tables = list(query.find_all(exp.Table))
    doubtful = [table for table in tables if table.name in own and len(table.parts) == 1]
    defined = {id(table) for table in doubtful} - _known_as_tables(query) if doubtful else set()
    yield from (table for table in tables if id(table) not in defined)


def _known_as_tables(query: exp.Expr) -> set[int]:
    try:
        scopes = traverse_scope(query)
    except OptimizeError:
        return {id(table) for table in query.find_all(exp.Table)}
    return {id(source) for scope in scopes for source in scope.sources.values() if isinstance(source, exp.Table)}
