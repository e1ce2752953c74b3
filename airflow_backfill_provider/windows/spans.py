"""What one partition is: a window of time or a value, and the text key it is known by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import total_ordering

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_LABEL = 40


@dataclass(frozen=True, order=True)
class Window:
    """One half-open window ``[start, end)`` of aware UTC instants; never empty."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for bound in (self.start, self.end):
            if bound.utcoffset() is None or bound.utcoffset() != UTC.utcoffset(None):
                raise ValueError(f"A window is bounded by aware UTC instants, not {bound!r}.")
        if self.start >= self.end:
            raise ValueError(f"A window needs start < end, not [{self.start}, {self.end}).")

    def overlaps(self, other: Window) -> bool:
        """Whether the two share an instant; touching ends do not count."""
        return self.start < other.end and other.start < self.end

    @property
    def template_names(self) -> str:
        """The names that a SQL template bounds it by."""
        return "data_interval_start and data_interval_end"

    def __str__(self) -> str:
        return f"[{self.start:%Y-%m-%dT%H:%M:%SZ}, {self.end:%Y-%m-%dT%H:%M:%SZ})"


@dataclass(frozen=True, order=True)
class Value:
    """One value of a column, as text: the rows that have it are the partition. NULL is no value."""

    text: str

    @property
    def template_names(self) -> str:
        """The name that a SQL template bounds it by."""
        return "partition_value"

    def __str__(self) -> str:
        return f"the value {self.text!r}"


Span = Window | Value
"""Which rows of a target a partition holds."""


@total_ordering
@dataclass(frozen=True)
class Partition:
    """One span of a target and the text key it is known by everywhere (``2013-02-01``, ``eu-west``).

    Partitions of one target are ordered by time, or by value.
    """

    key: str
    span: Span

    @property
    def window(self) -> Window:
        """Its window of time.

        :raises ValueError: it is a value of a list.
        """
        if isinstance(self.span, Window):
            return self.span
        raise ValueError(f"Partition {self.key!r} is {self.span}, which is no window of time.")

    @property
    def label(self) -> str:
        """Its key for the name of a file or a table: letters, digits, ``-`` and ``_``; two keys may share one."""
        word = _NOT_IN_A_NAME.sub("-", self.key).strip("-_")[:_LONGEST_LABEL].rstrip("-_")
        return word or "partition"

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over; a value of a list is never unfinished."""
        return not isinstance(self.span, Window) or self.span.end <= now

    def __lt__(self, other: Partition) -> bool:
        match self.span, other.span:
            case (Window() as mine, Window() as theirs):
                return (mine, self.key) < (theirs, other.key)
            case (Value() as mine, Value() as theirs):
                return (mine, self.key) < (theirs, other.key)
        raise ValueError(f"Partitions {self.key!r} and {other.key!r} have no order: one is a window, one a value.")


def merge(partitions: Iterable[Partition]) -> tuple[Span, ...]:
    """The fewest spans that cover exactly the given partitions, in order.

    :raises ValueError: two of them share rows.
    """
    merged: list[Span] = []
    for partition in sorted(partitions):
        before, span = merged[-1] if merged else None, partition.span
        match before, span:
            case (Window() as last, Window() as window) if last.end == window.start:
                merged[-1] = Window(last.start, window.end)
            case (Window() as last, Window() as window) if last.overlaps(window):
                raise ValueError(f"Partitions overlap at {window}.")
            case _ if before == span:
                raise ValueError(f"Two partitions are {span}.")
            case _:
                merged.append(span)
    return tuple(merged)


def side_by_side(partitions: Sequence[Partition]) -> tuple[tuple[Partition, ...], ...]:
    """The partitions, in order, cut wherever one does not begin where the last one ends; values are each alone."""
    runs: list[list[Partition]] = []
    for partition in sorted(partitions):
        match runs[-1][-1].span if runs else None, partition.span:
            case (Window() as last, Window() as window) if last.end == window.start:
                runs[-1].append(partition)
            case _:
                runs.append([partition])
    return tuple(map(tuple, runs))


def describe(partitions: Sequence[Partition]) -> str:
    """``2013-02-01 … 2013-02-12``, or the one key; for labels."""
    first, last = partitions[0].key, partitions[-1].key
    return first if first == last else f"{first} … {last}"
