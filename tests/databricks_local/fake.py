"""A connection whose answers a test makes up: for faults that no local Spark can be brought to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

Answer = Callable[[str], Sequence[Mapping[str, Any]]]
"""The rows of a statement by the names of their columns, or the error that it ends in."""


class FakeConnection:
    """What the product asks of the connector's connection and of its cursors; it keeps what it was told to run."""

    active_result_set = None

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._rows: Sequence[Mapping[str, Any]] = ()
        self.ran: list[str] = []
        self.is_closed = False

    def cursor(self) -> FakeConnection:
        return self

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        self.ran.append(sql)
        self._rows = () if sql.startswith("SET TIME ZONE") else self._answer(sql)

    def columns(self, **pattern: Any) -> None:
        self.execute("GetColumns")

    @property
    def description(self) -> list[tuple[str]]:
        return [(name,) for name in (self._rows[0] if self._rows else ())]

    def fetchall_arrow(self) -> Any:
        names = [name for (name,) in self.description]
        columns = [[row[name] for row in self._rows] for name in names]
        return SimpleNamespace(columns=[SimpleNamespace(to_pylist=lambda values=values: values) for values in columns])

    def close(self) -> None:
        self.is_closed = True


def raising(error: Exception) -> Answer:
    """Every statement ends in this error."""

    def answer(sql: str) -> Sequence[Mapping[str, Any]]:
        raise error

    return answer
