"""From a request to the partitions it means: resolved once, when the plan is made, and never again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.windows import (
    Grain,
    Partition,
    Window,
    covered,
    parse_end,
    parse_key,
    parse_start,
    partition_at,
    split,
    widen,
)


class Skipped(Frozen):
    """A partition of the asked range that is left out, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class Resolution:
    """What a request came to at one moment."""

    partitions: tuple[Partition, ...]
    skipped: tuple[Skipped, ...]
    span: Window | None
    """The range as it was resolved; None when the request lists its partitions."""
    asked: Window | None = None
    """The range that was asked for, where ``expand`` made a wider one of it."""
    notes: tuple[str, ...] = ()
    """Sentences about what was resolved otherwise than written."""


def resolve(spec: BackfillSpec, request: Request, now: datetime) -> Resolution:
    """The partitions the request means at ``now``, and those it leaves out with the reason.

    :raises RequestError: a bound, key or exclusion does not fit.
    """
    grain, zone = spec.target.grain, spec.target.timezone
    span, narrower, notes = None, None, []
    if request.partitions:
        asked = tuple(sorted({parse_key(key, grain, zone) for key in request.partitions}))
    elif grain is Grain.LIST:
        raise RequestError(
            f"{spec.target.table} is partitioned by the values of {spec.target.partition_by}, which no date bounds. Give "
            "partitions: the list of values to rebuild."
        )
    else:
        start, end = _range(request, grain, zone, now)
        if request.expand and (wider := widen(start, end, grain, zone)) != (start, end):
            notes.append(f"The range was expanded to whole {grain}s: from {Window(start, end)} to {Window(*wider)}.")
            narrower = Window(start, end)
            start, end = wider
        asked = split(start, end, grain, zone)
        span = Window(start, end)
        if request.is_relative:
            notes.append(
                f"{request.start_date} to {request.end_date or 'the last that is over'} was resolved to {asked[0].key} … "
                f"{asked[-1].key} at {now:%Y-%m-%dT%H:%M:%SZ} in {zone}, and stays that."
            )
    excluded = {partition.key for text in request.exclude for partition in _excluded(text, asked, grain, zone)}
    kept: list[Partition] = []
    skipped: list[Skipped] = []
    for partition in asked:
        if partition.key in excluded:
            skipped.append(Skipped(key=partition.key, reason="excluded by the request"))
        elif not partition.is_over(now) and not request.include_live:
            if request.partitions:
                raise RequestError(
                    f"Partition {partition.key} is not over until {partition.window.end:%Y-%m-%dT%H:%M:%SZ}. "
                    "Leave it out, or set include_live: true."
                )
            skipped.append(Skipped(key=partition.key, reason="not over yet; include_live: true would take it in"))
        else:
            kept.append(partition)
    return Resolution(tuple(kept), tuple(skipped), span, narrower, tuple(notes))


def _range(request: Request, grain: Grain, zone: str, now: datetime) -> tuple[datetime, datetime]:
    start = parse_start(str(request.start_date), grain, zone, now)
    if request.end_date is not None:
        return start, parse_end(request.end_date, grain, zone, now)
    current = partition_at(now, grain, zone).window
    end = current.end if request.include_live else current.start
    if start >= end:
        raise RequestError(
            f"No {grain} from {request.start_date} on is over at {now:%Y-%m-%dT%H:%M:%SZ} in {zone}. Give an earlier "
            "start_date, or set include_live: true."
        )
    return start, end


def _excluded(text: str, asked: Sequence[Partition], grain: Grain, zone: str) -> list[Partition]:
    found = covered(text, asked, grain, zone)
    if not found:
        raise RequestError(f"exclude names {text}, which the range does not hold.")
    return found
