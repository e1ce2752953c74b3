"""Which DuckDB type fits which, and what kind of partition column each makes."""

from __future__ import annotations

import re

from airflow_backfill_provider.warehouses.clocks import ColumnKind

_INTEGER_BITS = {
    "TINYINT": 8,
    "UTINYINT": 8,
    "SMALLINT": 16,
    "USMALLINT": 16,
    "INTEGER": 32,
    "UINTEGER": 32,
    "BIGINT": 64,
    "UBIGINT": 64,
    "HUGEINT": 128,
    "UHUGEINT": 128,
}
_TIMESTAMPS = ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")
"""From coarse to fine: each fits in the ones after it."""
_DECIMAL = re.compile(r"\ADECIMAL\((\d+),\s*(\d+)\)\Z")
_NULL = ("NULL", '"NULL"', "SQLNULL")

NANOSECONDS = "TIMESTAMP_NS"

COLUMN_KINDS = {
    "DATE": ColumnKind.DATE,
    "TIMESTAMP": ColumnKind.TIMESTAMP,
    "TIMESTAMP_S": ColumnKind.TIMESTAMP,
    "TIMESTAMP_MS": ColumnKind.TIMESTAMP,
    NANOSECONDS: ColumnKind.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": ColumnKind.TIMESTAMPTZ,
    **dict.fromkeys(_INTEGER_BITS, ColumnKind.INTEGER),
    "VARCHAR": ColumnKind.TEXT,
}
"""The types a partition column may have."""


def lossless(source: str, target: str) -> bool:
    """Whether a value of the source type lands in the target type unchanged, or makes the engine raise.

    Integers and decimals may narrow, because DuckDB raises when one does not fit; digits after the point may not
    go, because it rounds them silently.
    """
    if source == target or source in _NULL:
        return True
    if source in _INTEGER_BITS:
        return target in _INTEGER_BITS or _holds_integer(target, _INTEGER_BITS[source])
    if match := _DECIMAL.match(source):
        return _holds_decimal(target, scale=int(match[2]))
    if source in _TIMESTAMPS and target in _TIMESTAMPS:
        return _TIMESTAMPS.index(source) < _TIMESTAMPS.index(target)
    return (source, target) == ("FLOAT", "DOUBLE")


def _holds_integer(target: str, bits: int) -> bool:
    match target:
        case "DOUBLE":
            return bits <= 32
        case "FLOAT":
            return bits <= 16
        case _:
            return _DECIMAL.match(target) is not None


def _holds_decimal(target: str, *, scale: int) -> bool:
    if match := _DECIMAL.match(target):
        return int(match[2]) >= scale
    return target in _INTEGER_BITS and scale == 0
