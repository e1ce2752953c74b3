"""Where work outside the warehouse puts its rows: a Delta table that was made for one run of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Target

NO_CODE = "Code that runs on an Airflow worker has no place to put its rows in on Databricks. Write the rule as SQL, or as a Databricks job."


class DatabricksLanding:
    """See :class:`airflow_backfill_provider.warehouses.base.Landing`."""

    def __init__(self, table: str, target: Target) -> None:
        """``table`` has every part of its name: another session may look for names elsewhere."""
        self.table = self.filled = table
        self._target = target

    @property
    def columns(self) -> tuple[str, ...]:
        return self._target.column_names

    @property
    def connection(self) -> Any:
        raise WarehouseError(NO_CODE)

    def add(self, rows: Any) -> None:
        raise WarehouseError(NO_CODE)

    @property
    def address(self) -> Mapping[str, str]:
        return {"staging_table": self.table}

    def collect(self, address: Mapping[str, str]) -> None:
        """Its rows are read where they are, in a statement that holds them to the partition: see :attr:`filled`."""
        self.filled = address["staging_table"]

    def double(self) -> None:
        self.filled = f"(SELECT * FROM {self.filled} UNION ALL SELECT * FROM {self.filled})"

    def settle(self) -> None:
        """Nothing is open: every statement is a commit of its own."""
