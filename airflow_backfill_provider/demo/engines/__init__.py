"""The engines that the demo runs on, by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from airflow_backfill_provider.demo.engines.base import DemoEngine

ENGINES = {
    "databricks-local": "airflow_backfill_provider.demo.engines.databricks:LocalDatabricksEngine",
    "delta": "airflow_backfill_provider.demo.engines.delta:DeltaEngine",
    "duckdb": "airflow_backfill_provider.demo.engines.duckdb:DuckDBEngine",
    "postgres": "airflow_backfill_provider.demo.engines.postgres:PostgresEngine",
}


def demo_engine(name: str, home: Path) -> DemoEngine:
    """The engine of that name, with everything it writes under the folder."""
    module, _, class_name = ENGINES[name].partition(":")
    engine: DemoEngine = getattr(import_module(module), class_name)(home)
    return engine
