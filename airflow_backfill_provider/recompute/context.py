"""What a team's function is told of the partition that it recomputes, and where it may write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pendulum

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.warehouses.base import Landing


@dataclass(frozen=True)
class PartitionContext:
    """One partition, for the function that recomputes it. Names mean what they mean in a SQL template."""

    target_table: str
    """The published table, as the spec names it: to be read, never to be written."""
    _names: Mapping[str, Any] = field(repr=False)
    _landing: Landing = field(repr=False)

    @property
    def staging_table(self) -> str:
        """The table to write this partition's rows to, as SQL; it is empty and has the target's columns and types.

        :raises WarehouseError: the engine has none that code can write to.
        """
        return self._landing.table

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that each row needs, in the target's order."""
        return self._landing.columns

    @property
    def connection(self) -> Any:
        """The engine's own connection, opened when it is first asked for: to read the warehouse and to write
        :attr:`staging_table`. The caller commits and closes it: do neither BEGIN nor COMMIT.

        :raises WarehouseError: the engine has none, as Delta has none for a table on a path; or the warehouse cannot be opened.
        """
        return self._landing.connection

    @property
    def data_interval_start(self) -> pendulum.DateTime:
        """Where the partition begins, in UTC."""
        return self._named("data_interval_start")  # type: ignore[no-any-return]

    @property
    def data_interval_end(self) -> pendulum.DateTime:
        """Where it ends, exclusive, in UTC."""
        return self._named("data_interval_end")  # type: ignore[no-any-return]

    @property
    def partition_key(self) -> str:
        """Its key; with ``scope: range``, partitions have none in common."""
        return str(self._named("partition_key"))

    @property
    def partition_value(self) -> str:
        """The value of a partition of ``grain: list``."""
        return str(self._named("partition_value"))

    @property
    def logical_date(self) -> pendulum.DateTime:
        """The bound of the partition that ``transform.logical_date`` names."""
        return self._named("logical_date")  # type: ignore[no-any-return]

    @property
    def ds(self) -> str:
        """The logical date as ``2013-02-01``."""
        return str(self._named("ds"))

    @property
    def params(self) -> dict[str, Any]:
        """``transform.params``, in a copy."""
        return dict(self._names["params"])

    def _named(self, name: str) -> Any:
        if name not in self._names:
            there = sorted(self._names.keys() - {"macros"})
            advice = " Set transform.logical_date: start or end." if name in ("logical_date", "ds") else ""
            raise TransformRefused(f"This partition has no {name}; it has {', '.join(there)}.{advice}")
        return self._names[name]
