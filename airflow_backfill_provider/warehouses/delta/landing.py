"""Where code that is not ours puts its rows: in memory, until they are kept in the attempt's own Delta table."""

from __future__ import annotations

import duckdb

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.delta.session import DeltaSession
from airflow_backfill_provider.warehouses.duckdb.landing import DuckDBLanding

_ROWS_ONLY = (
    "A Delta table on a path has no connection and no staging table that code could write to: return the rows, as a data frame, "
    "an Arrow table or mappings, and read sources by deltalake or DuckDB's delta_scan."
)


class DeltaLanding(DuckDBLanding):
    """Takes rows that code returns, and has nothing that code can write to."""

    def __init__(self, session: DeltaSession, database: str, target: Target) -> None:
        super().__init__(session, database, target, lambda: None)
        self.landed = self._table

    @property
    def table(self) -> str:
        raise WarehouseError(_ROWS_ONLY)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        raise WarehouseError(_ROWS_ONLY)
