"""PostgreSQL's spelling of the statements that engines share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.postgres.types import (
    PARTITION_TYPES,
    column_kind,
    is_quickly_ordered,
    is_text,
)
from airflow_backfill_provider.warehouses.sql import STANDARD, quote, text_literal


class PostgresDialect:
    """See :class:`airflow_backfill_provider.warehouses.relational.dialect.Dialect`."""

    name = "postgres"
    spelling = STANDARD
    text_type = "VARCHAR"
    partition_types = PARTITION_TYPES
    overriding = "OVERRIDING SYSTEM VALUE"

    def column_kind(self, column_type: str) -> ColumnKind | None:
        return column_kind(column_type)

    def is_text(self, column_type: str | None) -> bool:
        return is_text(column_type)

    def casts_to_day(self, column_type: str) -> bool:
        return True

    def ordered(self, column: str, clock: Clock) -> str:
        return f'{column} COLLATE "C"' if clock.kind is ColumnKind.TEXT else column

    def row_hash(self, columns: Sequence[str], alias: str = "r.") -> str:
        row = ", ".join(alias + quote(column) for column in columns)
        return f"hashint8extended(hash_record_extended(ROW({row}), 0), 0)"

    def steps(self, column: str, column_type: str, first: str, step: timedelta) -> str | None:
        return f"floor(extract(epoch FROM {column} - {first}) / {step.total_seconds()})::bigint"

    def numbered(self, table: str, column: str, bounds: Sequence[str]) -> tuple[str, str]:
        return f"width_bucket({column}, ARRAY[{', '.join(bounds)}]) - 1", table

    def semi_join(self, left: str, rights: Sequence[str], names: Sequence[str]) -> str:
        # The planner takes what IN (… UNION ALL …) returns for 200 rows, and then builds it anew in every process; of a
        # UNION it knows how many there can be.
        right = " UNION ".join(rights) if len(rights) > 1 else f"SELECT DISTINCT * FROM ({rights[0]}) AS k"
        match = " AND ".join(f"r.{quote(name)} = s.{quote(name)}" for name in names)
        return f"{left} JOIN ({right}) AS s ON {match}"

    def is_worth_a_span(self, column_type: str) -> bool:
        return is_quickly_ordered(column_type)

    def count_schemas(self, database: str, schema: str) -> str:
        return f"SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = {text_literal(schema)}"

    def count_tables(self, database: str, schema: str, name: str) -> str:
        return (
            "SELECT count(*) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {text_literal(schema)} AND c.relname = {text_literal(name)}"
        )


DIALECT = PostgresDialect()
