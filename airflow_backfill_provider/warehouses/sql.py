"""Quoted names, typed literals and range predicates: the only way a name or a value gets into SQL text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from airflow_backfill_provider.spec.metric import Scalar
from airflow_backfill_provider.warehouses.clocks import Clock, Shown
from airflow_backfill_provider.windows import Span, Value, Window


def quote(identifier: str) -> str:
    """The identifier in double quotes, whatever it holds.

    :raises ValueError: when it is empty or holds a NUL character, which no engine can name.
    """
    if not identifier or "\x00" in identifier:
        raise ValueError(f"{identifier!r} cannot be a name: it is empty or holds a NUL character.")
    return '"' + identifier.replace('"', '""') + '"'


def quote_all(identifiers: Sequence[str]) -> str:
    """The identifiers quoted and separated by commas."""
    return ", ".join(quote(identifier) for identifier in identifiers)


def quote_path(*parts: str) -> str:
    """``"schema"."name"`` from its parts."""
    return ".".join(quote(part) for part in parts)


def text_literal(value: str) -> str:
    """A string literal of standard SQL: only the quote is special.

    :raises ValueError: when the value holds a NUL character.
    """
    if "\x00" in value:
        raise ValueError(f"{value!r} holds a NUL character, which SQL text cannot.")
    return "'" + value.replace("'", "''") + "'"


def literal(value: Scalar) -> str:
    """The value as a typed literal; text stays text, numbers keep every digit."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return f"CAST({text_literal(repr(value))} AS DOUBLE PRECISION)"
        case Decimal() if value.is_finite():
            return format(value, "f")
        case float() | Decimal():
            return f"CAST({text_literal(str(float(value)))} AS DOUBLE PRECISION)"
        case str():
            return text_literal(value)


def shown_literal(value: Shown) -> str:
    """A value of a partition column as a literal of its own type; one with a zone is written with its offset."""
    match value:
        case datetime() if value.tzinfo is not None:
            return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return literal(value)


def instant(moment: datetime, clock: Clock) -> str:
    """A UTC instant as a literal that the partition column's own type compares with.

    :raises SpecError: the column cannot tell the instant from the one before it.
    """
    return shown_literal(clock.show(moment))


def within(column: str, spans: Sequence[Span], clock: Clock) -> str:
    """The predicate that holds for exactly the rows of the spans; ``column`` is SQL text. Never empty.

    :raises ValueError: when no span is given: a predicate that bounds nothing must not exist.
    """
    if not spans:
        raise ValueError("A range predicate needs at least one window or value.")
    parts = [
        f"({column} >= {instant(span.start, clock)} AND {column} < {instant(span.end, clock)})"
        for span in spans
        if isinstance(span, Window)
    ]
    if values := [literal(clock.read(span)) for span in spans if isinstance(span, Value)]:
        parts.append(f"{column} IN ({', '.join(values)})")
    return f"({' OR '.join(parts)})"
