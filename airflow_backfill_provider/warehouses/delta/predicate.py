"""The range as delta-rs understands it: the same rows that DuckDB selects, with literals that it casts to the column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from airflow_backfill_provider.warehouses.clocks import Clock, Shown
from airflow_backfill_provider.warehouses.sql import literal, quote, text_literal
from airflow_backfill_provider.windows import Partition, Value, Window, merge


def within(column: str, partitions: Sequence[Partition], clock: Clock) -> str:
    """Holds for exactly the rows of the partitions; never empty.

    Dates and timestamps are texts in ISO form: typed ones are compared in another unit than the column's, and fail.

    :raises ValueError: when there is no partition: a predicate that bounds nothing must not exist.
    """
    if not partitions:
        raise ValueError("A range predicate needs at least one partition.")
    name, spans = quote(column), merge(partitions)
    values = [literal(clock.read(span)) for span in spans if isinstance(span, Value)]
    windows = [span for span in spans if isinstance(span, Window)]
    if days := clock.days_apart(partitions):
        # With 500 of them, delta-rs takes 20 times as long over their bounds.
        return f"{name} IN ({', '.join(map(_literal, days))})"
    parts = [
        f"({name} >= {_literal(clock.show(span.start))} AND {name} < {_literal(clock.show(span.end))})"
        for span in windows
    ]
    if values:
        parts.append(f"{name} IN ({', '.join(values)})")
    return _any_of(parts)


def _any_of(parts: Sequence[str]) -> str:
    """Either half, and so on: delta-rs takes the square of a chain's length, and no recursion gets deep in this."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_any_of(parts[:middle])} OR {_any_of(parts[middle:])})"


def _literal(value: Shown) -> str:
    return text_literal(value.isoformat()) if isinstance(value, date) else literal(value)
