"""The Delta warehouse; its parts are modules of this package, and :class:`DeltaWarehouse` is its one public name."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.delta.adapter import DeltaWarehouse

__all__ = ["DeltaWarehouse"]
