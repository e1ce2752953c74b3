"""Staged keys that the published table has outside the range too, where they would not be unique."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.relational.dialect import Dialect
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.statements import Piece, key_span, keys_outside


def find_keys_outside(
    dialect: Dialect, run: Run, target: Target, pieces: Sequence[Piece], published: Piece, *, limit: int | None = None
) -> list[tuple[Any, ...]]:
    """Each distinct staged key that the published table also has outside the range; at most so many, when limited.

    The table is read as a whole. Where that helps, only rows between the least and the greatest staged key are matched:
    numbered rows lie in the order of their numbers, so that hardly any row outside the range is among them.
    """
    within = []
    types = {column.name: column.type for column in target.columns}
    spanned = next((name for name in target.key if dialect.is_worth_a_span(types[name])), None)
    if spanned is not None:
        spelling = dialect.spelling
        ((low, high),) = run(key_span(dialect, pieces, target.key, spanned))
        if low is None:
            return []
        low, high = (f"CAST({spelling.text_literal(bound)} AS {types[spanned]})" for bound in (low, high))
        within = [f"r.{spelling.quote(spanned)} BETWEEN {low} AND {high}"]
    return run(
        keys_outside(dialect, pieces, published, target.key, within) + ("" if limit is None else f" LIMIT {limit}")
    )
