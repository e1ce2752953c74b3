"""The Databricks warehouse; its parts are modules of this package, and :class:`DatabricksWarehouse` is its one public name."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.databricks.adapter import DatabricksWarehouse

__all__ = ["DatabricksWarehouse"]
