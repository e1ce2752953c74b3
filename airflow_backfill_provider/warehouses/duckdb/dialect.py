"""DuckDB's spelling of the statements that engines share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.duckdb.types import COLUMN_KINDS, NANOSECONDS
from airflow_backfill_provider.warehouses.sql import STANDARD, quote, text_literal


class DuckDBDialect:
    """See :class:`airflow_backfill_provider.warehouses.relational.dialect.Dialect`."""

    name = "duckdb"
    spelling = STANDARD
    text_type = "VARCHAR"
    overriding = ""
    partition_types = ", ".join(COLUMN_KINDS)

    def column_kind(self, column_type: str) -> ColumnKind | None:
        return COLUMN_KINDS.get(column_type)

    def is_text(self, column_type: str | None) -> bool:
        # DuckDB would read the column's text as numbers.
        return column_type == "VARCHAR"

    def casts_to_day(self, column_type: str) -> bool:
        # Nanoseconds are rounded into the next day.
        return column_type != NANOSECONDS

    def ordered(self, column: str, clock: Clock) -> str:
        return column

    def row_hash(self, columns: Sequence[str], alias: str = "r.") -> str:
        return f"hash(hash({', '.join(alias + quote(column) for column in columns)}))"

    def steps(self, column: str, column_type: str, first: str, step: timedelta) -> str | None:
        if column_type == NANOSECONDS:  # which would be rounded
            return None
        return f"((epoch_us({column}) - epoch_us({first})) // {step // timedelta(microseconds=1)})"

    def numbered(self, table: str, column: str, bounds: Sequence[str]) -> tuple[str, str]:
        values = ", ".join(f"({number}, {bound})" for number, bound in enumerate(bounds))
        joined = f"{table} ASOF JOIN (VALUES {values}) AS bounds(number, low) ON {column} >= bounds.low"
        return "bounds.number", joined

    def semi_join(self, left: str, rights: Sequence[str], names: Sequence[str]) -> str:
        match = " AND ".join(f"r.{quote(name)} = s.{quote(name)}" for name in names)
        return f"{left} SEMI JOIN ({' UNION ALL '.join(rights)}) AS s ON {match}"

    def is_worth_a_span(self, column_type: str) -> bool:
        # It finds the span itself while it joins.
        return False

    def count_schemas(self, database: str, schema: str) -> str:
        return (
            f"SELECT count(*) FROM duckdb_schemas() WHERE database_name = {text_literal(database)} "
            f"AND schema_name = {text_literal(schema)}"
        )

    def count_tables(self, database: str, schema: str, name: str) -> str:
        return (
            f"SELECT count(*) FROM duckdb_tables() WHERE database_name = {text_literal(database)} "
            f"AND schema_name = {text_literal(schema)} AND table_name = {text_literal(name)}"
        )


DIALECT = DuckDBDialect()
