"""The ends of a range as a person writes them: a period of the calendar, an instant, or a distance from now."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

import pendulum

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.windows.calendar import Grain, partition_at
from airflow_backfill_provider.windows.keys import DATE, is_key, parse_date, parse_key
from airflow_backfill_provider.windows.spans import Partition, Window
from airflow_backfill_provider.windows.zones import local, readings, utc

_DATETIME = re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:")
_AGO = re.compile(r"\A-([0-9]{1,5})(h|d|w|mo|y)\Z")
_AGO_GRAINS = {"h": Grain.HOUR, "d": Grain.DAY, "w": Grain.WEEK, "mo": Grain.MONTH, "y": Grain.YEAR}
_DAYS = {"today": "-0d", "yesterday": "-1d"}
_NEITHER = (
    "neither a date (YYYY-MM-DD) nor a datetime (YYYY-MM-DDTHH:MM:SS+00:00), nor today, yesterday, now or a number of "
    "periods ago (-12h, -30d, -2w, -3mo, -1y); a month (YYYY-MM) or year (YYYY) is one where that is the grain."
)


def parse_start(text: str, grain: Grain, zone: str = "UTC", now: datetime | None = None) -> datetime:
    """The first instant that ``text`` names: a period starts where it starts, a datetime is itself.

    A datetime without an offset is one of the zone. ``now`` is what relative texts count from.

    :raises RequestError: when the text is none of these.
    """
    period = _period(text, grain, zone, now)
    return _instant(text, zone) if period is None else period.start


def parse_end(text: str, grain: Grain, zone: str = "UTC", now: datetime | None = None) -> datetime:
    """The end that ``text`` names: a period (such as a date) is inclusive, a datetime is exclusive.

    :raises RequestError: as :func:`parse_start`.
    """
    period = _period(text, grain, zone, now)
    return _instant(text, zone) if period is None else period.end


def widen(start: datetime, end: datetime, grain: Grain, zone: str = "UTC") -> tuple[datetime, datetime]:
    """The smallest range on boundaries of the grain that holds ``[start, end)``."""
    if start >= end:
        return start, end
    first, last = (partition_at(at, grain, zone).window for at in (start, end - timedelta(microseconds=1)))
    return first.start, last.end


def covered(text: str, partitions: Iterable[Partition], grain: Grain, zone: str = "UTC") -> list[Partition]:
    """Those of the partitions that ``text`` names: one by its key, or all that lie in a day, month or year.

    :raises RequestError: the text is neither a key nor a period.
    """
    period = None if grain is Grain.LIST or is_key(text, grain) else _longer_period(text, zone)
    if period is None:
        wanted = parse_key(text, grain, zone)
        return [partition for partition in partitions if partition == wanted]
    return [one for one in partitions if period.start <= one.window.start and one.window.end <= period.end]


def _longer_period(text: str, zone: str) -> Window | None:
    for grain in (Grain.DAY, Grain.MONTH, Grain.YEAR):
        if is_key(text, grain):
            return parse_key(text, grain, zone).window
    return None


def _period(text: str, grain: Grain, zone: str, now: datetime | None) -> Window | None:
    """The period of the calendar that the text names; None when it names none."""
    if is_key(text, grain):
        return parse_key(text, grain, zone).window
    if DATE.match(text):
        return partition_at(parse_date(text), Grain.DAY, zone).window
    if now is None:
        return None
    if text == "now":
        return partition_at(now, grain, zone).window
    if match := _AGO.match(_DAYS.get(text, text)):
        return _ago(int(match[1]), _AGO_GRAINS[match[2]], zone, now, text)
    return None


def _ago(count: int, unit: Grain, zone: str, now: datetime, text: str) -> Window:
    try:
        if unit is Grain.HOUR:
            return partition_at(now - timedelta(hours=count), unit, zone).window
        today = local(now, zone).date()
        day = pendulum.date(today.year, today.month, today.day).subtract(**{f"{unit}s": count})
    except (OverflowError, ValueError) as error:
        raise RequestError(f"{text!r} lies before the first year of the calendar; give a smaller number.") from error
    return partition_at(day, unit, zone).window


def _instant(text: str, zone: str) -> datetime:
    if not _DATETIME.match(text):
        # Such as 20130201: a date to its writer, midnight to the parser, so as an end it would lose a day.
        raise RequestError(f"{text!r} is {_NEITHER}")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return utc(moment)
        first, second = readings(moment, zone)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{text!r} is {_NEITHER}") from error
    if first < second:
        raise RequestError(
            f"The clocks of {zone} show {text!r} twice; say which one you mean: {local(first, zone).isoformat()} or "
            f"{local(second, zone).isoformat()}."
        )
    if second < first:
        raise RequestError(f"The clocks of {zone} go forward over {text!r}, so that is no moment; give another one.")
    return first
