"""DuckDB's spelling, for tables whose files it does not know itself."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.clocks import ColumnKind
from airflow_backfill_provider.warehouses.duckdb.dialect import DuckDBDialect


class DeltaDialect(DuckDBDialect):
    """See :class:`airflow_backfill_provider.warehouses.relational.dialect.Dialect`."""

    def is_worth_a_span(self, column_type: str) -> bool:
        # What DuckDB finds out while it joins reaches no file of an Arrow dataset; what the statement says does.
        return self.column_kind(column_type) not in (None, ColumnKind.TEXT)


DIALECT = DeltaDialect()
