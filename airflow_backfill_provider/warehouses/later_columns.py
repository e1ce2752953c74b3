"""Columns that a table got after a plan was made: the way back leaves them, as long as the range has no value in them."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.warehouses.base import Column, Target


def later(target: Target, there: Sequence[Column]) -> tuple[Column, ...]:
    """Those of the table's columns that the target does not have, whatever their case, and that take a NULL."""
    known = {column.name.casefold() for column in target.columns}
    return tuple(
        column for column in there if column.name.casefold() not in known and column.nullable and not column.generated
    )


def later_column_filled(target: Target, filled: Sequence[tuple[str, int]]) -> PublishRefused:
    """The error that the way back would lose values of columns that the backup does not have.

    :param filled: each column, and in how many rows of the range it has a value.
    """
    named = " and ".join(f"{name} (in {rows} rows)" for name, rows in filled)
    return PublishRefused(
        f"{target.table} got columns after the plan was made, and the range has values in {named}, which the way back would "
        "lose, also a forced one. Nothing was written. Roll back what filled them first, or copy them aside and set them to NULL "
        "in the range."
    )
