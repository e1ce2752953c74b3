"""The registry of engines: a kind in, an open :class:`~airflow_backfill_provider.warehouses.base.Warehouse` out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Warehouse

if TYPE_CHECKING:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse
    from airflow_backfill_provider.warehouses.delta import DeltaWarehouse
    from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
    from airflow_backfill_provider.warehouses.memory import MemoryWarehouse
    from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse

    # Engines are named by strings below, so only this holds their classes against the protocol.
    _CHECKED: tuple[type[Warehouse], ...] = (
        DatabricksWarehouse,
        DeltaWarehouse,
        DuckDBWarehouse,
        MemoryWarehouse,
        PostgresWarehouse,
    )

__all__ = ["KINDS", "open_warehouse"]

KINDS = {
    "databricks": "airflow_backfill_provider.warehouses.databricks:DatabricksWarehouse",
    "delta": "airflow_backfill_provider.warehouses.delta:DeltaWarehouse",
    "duckdb": "airflow_backfill_provider.warehouses.duckdb:DuckDBWarehouse",
    "postgres": "airflow_backfill_provider.warehouses.postgres:PostgresWarehouse",
}
"""Engine kind to ``module:Class``; the extra that installs its driver has the same name."""


def open_warehouse(kind: str, **settings: Any) -> Warehouse:
    """Open the warehouse of this kind; its module is imported now, not before.

    :raises SpecError: the kind is not known, or its driver is not installed.
    """
    try:
        module_name, _, class_name = KINDS[kind].partition(":")
    except KeyError as exc:
        raise SpecError(f"{kind!r} is not a known kind of warehouse; known: {', '.join(sorted(KINDS))}.") from exc
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and exc.name.startswith("airflow_backfill_provider"):
            raise
        raise SpecError(
            f"A {kind} warehouse needs the Python package {exc.name!r}, which is not installed. "
            f"Run: pip install 'airflow-backfill-provider[{kind}]'"
        ) from exc
    return cast(Warehouse, getattr(module, class_name)(**settings))
