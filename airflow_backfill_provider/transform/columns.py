"""Some columns or some rows of what a SELECT yields, and no others."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp


def quoted(name: str, dialect: str) -> str:
    """The name as the engine quotes it."""
    return exp.to_identifier(name, quoted=True).sql(dialect=dialect)


def only(select: str, names: Sequence[str], dialect: str) -> str:
    """The SELECT with these columns alone, in this order, as the engine quotes their names."""
    picked = ", ".join(quoted(name, dialect) for name in names)
    return f"SELECT {picked} FROM (\n{select}\n) AS yielded"  # noqa: S608 - the names are quoted


def where(select: str, predicate: str) -> str:
    """The rows of the SELECT for which the predicate over its columns is true."""
    return f"SELECT * FROM (\n{select}\n) AS yielded WHERE {predicate}"  # noqa: S608 - the predicate was parsed
