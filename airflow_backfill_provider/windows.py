"""Partitions: half-open windows of time with a stable text key. Pure; imports nothing of ours but errors.

A day is a calendar day of the zone, computed by pendulum, never by adding 24 hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum

import pendulum

from airflow_backfill_provider.errors import RequestError


class Grain(StrEnum):
    """How long one partition is."""

    DAY = "day"


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

    def __str__(self) -> str:
        return f"[{self.start:%Y-%m-%dT%H:%M:%SZ}, {self.end:%Y-%m-%dT%H:%M:%SZ})"


@dataclass(frozen=True, order=True)
class Partition:
    """One window of a target and the text key it is known by everywhere (``2013-02-01``)."""

    key: str
    window: Window


def partition_at(moment: datetime | date, grain: Grain, zone: str = "UTC") -> Partition:
    """The partition that holds ``moment``; a date means that calendar day of the zone.

    :raises RequestError: for the last day that the calendar knows, which has no end.
    """
    match grain:
        case Grain.DAY:
            local = (
                pendulum.instance(moment).in_timezone(zone)
                if isinstance(moment, datetime)
                else pendulum.datetime(moment.year, moment.month, moment.day, tz=zone)
            )
            start = local.start_of("day")
            try:
                end = start.add(days=1).start_of("day")
            except OverflowError as error:
                raise RequestError(
                    f"The day {start.date()} has no end that can be written; give an earlier one."
                ) from error
            return Partition(start.date().isoformat(), Window(_utc(start), _utc(end)))


def split(start: datetime, end: datetime, grain: Grain, zone: str = "UTC") -> tuple[Partition, ...]:
    """Tile ``[start, end)`` with partitions, in order, without gap or overlap.

    :raises RequestError: when the range is empty or a bound is not a boundary of the grain.
    """
    if start >= end:
        raise RequestError(f"The range is empty: it starts at {start} and ends at {end}. Give an end after the start.")
    partitions: list[Partition] = []
    cursor = _utc(start)
    if partition_at(cursor, grain, zone).window.start != cursor:
        raise RequestError(f"{start} is not the start of a {grain} in {zone}; give a bound on a {grain} boundary.")
    while cursor < end:
        partition = partition_at(cursor, grain, zone)
        partitions.append(partition)
        cursor = partition.window.end
    if cursor != end:
        raise RequestError(f"{end} is not the end of a {grain} in {zone}; give a bound on a {grain} boundary.")
    return tuple(partitions)


def merge(partitions: Iterable[Partition]) -> tuple[Window, ...]:
    """The fewest windows that cover exactly the given partitions, in order."""
    merged: list[Window] = []
    for window in sorted(partition.window for partition in partitions):
        if merged and merged[-1].end == window.start:
            merged[-1] = Window(merged[-1].start, window.end)
        elif merged and merged[-1].overlaps(window):
            raise ValueError(f"Partitions overlap at {window}.")
        else:
            merged.append(window)
    return tuple(merged)


_DATE = re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_DATETIME = re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:")
_NEITHER = "neither a date (YYYY-MM-DD) nor a datetime (YYYY-MM-DDTHH:MM:SS+00:00)."


def parse_start(text: str, grain: Grain, zone: str = "UTC") -> datetime:
    """The first instant that ``text`` names: an ISO date is that day's start in the zone, a datetime is itself.

    :raises RequestError: when the text is neither.
    """
    if _DATE.match(text):
        return partition_at(_date(text), grain, zone).window.start
    return _instant(text, zone)


def parse_end(text: str, grain: Grain, zone: str = "UTC") -> datetime:
    """The end that ``text`` names: an ISO date is inclusive (the end of that day's partition), a datetime exclusive.

    :raises RequestError: when the text is neither.
    """
    if _DATE.match(text):
        return partition_at(_date(text), grain, zone).window.end
    return _instant(text, zone)


def parse_key(text: str, grain: Grain, zone: str = "UTC") -> Partition:
    """The partition with the key ``text``.

    :raises RequestError: when no partition of the grain has that key.
    """
    if not _DATE.match(text):
        raise RequestError(f"{text!r} is not a {grain} partition key; a key looks like 2013-02-01.")
    return partition_at(_date(text), grain, zone)


def side_by_side(partitions: Sequence[Partition]) -> tuple[tuple[Partition, ...], ...]:
    """The partitions, in order, cut wherever one does not begin where the last one ends."""
    runs: list[list[Partition]] = []
    for partition in sorted(partitions, key=lambda partition: partition.window):
        if runs and runs[-1][-1].window.end == partition.window.start:
            runs[-1].append(partition)
        else:
            runs.append([partition])
    return tuple(map(tuple, runs))


def describe(partitions: Sequence[Partition]) -> str:
    """``2013-02-01 … 2013-02-12``, or the one key; for labels."""
    first, last = partitions[0].key, partitions[-1].key
    return first if first == last else f"{first} … {last}"


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is not a date: {error}. Give one as YYYY-MM-DD.") from error


def _instant(text: str, zone: str) -> datetime:
    if not _DATETIME.match(text):
        # Such as 20130201: a date to its writer, midnight to the parser, so as an end it would lose a day.
        raise RequestError(f"{text!r} is {_NEITHER}")
    try:
        moment = datetime.fromisoformat(text)
        aware = pendulum.instance(moment, tz=zone) if moment.tzinfo is None else pendulum.instance(moment)
        return _utc(aware)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{text!r} is {_NEITHER}") from error


def _utc(moment: datetime) -> datetime:
    """A plain datetime: pendulum's is written in another way."""
    instant = moment.astimezone(UTC)
    return datetime.combine(instant.date(), instant.time(), UTC)
