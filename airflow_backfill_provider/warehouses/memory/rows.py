"""Rows of the in-memory warehouse: how they land, which partition holds them, what their fingerprint is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Fingerprint
from airflow_backfill_provider.warehouses.memory.select import Row, Table
from airflow_backfill_provider.warehouses.memory.values import Value, land
from airflow_backfill_provider.windows import Partition, Window

METHOD = "memory 1"


def land_row(columns: Sequence[Column], values: Sequence[Any]) -> Row:
    """The row as the columns keep it.

    :raises ValueError: naming the column whose value does not fit.
    """
    landed = []
    for column, value in zip(columns, values, strict=True):
        try:
            landed.append(land(value, column.type))
        except ValueError as error:
            raise ValueError(f"column {column.name!r}: {error}") from error
        if landed[-1] is None and not column.nullable:
            raise ValueError(f"column {column.name!r} takes no NULL")
    return tuple(landed)


def in_order(table: Table, names: Sequence[str]) -> list[Row]:
    """The named columns of every row."""
    positions = {column.name: index for index, column in enumerate(table.columns)}
    if missing := [name for name in names if name not in positions]:
        raise WarehouseError(f"There is no column {', '.join(missing)}; there are {', '.join(positions)}.")
    return [tuple(row[positions[name]] for name in names) for row in table.rows]


def cut(table: Table, partition_by: str, partitions: Sequence[Partition]) -> dict[str, Table]:
    """The rows of each partition, by key and in the given order."""
    moments = [moment for (moment,) in in_order(table, (partition_by,))]
    return {
        partition.key: Table(
            table.columns,
            tuple(row for row, moment in zip(table.rows, moments, strict=True) if holds(partition.window, moment)),
        )
        for partition in partitions
    }


def instant(value: Value) -> datetime:
    """The moment that a value of the partition column tells; without a zone it means UTC."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise WarehouseError(f"{value!r} is neither a date nor a timestamp, so it belongs to no partition.")


def holds(window: Window, value: Value) -> bool:
    """Whether the window holds the value; none holds NULL."""
    return value is not None and window.start <= instant(value) < window.end


def fingerprint(rows: Sequence[Row]) -> Fingerprint:
    """Equal exactly when the rows are equal as a bag."""
    digest = hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
    return Fingerprint(len(rows), digest, METHOD)
