"""The longest run of late departures, by day and airport: a rule that is a loop, which SQL would have to be bent for.

The scheduled pipeline and the backfill call the same function.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

LATE = 15  # minutes


def rebuild(context: Any) -> list[dict[str, Any]]:
    """The rows of one partition; what ``backfills/delay_streaks.yaml`` names."""
    return streaks(context.connection, context.data_interval_start, context.data_interval_end)


def streaks(connection: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    """One row for each day and airport from ``start`` to before ``end``."""
    flights = connection.execute(
        "SELECT flight_date, origin, dep_delay FROM raw.flights WHERE flight_date >= ? AND flight_date < ? "
        "ORDER BY flight_date, origin, sched_dep_time, carrier, flight",
        [start.date(), end.date()],
    ).fetchall()
    return [
        {"flight_date": day, "origin": origin, "longest_streak": longest([delay for *_, delay in of_airport])}
        for (day, origin), of_airport in groupby(flights, key=lambda flight: flight[:2])
    ]


def longest(delays: list[int | None]) -> int:
    """How many departures in a row were late; one that was cancelled has no delay, and ends the row."""
    return max(len(list(run)) if late else 0 for late, run in groupby(delays, key=lambda delay: (delay or 0) > LATE))
