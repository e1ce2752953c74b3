"""Partitions: half-open windows of time, or values of a list, with a stable text key. Pure; imports only errors.

Every period is one of the zone's calendar, never a number of hours.
"""

from __future__ import annotations

from airflow_backfill_provider.windows.bounds import covered, parse_end, parse_start, widen
from airflow_backfill_provider.windows.calendar import Grain, partition_at, periods, split
from airflow_backfill_provider.windows.keys import list_partition, parse_key
from airflow_backfill_provider.windows.spans import Partition, Span, Value, Window, describe, merge, side_by_side
from airflow_backfill_provider.windows.zones import day_start, local, readings, require_zone, utc

__all__ = [
    "Grain",
    "Partition",
    "Span",
    "Value",
    "Window",
    "covered",
    "day_start",
    "describe",
    "list_partition",
    "local",
    "merge",
    "parse_end",
    "parse_key",
    "parse_start",
    "partition_at",
    "periods",
    "readings",
    "require_zone",
    "side_by_side",
    "split",
    "utc",
    "widen",
]
