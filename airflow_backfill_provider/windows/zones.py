"""From a zone's wall clock to instants, through every change of the clocks.

A wall time may be there twice (clocks go back) or not at all (clocks go forward, or a day is left out).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from math import ceil

import pendulum

_TICK = timedelta(microseconds=1)


def require_zone(name: str) -> str:
    """The name itself, when it is one of the IANA time zone database.

    :raises ValueError: it is not; the message suggests one that is.
    """
    known = known_zones()
    if name in known:
        return name
    by_lower = {zone.lower(): zone for zone in sorted(known)}
    by_city = {zone.rpartition("/")[2].lower(): zone for zone in sorted(known) if "/" in zone}
    wanted = name.strip().replace(" ", "_").lower()
    near = [by_lower[wanted]] if wanted in by_lower else [by_city[wanted]] if wanted in by_city else []
    near = near or [by_lower[zone] for zone in get_close_matches(wanted, by_lower, n=1, cutoff=0.6)]
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name!r} is no IANA time zone such as 'UTC' or 'America/New_York'{hint}")


@lru_cache(maxsize=1)
def known_zones() -> frozenset[str]:
    """Every name of the database that means the same zone on every host."""
    return frozenset(pendulum.timezones()) - {"localtime", "Factory"}


@lru_cache(maxsize=64)
def zone_info(name: str) -> tzinfo:
    """The zone's rules."""
    return pendulum.timezone(name)


def utc(moment: datetime) -> datetime:
    """The same instant as a plain datetime in UTC: pendulum's is written in another way."""
    instant = moment.astimezone(UTC)
    return datetime.combine(instant.date(), instant.time(), UTC)


def local(moment: datetime, zone: str) -> datetime:
    """What the zone's wall clock shows at the instant, as an aware datetime; ``fold`` is 1 the second time."""
    return moment.astimezone(zone_info(zone))


def readings(wall: datetime, zone: str) -> tuple[datetime, datetime]:
    """The instants that a naive wall time may mean: equal for most; the later first when it does not exist."""
    aware = wall.replace(tzinfo=zone_info(zone))
    return utc(aware.replace(fold=0)), utc(aware.replace(fold=1))


@lru_cache(maxsize=8192)
def day_start(day: date, zone: str) -> datetime:
    """The instant at which the zone's calendar turns to the day, for the last time if it turned back from it.

    The next day has the same one when the day was left out.
    """
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a wall time
    first, second = readings(midnight, zone)
    if first < second:
        turned_back = local(second - _TICK, zone).date() < day
        return second if turned_back else first
    if second < first:
        return transition(second, first, zone)
    return first


def transition(low: datetime, high: datetime, zone: str) -> datetime:
    """The first whole second after ``low`` at which the zone's offset is another one; by ``high`` it is."""
    rules = zone_info(zone)
    offset = low.astimezone(rules).utcoffset()
    before, after = 0, ceil((high - low).total_seconds())
    while after - before > 1:
        middle = (before + after) // 2
        if (low + timedelta(seconds=middle)).astimezone(rules).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return low + timedelta(seconds=after)
