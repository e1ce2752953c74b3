"""Where in a statement its query stands, so that the user's own text is kept and partitions need no parsing each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

Shape = tuple[object, ...]

_LITERALS = (TokenType.STRING, TokenType.NUMBER)
_KEPT = 64


@dataclass(frozen=True)
class Cut:
    """The tokens before ``write`` (a WITH, or nothing) and from ``first`` to ``last``; ``columns`` renames the result."""

    write: int
    first: int
    last: int
    columns: str = ""

    def text(self, sql: str, tokens: Sequence[Token]) -> str:
        """The query's text in a statement of this shape."""
        query = sql[: tokens[self.write].start] + sql[tokens[self.first].start : tokens[self.last].end + 1]
        return renamed(query, self.columns)


def renamed(query: str, columns: str) -> str:
    """The query with its result's columns called ``columns``, or as it is when there are none."""
    return f"SELECT * FROM (\n{query}\n) AS _rows({columns})" if columns else query  # noqa: S608 - parsed before


def last_token(tokens: Sequence[Token]) -> int:
    """The index of the last token of a single statement, without semicolons."""
    return max(index for index, token in enumerate(tokens) if token.token_type is not TokenType.SEMICOLON)


def shape_of(tokens: Sequence[Token]) -> Shape:
    """What decides how a statement parses: its tokens, but not the values of its literals."""
    return tuple(
        token.token_type if token.token_type in _LITERALS else (token.token_type, token.text) for token in tokens
    )


class CutCache:
    """Cuts of statements that were parsed; another partition's statement differs in its literals only."""

    def __init__(self) -> None:
        self._cuts: dict[tuple[str, str, Shape], Cut] = {}

    def find(self, target: str, dialect: str, shape: Shape) -> Cut | None:
        """The cut of a statement with this shape, if one was kept."""
        return self._cuts.get((target, dialect, shape))

    def keep(self, target: str, dialect: str, shape: Shape, cut: Cut) -> None:
        """Keep a cut, unless a literal stands in the part that is taken off."""
        if any(one in _LITERALS for one in shape[cut.write : cut.first]):
            return
        if len(self._cuts) >= _KEPT:
            self._cuts.clear()
        self._cuts[target, dialect, shape] = cut
