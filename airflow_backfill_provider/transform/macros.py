"""The part of Airflow's ``macros`` and filters that needs no Airflow and gives the same answer every time."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum


def ds_add(ds: str, days: int) -> str:
    """The date ``days`` after the ISO date ``ds``."""
    return (datetime.strptime(str(ds), "%Y-%m-%d") + timedelta(days=days)).strftime("%Y-%m-%d")  # noqa: DTZ007


def ds_format(ds: str, input_format: str, output_format: str) -> str:
    """The date ``ds``, read with one strftime pattern and written with another."""
    return datetime.strptime(str(ds), input_format).strftime(output_format)  # noqa: DTZ007


def datetime_diff_for_humans(dt: Any, since: Any) -> str:
    """``2 days before``; unlike Airflow's, always against ``since``, never against the clock."""
    return str(pendulum.instance(dt).diff_for_humans(pendulum.instance(since)))


MACROS = SimpleNamespace(
    datetime=datetime,
    timedelta=timedelta,
    json=SimpleNamespace(dumps=json.dumps, loads=json.loads),
    ds_add=ds_add,
    ds_format=ds_format,
    datetime_diff_for_humans=datetime_diff_for_humans,
)
"""No ``random``, ``uuid`` or ``time``: a re-run must render the same SQL."""


def ds(value: date) -> str:
    """``2013-02-01``"""
    return value.strftime("%Y-%m-%d")


def ds_nodash(value: date) -> str:
    """``20130201``"""
    return value.strftime("%Y%m%d")


def ts(value: date | time) -> str:
    """``2013-02-01T00:00:00+00:00``"""
    return value.isoformat()


def ts_nodash(value: date | time) -> str:
    """``20130201T000000``"""
    return value.strftime("%Y%m%dT%H%M%S")


def ts_nodash_with_tz(value: date | time) -> str:
    """``20130201T000000+0000``"""
    return value.isoformat().replace("-", "").replace(":", "")


FILTERS = {"ds": ds, "ds_nodash": ds_nodash, "ts": ts, "ts_nodash": ts_nodash, "ts_nodash_with_tz": ts_nodash_with_tz}
