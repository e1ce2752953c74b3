"""The in-memory warehouse for unit tests; :class:`MemoryWarehouse` is its one public name."""

from __future__ import annotations

from airflow_backfill_provider.warehouses.memory.adapter import MemoryWarehouse

__all__ = ["MemoryWarehouse"]
