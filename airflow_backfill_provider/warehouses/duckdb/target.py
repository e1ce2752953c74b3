"""The published table, or the view of it, as a target."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.duckdb.catalog import Run, Table, columns, constraints, locate
from airflow_backfill_provider.warehouses.duckdb.versions import describe_version, shown_by


def describe(run: Run, name: str, partition_by: str, key: Sequence[str], reading: Reading) -> Target:
    """The published table as a target, its name and its columns' in the catalog's spelling.

    However a spec spells the table, two backfills of it then claim the same name.

    :raises SpecError: as :meth:`Warehouse.describe`.
    """
    place = locate(run, name)
    holder = shown_by(run, place) if place.is_view else place
    # A view's own columns tell neither what may be NULL nor what is generated.
    table = Table(place, columns(run, holder))
    partition_column = table.column(partition_by)
    keys = tuple(table.column(column) for column in key)
    for column in (partition_column, *keys):
        if column.generated:
            raise SpecError(f"{name}.{column.name} is a generated column; a partition or key column must be stored.")
    return Target(
        name if "." in place.schema or "." in place.name else str(place),
        partition_column.name,
        table.clock(partition_by, reading),
        tuple(column.name for column in keys),
        table.columns,
        constraints(run, holder),
        describe_version(run, place, holder) if place.is_view else None,
    )
