"""The DuckDB warehouse; its parts are modules of this package, and :class:`DuckDBWarehouse` is its one public name."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.duckdb.adapter import DuckDBWarehouse

__all__ = ["DuckDBWarehouse"]
