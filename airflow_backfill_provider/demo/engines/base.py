"""What the demo needs of an engine: the data in it, a connection for Airflow, and a way to look without the product."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_backfill_provider.warehouses.base import Warehouse


class DemoEngine(Protocol):
    """One engine with the demo's two tables, ``raw.flights`` and ``analytics.fct_flights``."""

    @property
    def place(self) -> str:
        """Where a person finds the tables."""
        ...

    @property
    def is_built(self) -> bool:
        """Whether the tables were made."""
        ...

    def build(self) -> None:
        """Make the tables, replacing earlier ones."""
        ...

    def start(self) -> None:
        """Start what the tables need to be reached; silent when it runs."""
        ...

    def stop(self) -> None:
        """Stop that again; silent when it does not run."""
        ...

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection: ``conn_type`` and its other fields."""
        ...

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement, without the product, and return its rows."""
        ...

    def append(self, select: str) -> None:
        """Append the rows of a SELECT to the published table, by position."""
        ...

    def open(self) -> Warehouse:
        """The product's own way to the tables."""
        ...
