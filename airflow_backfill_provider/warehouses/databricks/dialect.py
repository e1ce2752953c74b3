"""Databricks SQL's spelling of the statements that engines share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.databricks.types import PARTITION_TYPES, column_kind, is_text
from airflow_backfill_provider.warehouses.sql import Spelling


class DatabricksSpelling(Spelling):
    """Names in backticks; in a string literal the backslash is special too."""

    _instants, _wall_clocks = "TIMESTAMP", "TIMESTAMP_NTZ"

    def quote(self, identifier: str) -> str:
        return self._quoted(identifier, "`")

    def text_literal(self, value: str) -> str:
        # A doubled quote is two literals side by side to some versions, so it is escaped.
        if "\x00" in value:
            raise ValueError(f"{value!r} holds a NUL character, which SQL text cannot.")
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def _double(self, digits: str) -> str:
        return f"CAST({self.text_literal(digits)} AS DOUBLE)"


SPELLING = DatabricksSpelling()


class DatabricksDialect:
    """See :class:`airflow_backfill_provider.warehouses.relational.dialect.Dialect`."""

    name = "databricks"
    spelling = SPELLING
    text_type = "STRING"
    overriding = ""
    partition_types = PARTITION_TYPES

    def column_kind(self, column_type: str) -> ColumnKind | None:
        return column_kind(column_type)

    def is_text(self, column_type: str | None) -> bool:
        return is_text(column_type)

    def casts_to_day(self, column_type: str) -> bool:
        return True

    def ordered(self, column: str, clock: Clock) -> str:
        # Text is ordered by its bytes; a column with a collation of its own has another type, which makes no clock.
        return column

    def row_hash(self, columns: Sequence[str], alias: str = "r.") -> str:
        # A NULL leaves the hash as it was, so that without the flags values could move from one column to the next.
        values = [
            text for name in map(self.spelling.quote, columns) for text in (f"{alias}{name}", f"isnull({alias}{name})")
        ]
        # A sum of BIGINT would overflow.
        return f"CAST(xxhash64({', '.join(values)}) AS DECIMAL(20, 0))"

    def steps(self, column: str, column_type: str, first: str, step: timedelta) -> str | None:
        return None

    def numbered(self, table: str, column: str, bounds: Sequence[str]) -> tuple[str, str]:
        # A sum of comparisons would be a tree as deep as there are bounds.
        return f"size(filter(array({', '.join(bounds)}), low -> low <= {column})) - 1", table

    def semi_join(self, left: str, rights: Sequence[str], names: Sequence[str]) -> str:
        match = " AND ".join(f"r.{name} = s.{name}" for name in map(self.spelling.quote, names))
        return f"{left} LEFT SEMI JOIN ({' UNION ALL '.join(rights)}) AS s ON {match}"

    def is_worth_a_span(self, column_type: str) -> bool:
        # Files that cannot match are left out while it joins (dynamic file pruning).
        return False


DIALECT = DatabricksDialect()
