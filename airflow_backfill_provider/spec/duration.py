"""How long something lasts, as a spec writes it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

_DURATION = re.compile(r"\A(\d+)\s*([smhd])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _duration(value: Any) -> Any:
    if isinstance(value, str) and (match := _DURATION.match(value.strip())):
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    if isinstance(value, int | float):
        raise ValueError(f"a duration needs a unit: write {value}s or {value}m")
    return value


def _write_duration(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("a duration is longer than nothing")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    AfterValidator(_positive),
    PlainSerializer(_write_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\s*([0-9]+\s*[smhd]|P\S+)\s*$", "examples": ["30m", "45d", "PT30M"]}
    ),
]
"""``30m``, ``45d``, or ISO 8601 (``PT30M``)."""
