"""When a backfill waits for others: conditions that are measured, and hours of the day that are theirs."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.names import Identifier, Zone
from airflow_backfill_provider.spec.quantities import Duration
from airflow_backfill_provider.windows import local, readings

_HOURS = re.compile(r"\A(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)\Z")
_CALLABLE = re.compile(r"\A[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_SHORTEST_WAIT = timedelta(seconds=10)
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_WEEK: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _minutes(text: str) -> tuple[int, int]:
    match = _HOURS.match(text.strip())
    if match is None:
        raise ValueError("not hours of a day; write '08:00-18:00'")
    first, last = (int(match[hour]) * 60 + int(match[hour + 1]) for hour in (1, 3))
    if not (first < 24 * 60 and 0 < last <= 24 * 60 and int(match[2]) < 60 and int(match[4]) < 60) or first == last:
        raise ValueError("not hours of a day; write '08:00-18:00', or '22:00-06:00' for a night, up to 24:00")
    return first, last


def _hours(text: str) -> str:
    _minutes(text)
    return text


def _function(text: str) -> str:
    if not _CALLABLE.match(text):
        raise ValueError("not a function; write package.module:function")
    return text


class Throttle(Frozen):
    """One reason to wait: a number above its limit, or an hour that belongs to others. Any one is enough."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """What logs and status call it."""
    sql: Annotated[str, Field(min_length=1)] | None = None
    """A query that returns one number, run through ``conn_id``."""
    callable: Annotated[str, AfterValidator(_function)] | None = None
    """A function without parameters that returns one number: ``package.module:function``, found on the workers."""
    conn_id: Identifier | None = None
    """The Airflow connection that ``sql`` is run through."""
    max: float | None = None
    """The backfill waits while the number is above this."""
    live_lag: bool = False
    """It says how far the live pipeline is behind: looked at when the plan is made and after the publish too, and reported."""
    quiet_hours: Annotated[str, AfterValidator(_hours)] | None = None
    """Hours in which it waits: ``08:00-18:00``; ``22:00-06:00`` begins in the evening of a day."""
    days: Annotated[tuple[Day, ...], Field(min_length=1)] = _WEEK
    """The days on which quiet hours begin."""
    timezone: Zone = "UTC"
    """The zone of the quiet hours."""
    every: Duration = timedelta(seconds=60)
    """How long to wait before the number is looked at again, and how long one that is within its limit is believed."""
    give_up_after: Duration = timedelta(hours=6)
    """How long it may be above its limit, or unreadable, before the whole backfill stops; quiet hours do not count. Where
    conditions take turns, each counts from when it first was the reason of this wait."""

    @model_validator(mode="after")
    def _one_kind(self) -> Throttle:
        given = [name for name in ("sql", "callable", "quiet_hours") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of sql, callable and quiet_hours")
        if (self.max is None) != (self.quiet_hours is not None):
            raise ValueError("sql and callable need max, the number above which to wait; quiet_hours has none")
        if (self.conn_id is None) != (self.sql is None):
            raise ValueError("sql needs conn_id, the connection it is run through; nothing else has one")
        if self.live_lag and self.quiet_hours is not None:
            raise ValueError("quiet_hours measure no lag; live_lag goes with sql or callable")
        if self.every < _SHORTEST_WAIT:
            raise ValueError("every is at least 10s, since each look starts a task anew")
        return self

    @model_validator(mode="after")
    def _some_time_is_left(self) -> Throttle:
        if self.quiet_hours is not None:
            first, last = _minutes(self.quiet_hours)
            if set(self.days) == set(_WEEK) and (first, last) == (0, 24 * 60):
                raise ValueError("these quiet hours never end, so nothing would ever run; leave some time of a week")
        return self

    def quiet_until(self, now: datetime) -> datetime | None:
        """When the quiet hours that ``now`` lies in end, in UTC; None outside of them, and for other conditions."""
        if self.quiet_hours is None:
            return None
        first, last = _minutes(self.quiet_hours)
        today = local(now, self.timezone).date()
        for day in (today - timedelta(days=1), today):
            if _WEEK[day.weekday()] not in self.days:
                continue
            begin = min(_instants(day, first, self.timezone))
            end = max(_instants(day, last if last > first else last + 24 * 60, self.timezone))
            if begin <= now < end:
                return end
        return None


def _instants(day: date, minutes: int, zone: str) -> tuple[datetime, datetime]:
    """What the clock of the zone may mean by that many minutes of the day: two where it is turned back."""
    return readings(datetime(day.year, day.month, day.day) + timedelta(minutes=minutes), zone)  # noqa: DTZ001 - a wall time
