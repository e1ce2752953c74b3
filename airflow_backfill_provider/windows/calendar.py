"""The partitions of time: hours, days, ISO weeks, months and years of a zone's calendar."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from typing import Literal

import pendulum

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.windows.spans import Partition, Window
from airflow_backfill_provider.windows.zones import day_start, local, readings, transition, utc

_TICK = timedelta(microseconds=1)


class Grain(StrEnum):
    """How long one partition is, or that it is a value of a list."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"  # ISO: from Monday
    MONTH = "month"
    YEAR = "year"
    LIST = "list"  # no time: each value of the column is a partition

    def holds(self, other: Grain) -> bool:
        """Whether one of these is at least as long as one of the other; a list has no length."""
        lengths = [grain for grain in Grain if grain is not Grain.LIST]
        return self in lengths and other in lengths and lengths.index(self) >= lengths.index(other)


_Period = Literal["week", "month", "year"]
_PERIODS: dict[Grain, _Period] = {Grain.WEEK: "week", Grain.MONTH: "month", Grain.YEAR: "year"}


def partition_at(moment: datetime | date, grain: Grain, zone: str = "UTC") -> Partition:
    """The partition that holds ``moment``; a date means the start of that calendar day of the zone.

    Keys are what Airflow 3.3's ``StartOfHourMapper`` to ``StartOfYearMapper`` write by default: ``2024-03-13T10``,
    ``2024-03-13``, ``2024-03-11 (W11)``, ``2024-03``, ``2024``. An hour that the clock shows twice, which they write
    alike, has its offset after it: ``2024-11-03T01-0400``, ``2024-11-03T01-0500``.

    :raises RequestError: for the last period that the calendar knows, which has no end, and a day that a zone left out.
    """
    if grain is Grain.LIST:
        raise ValueError("A list has no partition at a moment.")
    try:
        if grain is Grain.HOUR:
            return _hour(moment if isinstance(moment, datetime) else day_start(moment, zone), zone)
        return _period(_day_of(moment, zone) if isinstance(moment, datetime) else moment, grain, zone)
    except (OverflowError, ValueError) as error:  # pendulum raises either beyond year 9999
        raise RequestError(
            f"The {grain} that holds {moment} has no start or no end that can be written; give another one."
        ) from error


def periods(partitions: Sequence[Partition], period: Grain, zone: str = "UTC") -> tuple[tuple[Partition, ...], ...]:
    """The partitions, in order, by the hour, day, week, month or year of the zone in which each begins."""
    groups = groupby(sorted(partitions), lambda one: partition_at(one.window.start, period, zone).key)
    return tuple(tuple(group) for _, group in groups)


def split(start: datetime, end: datetime, grain: Grain, zone: str = "UTC") -> tuple[Partition, ...]:
    """Tile ``[start, end)`` with partitions, in order, without gap or overlap.

    :raises RequestError: when the range is empty or a bound is not a boundary of the grain.
    """
    if start >= end:
        raise RequestError(f"The range is empty: it starts at {start} and ends at {end}. Give an end after the start.")
    partitions: list[Partition] = []
    cursor = utc(start)
    if (first := partition_at(cursor, grain, zone)).window.start != cursor:
        raise _misaligned(start, "start", first, grain, zone)
    while cursor < end:
        partition = partition_at(cursor, grain, zone)
        partitions.append(partition)
        cursor = partition.window.end
    if cursor != end:
        raise _misaligned(end, "end", partitions[-1], grain, zone)
    return tuple(partitions)


def _misaligned(bound: datetime, side: str, around: Partition, grain: Grain, zone: str) -> RequestError:
    return RequestError(
        f"{bound} is not the {side} of a {grain} in {zone}: it lies inside {around.key}, {around.span}. Give a bound on "
        f"a {grain} boundary, or set expand: true to take in the whole {grain}."
    )


def _day_of(moment: datetime, zone: str) -> date:
    day = local(moment, zone).date()
    # Clocks that go back across midnight show the new day, then the old one again.
    return day if moment >= day_start(day, zone) else day - timedelta(days=1)


@lru_cache(maxsize=8192)
def _period(day: date, grain: Grain, zone: str) -> Partition:
    first, following = _around(day, grain)
    start, end = day_start(first, zone), day_start(following, zone)
    if start >= end:
        raise RequestError(f"There was no {first.isoformat()} in {zone}: the calendar left that day out.")
    return Partition(_key(first, grain), Window(start, end))


def _around(day: date, grain: Grain) -> tuple[date, date]:
    """The first day of the period and of the one after it."""
    if grain is Grain.DAY:
        return day, day + timedelta(days=1)
    period = _PERIODS[grain]
    first = pendulum.date(day.year, day.month, day.day).start_of(period)
    return first, first.add(**{f"{period}s": 1})


def _key(first: date, grain: Grain) -> str:
    text = first.isoformat()
    match grain:
        case Grain.WEEK:
            return f"{text} (W{first.isocalendar().week:02d})"
        case Grain.MONTH:
            return text[:7]
        case Grain.YEAR:
            return text[:4]
        case _:
            return text


def _hour(moment: datetime, zone: str) -> Partition:
    """Cut at full hours of the wall clock, and where the clocks change."""
    moment = utc(moment)
    shown = local(moment, zone)
    offset = shown.utcoffset()
    start = moment - timedelta(minutes=shown.minute, seconds=shown.second, microseconds=shown.microsecond)
    end = start + timedelta(hours=1)
    if local(start, zone).utcoffset() != offset:
        start = transition(start, moment, zone)
    if local(end - _TICK, zone).utcoffset() != offset:
        end = transition(moment, end - _TICK, zone)
    label = f"{shown.date().isoformat()}T{shown.hour:02d}"
    return Partition(f"{label}{shown:%z}" if _is_shown_twice(shown, zone) else label, Window(start, end))


def _is_shown_twice(shown: datetime, zone: str) -> bool:
    first = shown.replace(minute=0, second=0, microsecond=0, tzinfo=None)
    # Where clocks go back, the offset before is the larger one, so the same wall time comes earlier under it.
    began, ended = readings(first, zone)[0], readings(first + timedelta(hours=1) - _TICK, zone)[1]
    return ended - began > timedelta(hours=1)
