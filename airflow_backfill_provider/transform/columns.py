"""Some columns of what a SELECT yields, and no others."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp


def only(select: str, names: Sequence[str], dialect: str) -> str:
    """The SELECT with these columns alone, in this order, as the engine quotes their names."""
    picked = ", ".join(exp.to_identifier(name, quoted=True).sql(dialect=dialect) for name in names)
    return f"SELECT {picked} FROM (\n{select}\n) AS yielded"  # noqa: S608 - the names are quoted
