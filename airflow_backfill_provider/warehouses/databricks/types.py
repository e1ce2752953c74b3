"""Which type of Databricks SQL fits which, which can be hashed, and what kind of partition column each makes."""

from __future__ import annotations

import re

from airflow_backfill_provider.warehouses.clocks import ColumnKind

_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_DATES = ("DATE", "TIMESTAMP_NTZ", "TIMESTAMP")
"""A date becomes a timestamp unchanged in a session whose zone is UTC, as ours is."""
_ALIASES = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "VARCHAR": "STRING",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
_DECIMAL = re.compile(r"\ADECIMAL\((\d+),\s*(\d+)\)\Z")
_TEXT = re.compile(r"\A(STRING|VARCHAR|CHAR)\b")
_SIMPLE = re.compile(r"\A[A-Za-z_]+(\([\d, ]+\))?\Z")
# By a collation, different texts may hash equally.
_NOT_HASHED = re.compile(r"(?i)\b(map|variant|object|geography|geometry|interval|collate)\b")
_DOUBLE_HOLDS_BITS, _FLOAT_HOLDS_BITS = 32, 16

_KINDS = {
    "DATE": ColumnKind.DATE,
    "TIMESTAMP_NTZ": ColumnKind.TIMESTAMP,
    "TIMESTAMP": ColumnKind.TIMESTAMPTZ,
    **dict.fromkeys(_INTEGER_BITS, ColumnKind.INTEGER),
}
PARTITION_TYPES = ", ".join([*_KINDS, "STRING"])
"""The types a partition column may have, for a message."""


def canonical(spelled: str) -> str:
    """The type as it is written here: in capitals, unless names of fields are part of it."""
    if not _SIMPLE.match(spelled):
        return spelled
    upper = spelled.upper().replace(" ", "")
    return _ALIASES.get(upper, upper)


def column_kind(column_type: str) -> ColumnKind | None:
    """What kind of partition column a type makes; None when it makes none."""
    return ColumnKind.TEXT if is_text(column_type) else _KINDS.get(column_type)


def is_text(column_type: str | None) -> bool:
    """Whether values of the type are text."""
    return column_type is not None and _TEXT.match(column_type) is not None


def is_hashable(column_type: str) -> bool:
    """Whether ``xxhash64`` takes the type, whatever is nested in it."""
    return _NOT_HASHED.search(column_type) is None


def lossless(source: str, target: str) -> bool:
    """Whether a value of the source type lands in the target type unchanged, or makes the engine raise.

    Integers and decimals may narrow, because an INSERT fails when one does not fit; digits after the point may not go,
    because they are rounded silently.
    """
    source, target = canonical(source), canonical(target)
    if source in (target, "VOID") or (is_text(source) and is_text(target)):
        return True
    if source in _INTEGER_BITS:
        return target in _INTEGER_BITS or _holds_integer(target, _INTEGER_BITS[source])
    if match := _DECIMAL.match(source):
        other = _DECIMAL.match(target)
        if other is None:
            return target in _INTEGER_BITS and int(match[2]) == 0
        return int(other[2]) >= int(match[2])
    if source == "DATE":
        return target in _DATES
    return (source, target) == ("FLOAT", "DOUBLE")


def _holds_integer(target: str, bits: int) -> bool:
    match target:
        case "DOUBLE":
            return bits <= _DOUBLE_HOLDS_BITS
        case "FLOAT":
            return bits <= _FLOAT_HOLDS_BITS
        case _:
            return _DECIMAL.match(target) is not None
