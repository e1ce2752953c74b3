"""The published table, or the view of it, as a target."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.duckdb.catalog import columns, constraints, locate
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.versions import describe_version, readers_through, shown_by
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Table


def describe(run: Run, name: str, partition_by: str, key: Sequence[str], reading: Reading) -> Target:
    """The published table as a target, its name and its columns' in the catalog's spelling.

    However a spec spells the table, two backfills of it then claim the same name.

    :raises SpecError: as :meth:`Warehouse.describe`.
    """
    place = locate(run, name)
    holder = shown_by(run, place) if place.is_view else place
    # A view's own columns tell neither what may be NULL nor what is generated.
    table = Table(place, columns(run, holder))
    partition_column = table.stored(partition_by)
    keys = tuple(table.stored(column) for column in key)
    return Target(
        name if place.has_odd_name else str(place),
        partition_column.name,
        table.clock(DIALECT, partition_by, reading),
        tuple(column.name for column in keys),
        table.columns,
        constraints(run, holder),
        describe_version(run, place, holder) if place.is_view else None,
    )


def aliases(run: Run, table: str, names: Sequence[str]) -> tuple[str, ...]:
    """See :meth:`Warehouse.aliases`; by the statements of the database's views."""
    named = {}
    for name in names:
        with suppress(SpecError):  # what is no table of this database, such as a file
            named[name] = locate(run, name)
    place = locate(run, table)
    holder = shown_by(run, place) if place.is_view else place
    if not any(one.is_view or one == holder for one in named.values()):
        return ()
    found = {holder, *readers_through(run, holder)} - {place}
    return tuple(name for name in names if named.get(name) in found)
