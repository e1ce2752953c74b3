"""From the text of a key to its partition."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.windows.calendar import Grain, partition_at
from airflow_backfill_provider.windows.spans import Partition, Value
from airflow_backfill_provider.windows.zones import readings

DATE = re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_HOUR = re.compile(r"\A([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2})([+-][0-9]{4}([0-9]{2})?)?\Z")
_LOOKS = {
    Grain.DAY: DATE,
    Grain.WEEK: re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} \(W[0-9]{2}\)\Z"),
    Grain.MONTH: re.compile(r"\A[0-9]{4}-[0-9]{2}\Z"),
    Grain.YEAR: re.compile(r"\A[0-9]{4}\Z"),
}
_EXAMPLES = {
    Grain.HOUR: "2013-02-01T10",
    Grain.DAY: "2013-02-01",
    Grain.WEEK: "2013-01-28 (W05), or 2013-01-28",
    Grain.MONTH: "2013-02",
    Grain.YEAR: "2013",
}
# Values end up inside quotes in a user's SQL template, so nothing that could end the quotes may stand in one.
_LIST_KEY = re.compile(r"\A[\w.:/@+-]([\w .:/@+-]{0,62}[\w.:/@+-])?\Z")


def is_key(text: str, grain: Grain) -> bool:
    """Whether the text is written as a key of the grain, other than an hour's."""
    return grain in _LOOKS and _LOOKS[grain].match(text) is not None


def parse_key(text: str, grain: Grain, zone: str = "UTC") -> Partition:
    """The partition with the key ``text``; a week, month or year also by the ISO date of its first day.

    :raises RequestError: when no partition of the grain has that key.
    """
    if grain is Grain.LIST:
        return list_partition(text)
    if grain is Grain.HOUR:
        return _hour(text, zone)
    if not is_key(text, grain) and not DATE.match(text):
        raise RequestError(f"{text!r} is not a {grain} partition key; a key looks like {_EXAMPLES[grain]}.")
    partition = partition_at(parse_date(_first_day(text)), grain, zone)
    if partition.key != text and not (DATE.match(text) and _first_day(partition.key) == text):
        raise RequestError(f"{text!r} is not a {grain} partition key; it lies in {partition.key}: give that.")
    return partition


def list_partition(text: str) -> Partition:
    """The partition of one value: letters, digits, spaces and ``_ . : / @ + -``, at most 64.

    :raises RequestError: other characters stand in it, which a SQL template could not hold safely.
    """
    if not _LIST_KEY.match(text):
        raise RequestError(
            f"{text!r} cannot be a list partition: a value has 1 to 64 letters, digits, spaces inside, or any of "
            "_ . : / @ + -, so that a SQL template can hold it between quotes."
        )
    return Partition(text, Value(text))


def parse_date(text: str) -> date:
    """The ISO date.

    :raises RequestError: there is no such day.
    """
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is not a date: {error}. Give one as YYYY-MM-DD.") from error


def _first_day(key: str) -> str:
    """The first day of the period, as an ISO date."""
    return (key + "-01-01")[:10]


def _hour(text: str, zone: str) -> Partition:
    match = _HOUR.match(text)
    if match is None or int(match[2]) > 23:
        raise RequestError(f"{text!r} is not an hour partition key; a key looks like {_EXAMPLES[Grain.HOUR]}.")
    day = parse_date(match[1])
    wall = datetime(day.year, day.month, day.day, int(match[2]))  # noqa: DTZ001 - a wall time
    label = text[:13]
    try:
        moments = [*readings(wall, zone), *readings(wall + timedelta(minutes=59, seconds=59), zone)]
    except OverflowError as error:
        raise RequestError(f"{text!r} has no start or no end that can be written; give another one.") from error
    found = {partition.key: partition for partition in (partition_at(moment, Grain.HOUR, zone) for moment in moments)}
    if text in found:
        return found[text]
    there = sorted(key for key in found if key.startswith(label))
    if not there:
        raise RequestError(f"There was no hour {text!r} in {zone}: the clocks went forward over it.")
    raise RequestError(f"{text!r} is not an hour partition key of {zone}; give {' or '.join(there)}.")
