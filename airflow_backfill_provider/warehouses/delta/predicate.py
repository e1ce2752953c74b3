"""The range as delta-rs understands it: the same rows that DuckDB selects, with literals that it casts to the column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from airflow_backfill_provider.warehouses.clocks import Clock, Shown
from airflow_backfill_provider.warehouses.sql import literal, quote, text_literal
from airflow_backfill_provider.windows import Span, Value, Window


def within(column: str, spans: Sequence[Span], clock: Clock) -> str:
    """Holds for exactly the rows of the spans; never empty.

    Dates and timestamps are texts in ISO form: typed ones are compared in another unit than the column's, and fail.

    :raises ValueError: when no span is given: a predicate that bounds nothing must not exist.
    """
    if not spans:
        raise ValueError("A range predicate needs at least one window or value.")
    name = quote(column)
    parts = [
        f"({name} >= {_literal(clock.show(span.start))} AND {name} < {_literal(clock.show(span.end))})"
        for span in spans
        if isinstance(span, Window)
    ]
    if values := [literal(clock.read(span)) for span in spans if isinstance(span, Value)]:
        parts.append(f"{name} IN ({', '.join(values)})")
    return " OR ".join(parts)


def _literal(value: Shown) -> str:
    return text_literal(value.isoformat()) if isinstance(value, date) else literal(value)
