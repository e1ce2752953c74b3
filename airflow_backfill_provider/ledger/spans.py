"""How a span of a target stands in a row: as a window's two bounds, or as a value; the other columns are NULL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_backfill_provider.windows import Span, Value, Window


def span_columns(span: Span) -> dict[str, Any]:
    """The values of the columns ``window_start``, ``window_end`` and ``value``."""
    match span:
        case Window(start, end):
            return {"window_start": start, "window_end": end, "value": None}
        case Value(text):
            return {"window_start": None, "window_end": None, "value": text}


def read_span(start: datetime | None, end: datetime | None, value: str | None) -> Span:
    """The span that :func:`span_columns` wrote."""
    if start is not None and end is not None:
        return Window(start, end)
    if value is None:
        raise ValueError("A row of the ledger has neither a window nor a value.")
    return Value(value)
