"""Where a statement names the tables it reads, and how such a read becomes another one; all else in the text stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sqlglot import Token, exp

By = Callable[[str], str]
"""What stands in the place of a table's name."""
_PLAIN = {"this", "db", "catalog", "alias"}


class Read(NamedTuple):
    """The first and the last token of a table's name."""

    first: int
    last: int
    has_alias: bool


def more_than_a_name(table: exp.Table) -> list[str]:
    """What a read has beside a name and an alias, such as a sample; nothing when it can become a subquery."""
    return [name for name, value in table.args.items() if value and name not in _PLAIN]


def find(tables: Iterable[exp.Table], tokens: Sequence[Token]) -> tuple[Read, ...]:
    """Where these tables, parsed from the text of these tokens, are named."""
    by_start = {token.start: number for number, token in enumerate(tokens)}
    return tuple(
        Read(by_start[table.parts[0].meta["start"]], by_start[table.parts[-1].meta["start"]], bool(table.alias))
        for table in tables
    )


def bounded_tree(tree: exp.Expr, bounds: Iterable[tuple[exp.Table, str]], dialect: str) -> exp.Expr:
    """The tree, changed, in which each of these reads is a subquery with its predicate: what such a text must parse to."""
    for read, predicate in bounds:
        alias = read.args.get("alias") or exp.TableAlias(this=read.this.copy())
        plain = read.copy()
        plain.set("alias", None)
        bounded = exp.select("*").from_(plain).where(predicate, dialect=dialect)
        read.replace(exp.Subquery(this=bounded, alias=alias.copy()))
    return tree


def replaced(select: str, tokens: Sequence[Token], reads: Sequence[Read], by: By) -> str:
    """The text with each read as what ``by`` makes of its name, under the alias it had or its own name."""
    for read in sorted(reads, reverse=True):  # from the last to the first, so that earlier places stay right
        start, last, end = tokens[read.first].start, tokens[read.last].start, tokens[read.last].end + 1
        alias = "" if read.has_alias else f" AS {select[last:end]}"
        select = f"{select[:start]}{by(select[start:end])}{alias}{select[end:]}"
    return select
