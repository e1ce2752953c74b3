"""Which SQL file recomputes which stretch of history: eras follow one another and leave no partition between two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.windows import Grain, parse_start, partition_at


class Era(Frozen):
    """A stretch of history and the SQL that recomputes it."""

    until: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Where it ends, exclusive: a date, month, year or datetime in the target's zone, on a partition's boundary. Only
    the last era has none."""
    sql: Annotated[str, Field(min_length=1)]
    """As ``transform.sql``."""
    file: str | None = None
    """The path it was read from, for messages."""


def era_at(eras: Sequence[Era], moment: datetime, grain: Grain, zone: str) -> int:
    """The number of the era that an instant lies in; the eras are without :func:`faults`."""
    ends = (None if era.until is None else _instant(era.until, grain, zone) for era in eras)
    return next(number for number, end in enumerate(ends) if end is None or moment < end)


def faults(eras: Sequence[Era], grain: Grain, zone: str) -> Iterator[tuple[int, str]]:
    """What is wrong with the bounds: the number of the era and a sentence."""
    before: datetime | None = None
    for number, era in enumerate(eras):
        is_last = number == len(eras) - 1
        if era.until is None:
            if not is_last:
                yield number, "needs until, its end: only the last era has none"
            continue
        if is_last:
            yield number, "the last era has no end, so that every partition has a file; leave until out, or add an era"
            continue
        try:
            end = _instant(era.until, grain, zone)
            holder = partition_at(end, grain, zone)
        except RequestError as error:
            yield number, str(error)
            continue
        if holder.window.start != end:
            yield (
                number,
                f"cuts partition {holder.key} ({holder.span}) in two; an era ends where a {grain} in {zone} begins",
            )
        elif before is not None and end <= before:
            yield number, f"does not come after the end of the era before it, {eras[number - 1].until!r}"
        before = end


@lru_cache(maxsize=256)
def _instant(until: str, grain: Grain, zone: str) -> datetime:
    return parse_start(until, grain, zone)
