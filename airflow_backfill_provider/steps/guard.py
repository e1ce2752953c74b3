"""Guard: a run of the scheduled pipeline holds the range that it writes, so that no backfill interleaves with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from airflow_backfill_provider.errors import RangeLocked, RequestError
from airflow_backfill_provider.ledger.records import LiveRun
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.windows import Grain, Span, Window, merge, parse_key, utc

ASK_EVERY = 1.0
"""Seconds between two attempts to get a range that someone else holds."""


def written_by_run(
    spec: BackfillSpec, start: datetime | None, end: datetime | None, partitions: Sequence[str] = ()
) -> tuple[Span, ...]:
    """What a run writes: the partitions it names or, without any, its data interval ``[start, end)``.

    :raises RequestError: there is neither, or a key does not fit the spec.
    """
    grain, zone = spec.target.grain, spec.target.timezone
    if partitions:
        return merge(parse_key(key, grain, zone) for key in partitions)
    if grain is Grain.LIST:
        raise RequestError(
            f"{spec.target.table} is partitioned by the values of {spec.target.partition_by}, which a data interval does "
            "not name. Give the guard partitions: the values that the run writes."
        )
    if start is None or end is None or start >= end:
        raise RequestError(
            f"The run's data interval is [{start}, {end}), which holds no instant, so what it writes of "
            f"{spec.target.table} is not known. Schedule the DAG with CronDataIntervalTimetable, or give the guard "
            "partitions: the keys that the run writes."
        )
    return (Window(utc(start), utc(end)),)


def hold(
    ledger: Ledger,
    run: LiveRun,
    target: str,
    spans: Sequence[Span],
    *,
    patience: timedelta,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Claim the spans for the run, asking again until ``patience`` is over.

    :raises RangeLocked: someone else still owns part of them; nothing is claimed.
    """
    ask_again(lambda: ledger.claim_live(run, target, spans), patience=patience, sleep=sleep, clock=clock)


def ask_again(
    claim: Callable[[], None],
    *,
    patience: timedelta,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Try to claim a range until ``patience`` is over.

    :raises RangeLocked: someone else still owns part of it; nothing is claimed.
    """
    deadline = clock() + patience.total_seconds()
    while True:
        try:
            return claim()
        except RangeLocked:
            left = deadline - clock()
            if left <= 0:
                raise
            sleep(min(ASK_EVERY, left))
