"""The numbers of a backfill, told through Airflow's own metrics (StatsD or OpenTelemetry, as the deployment has it)."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from airflow.sdk.observability import stats


class AirflowStats:
    """Tells every number with the tag ``backfill``, the name of the spec; partition keys would be too many for a tag."""

    def __init__(self, name: str) -> None:
        self._name = name

    def duration(self, name: str, seconds: float) -> None:
        """Tell one duration."""
        with suppress(Exception):  # a metric is never worth a backfill
            stats.timing(name, timedelta(seconds=seconds), tags={"backfill": self._name})

    def count(self, name: str, number: int = 1, *, outcome: str = "") -> None:
        """Add to a count."""
        tags = {"backfill": self._name} | ({"outcome": outcome} if outcome else {})
        with suppress(Exception):
            stats.incr(name, number, tags=tags)
