"""What the statements of this package need of a connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

Run = Callable[[str], list[tuple[Any, ...]]]
"""Runs one statement and returns its rows; of INSERT, UPDATE, DELETE and MERGE one row with how many rows it wrote."""


class Session(Protocol):
    """One connection, or what stands for it during one call."""

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See :data:`Run`."""
        ...

    def transaction(self, *, read_only: bool = False) -> AbstractContextManager[None]:
        """One transaction: committed at the end, rolled back on any error."""
        ...

    def one_select(self, sql: str) -> str | None:
        """The text without a semicolon at its end, or None when it is anything but one SELECT."""
        ...
