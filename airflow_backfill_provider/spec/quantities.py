"""Durations and sizes as a person writes them: ``30m``, ``45d``, ``200 GiB``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

_DURATION = re.compile(r"\A(\d+)\s*([smhd])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SIZE = re.compile(r"\A\s*(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B\s*\Z")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def _duration(value: Any) -> Any:
    if isinstance(value, str) and (match := _DURATION.match(value.strip())):
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    if isinstance(value, int | float):
        raise ValueError(f"a duration needs a unit: write {value}s or {value}m")
    return value


def write_duration(value: timedelta) -> str:
    """The largest unit that says it in a whole number: ``45d``."""
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
    PlainSerializer(write_duration, return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\s*([0-9]+\s*[smhd]|P\S+)\s*$", "examples": ["30m", "45d", "PT30M"]}
    ),
]
"""``30m``, ``45d``, or ISO 8601 (``PT30M``)."""


def _size(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    if match is None:
        raise ValueError("not a size; write 200 GiB, 1.5 TB, or a number of bytes")
    unit = match[2] or ""
    base = 1024 if unit.endswith("i") else 1000
    return int(float(match[1]) * base ** _POWERS[unit.removesuffix("i").upper()])


def write_size(size: int) -> str:
    """The largest unit that leaves at least 1: ``1.5 GiB``."""
    shown = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if shown < 1024:
            return f"{shown:,.0f} B" if unit == "B" else f"{shown:,.1f} {unit}"
        shown /= 1024
    return f"{shown:,.1f} TiB"


Bytes = Annotated[
    int,
    BeforeValidator(_size),
    Field(ge=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kKMGT]i?)?B\s*$", "examples": ["200 GiB", "1.5TB"]},
            ]
        }
    ),
]
"""A number of bytes, at least 1."""
