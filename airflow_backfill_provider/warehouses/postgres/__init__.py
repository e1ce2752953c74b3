"""The PostgreSQL warehouse; its parts are modules of this package, and :class:`PostgresWarehouse` is its one public name."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.postgres.adapter import PostgresWarehouse

__all__ = ["PostgresWarehouse"]
