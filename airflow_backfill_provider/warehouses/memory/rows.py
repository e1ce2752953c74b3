"""Rows of the in-memory warehouse: how they land, which partition holds them, what their fingerprint is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Fingerprint
from airflow_backfill_provider.warehouses.clocks import Clock
from airflow_backfill_provider.warehouses.memory.select import Row, Table
from airflow_backfill_provider.warehouses.memory.values import land
from airflow_backfill_provider.windows import Partition

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


def with_nothing(table: Table, columns: Sequence[Column]) -> Table:
    """The table with these columns after its own, NULL in every row."""
    rows = tuple((*row, *[None] * len(columns)) for row in table.rows) if columns else table.rows
    return replace(table, columns=(*table.columns, *columns), rows=rows)


def cut(table: Table, partition_by: str, clock: Clock, partitions: Sequence[Partition]) -> dict[str, Table]:
    """The rows of each partition, by key and in the given order.

    :raises WarehouseError: the partition column holds a value that no partition has, such as 20240231.
    """
    values = in_order(table, (partition_by,))
    tables = {}
    for partition in partitions:
        holds, only = clock.holds(partition.span), clock.only_value(partition)
        inside = [(row, value) for row, (value,) in zip(table.rows, values, strict=True) if holds(value)]
        if strange := [value for _, value in inside if only not in (None, value)]:
            raise WarehouseError(
                f"{partition_by} holds {strange[0]!r}, which is not written as column_format says, so it belongs to no "
                "partition. Mend these rows, or correct column_format in the spec."
            )
        tables[partition.key] = Table(table.columns, tuple(row for row, _ in inside))
    return tables


def fingerprint(rows: Sequence[Row]) -> Fingerprint:
    """Equal exactly when the rows are equal as a bag."""
    # 0.0 and -0.0 are equal, and are written differently.
    written = (repr(tuple(value + 0.0 if isinstance(value, float) else value for value in row)) for row in rows)
    digest = hashlib.sha256("\n".join(sorted(written)).encode()).hexdigest()
    return Fingerprint(len(rows), digest, METHOD)
