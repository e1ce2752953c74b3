"""Which PostgreSQL type fits which, and what kind of partition column each makes. Types are spelled as format_type does."""

from __future__ import annotations

import re

from airflow_backfill_provider.warehouses.clocks import ColumnKind

UNKNOWN = "unknown"
"""The type of a bare NULL, which fits every column."""
_ALIASES = {
    "bigint": "bigint",
    "int8": "bigint",
    "int": "integer",
    "int4": "integer",
    "int2": "smallint",
    "decimal": "numeric",
    "double": "double precision",
    "float8": "double precision",
    "float4": "real",
    "bool": "boolean",
    "varchar": "character varying",
    "char": "character",
    "bpchar": "character",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
_TYPE = re.compile(r"\A([a-z_0-9 ]+?)(?:\((\d+)(?:,\s*(-?\d+))?\))?( without time zone| with time zone)?\Z")
_INTEGER_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_TEXT = ("text", "character varying")


def _parts(spelled: str) -> tuple[str, int | None, int | None]:
    """The type's full name, and the numbers in its brackets."""
    match = _TYPE.match(spelled.strip().lower())
    if match is None:
        return spelled, None, None
    name = f"{match[1]}{match[4] or ''}"
    size, scale = (None if number is None else int(number) for number in (match[2], match[3]))
    return _ALIASES.get(name, name), size, scale


def column_kind(spelled: str) -> ColumnKind | None:
    """What kind of partition column the type makes; None when it makes none."""
    match _parts(spelled)[0]:
        case "date":
            return ColumnKind.DATE
        case "timestamp without time zone":
            return ColumnKind.TIMESTAMP
        case "timestamp with time zone":
            return ColumnKind.TIMESTAMPTZ
        case name if name in _INTEGER_BITS:
            return ColumnKind.INTEGER
        case name if name in _TEXT:
            return ColumnKind.TEXT
    return None


PARTITION_TYPES = "date, timestamp, timestamptz, smallint, integer, bigint, text, character varying"


def is_quickly_ordered(spelled: str) -> bool:
    """Whether values of the type are held against a bound almost for nothing; text is not, in most locales."""
    return column_kind(spelled) not in (None, ColumnKind.TEXT) or _parts(spelled)[0] == "numeric"


def is_text(spelled: str | None) -> bool:
    """Whether PostgreSQL compares the type with text, and with nothing else."""
    return spelled is not None and _parts(spelled)[0] in (*_TEXT, "character")


def lossless(source: str, target: str) -> bool:
    """Whether a value of the source type lands in the target type unchanged, or makes PostgreSQL raise.

    Integers and the digits before the point may narrow, because PostgreSQL raises when one does not fit; digits after
    the point and blanks at the end of text may not go, because they are dropped silently.
    """
    if source in (target, UNKNOWN):
        return True
    (kind, size, scale), (wanted, room, digits) = _parts(source), _parts(target)
    if kind in _INTEGER_BITS:
        return wanted in _INTEGER_BITS or _holds_integer(wanted, digits, _INTEGER_BITS[kind])
    match kind, wanted:
        case "numeric", "numeric":
            return room is None or (size is not None and (scale or 0) <= (digits or 0))
        case "numeric", _:
            return wanted in _INTEGER_BITS and size is not None and (scale or 0) <= 0
        case (("text" | "character varying"), ("text" | "character varying")):
            return room is None or (size is not None and size <= room)
        case "date", "timestamp without time zone":
            return True
        case "timestamp without time zone", "timestamp without time zone":
            return room is None or (size is not None and size <= room)
        case "timestamp with time zone", "timestamp with time zone":
            return room is None or (size is not None and size <= room)
        case "real", "double precision":
            return True
    return (kind, size, scale) == (wanted, room, digits)


def _holds_integer(target: str, digits: int | None, bits: int) -> bool:
    match target:
        case "double precision":
            return bits <= 32
        case "real":
            return bits <= 16
        case "numeric":
            return (digits or 0) >= 0
    return False
