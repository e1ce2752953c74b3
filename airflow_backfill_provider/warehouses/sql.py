"""Quoted names, typed literals and range predicates: the only way a name or a value gets into SQL text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from airflow_backfill_provider.spec.metric import Scalar
from airflow_backfill_provider.warehouses.clocks import Clock, Shown
from airflow_backfill_provider.windows import Partition, Value, Window, merge


class Spelling:
    """How names and values are written in SQL; this one as the standard says."""

    def quote(self, identifier: str) -> str:
        """The identifier in double quotes, whatever it holds.

        :raises ValueError: when it is empty or holds a NUL character, which no engine can name.
        """
        return self._quoted(identifier, '"')

    def quote_all(self, identifiers: Sequence[str]) -> str:
        """The identifiers quoted and separated by commas."""
        return ", ".join(map(self.quote, identifiers))

    def quote_path(self, *parts: str) -> str:
        """``"schema"."name"`` from its parts."""
        return ".".join(map(self.quote, parts))

    def text_literal(self, value: str) -> str:
        """A string literal; only the quote is special.

        :raises ValueError: when the value holds a NUL character.
        """
        if "\x00" in value:
            raise ValueError(f"{value!r} holds a NUL character, which SQL text cannot.")
        return "'" + value.replace("'", "''") + "'"

    def literal(self, value: Scalar) -> str:
        """The value as a typed literal; text stays text, numbers keep every digit."""
        match value:
            case None:
                return "NULL"
            case bool():
                return "TRUE" if value else "FALSE"
            case int():
                return str(value)
            case float() if math.isfinite(value):
                return self._double(repr(value))
            case Decimal() if value.is_finite():
                return format(value, "f")
            case float() | Decimal():
                return self._double(str(float(value)))
            case str():
                return self.text_literal(value)

    def shown_literal(self, value: Shown) -> str:
        """A value of a partition column as a literal of its own type; one with a zone is written with its offset."""
        match value:
            case datetime() if value.tzinfo is not None:
                return f"{self._instants} '{value.isoformat(sep=' ')}'"
            case datetime():
                return f"{self._wall_clocks} '{value.isoformat(sep=' ')}'"
            case date():
                return f"DATE '{value.isoformat()}'"
            case _:
                return self.literal(value)

    def instant(self, moment: datetime, clock: Clock) -> str:
        """A UTC instant as a literal that the partition column's own type compares with.

        :raises SpecError: the column cannot tell the instant from the one before it.
        """
        return self.shown_literal(clock.show(moment))

    def within(self, column: str, partitions: Sequence[Partition], clock: Clock) -> str:
        """The predicate that holds for exactly the rows of the partitions; ``column`` is SQL text. Never empty.

        :raises ValueError: when there is no partition: a predicate that bounds nothing must not exist.
        """
        if not partitions:
            raise ValueError("A range predicate needs at least one window or value.")
        if days := [self.shown_literal(day) for day in clock.days_apart(partitions)]:
            # The bounds say nothing new, but by them an engine knows what it need not read.
            return f"({column} >= {days[0]} AND {column} <= {days[-1]} AND {column} IN ({', '.join(days)}))"
        spans = merge(partitions)
        parts = [
            f"({column} >= {self.instant(span.start, clock)} AND {column} < {self.instant(span.end, clock)})"
            for span in spans
            if isinstance(span, Window)
        ]
        if values := [self.literal(clock.read(span)) for span in spans if isinstance(span, Value)]:
            parts.append(f"{column} IN ({', '.join(values)})")
        return f"({' OR '.join(parts)})"

    _instants, _wall_clocks = "TIMESTAMPTZ", "TIMESTAMP"
    """The types of timestamps with and without a zone."""

    def _quoted(self, identifier: str, mark: str) -> str:
        if not identifier or "\x00" in identifier:
            raise ValueError(f"{identifier!r} cannot be a name: it is empty or holds a NUL character.")
        return mark + identifier.replace(mark, mark * 2) + mark

    def _double(self, digits: str) -> str:
        return f"CAST({self.text_literal(digits)} AS DOUBLE PRECISION)"


STANDARD = Spelling()
"""The spelling of every engine that has none of its own."""
quote, quote_all, quote_path = STANDARD.quote, STANDARD.quote_all, STANDARD.quote_path
text_literal, literal, shown_literal = STANDARD.text_literal, STANDARD.literal, STANDARD.shown_literal
instant, within = STANDARD.instant, STANDARD.within
