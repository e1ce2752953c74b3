"""Columns that a publish adds: as long as the table lacks one, it is NULL in every published row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_backfill_provider.warehouses.base import Column, Target
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import Spelling, text_literal


def absent(target: Target, there: Collection[str]) -> tuple[Column, ...]:
    """The columns to add that are not among those of the table, whatever their case."""
    names = {name.casefold() for name in there}
    return tuple(column for column in target.added if column.name.casefold() not in names)


def listed(target: Target, lacking: Collection[Column], spelling: Spelling) -> list[str]:
    """Every column that can be written, as the SELECT of a table gives it that lacks some."""
    types = {column.name: column.type for column in lacking}
    quote = spelling.quote
    return [
        f"CAST(NULL AS {types[name]}) AS {quote(name)}" if name in types else quote(name)
        for name in target.column_names
    ]


def with_absent(name: str, lacking: Sequence[Column], spelling: Spelling) -> str:
    """The table, as SQL to read from, as if it had the columns that it lacks."""
    if not lacking:
        return name
    return f"(SELECT own.*, {', '.join(nothing(lacking, spelling))} FROM {name} AS own)"


def nothing(columns: Sequence[Column], spelling: Spelling) -> list[str]:
    """NULL as each of the columns, as SQL."""
    return [f"CAST(NULL AS {column.type}) AS {spelling.quote(column.name)}" for column in columns]


def add_columns(run: Run, place: Place, lacking: Sequence[Column]) -> None:
    """Add the columns, each with its comment, for the transaction that publishes."""
    for column in lacking:
        name = place.spelling.quote(column.name)
        run(f"ALTER TABLE {place.sql} ADD COLUMN {name} {column.type}")
        run(f"COMMENT ON COLUMN {place.sql}.{name} IS {text_literal(column.added)}")
