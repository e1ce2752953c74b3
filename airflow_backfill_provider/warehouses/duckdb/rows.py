"""From a side (published, staged, backup, source) to tables that a session can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Backup, Published, Rows, Source, Staged, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import find_table, locate
from airflow_backfill_provider.warehouses.duckdb.files import StagingFolder
from airflow_backfill_provider.warehouses.duckdb.flags import DIALECT
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.sql import NANOSECONDS, Piece
from airflow_backfill_provider.warehouses.duckdb.stage import COVERS, ROWS
from airflow_backfill_provider.warehouses.predicate import row_expression
from airflow_backfill_provider.windows import Partition


def needs_warehouse(rows: Rows) -> bool:
    """Whether the rows are in the warehouse file, not in a file of ours."""
    return isinstance(rows, Published | Source)


def pieces(
    session: Session, files: StagingFolder, target: Target, rows: Rows, partitions: Sequence[Partition]
) -> tuple[Piece, ...]:
    """The partitions of that side, in as few tables as there are; attaches the files that hold them.

    :raises WarehouseError: a file is gone, or a partition is not in it.
    :raises SpecError: there is no such table, or its partition column tells no time.
    """
    match rows:
        case Published():
            published = locate(session.run, target.table)
            return (Piece.of(target, published.sql, partitions),)
        case Source(name, partition_by, reading):
            table = find_table(session.run, name)
            column = table.column(partition_by)
            nanoseconds = column.type == NANOSECONDS
            clock = table.clock(column.name, reading)
            return (Piece(source_sql(table.place.sql, rows), column.name, clock, tuple(partitions), nanoseconds),)
        case Staged():
            return _staged(session, files, target, rows, partitions)
        case Backup(location):
            database = session.attach(files.existing(location))
            covered = {key for (key,) in session.run(f"SELECT partition_key FROM {database}.{COVERS}")}
            _refuse_absent([partition.key for partition in partitions if partition.key not in covered], location)
            return (Piece.of(target, f"{database}.{ROWS}", partitions),)
        case _:
            assert_never(rows)


def source_sql(table: str, source: Source) -> str:
    """The source's rows, as a statement reads them."""
    return f"(SELECT * FROM {table} WHERE {row_expression(source.where, DIALECT)})" if source.where else table


def _staged(
    session: Session, files: StagingFolder, target: Target, staged: Staged, partitions: Sequence[Partition]
) -> tuple[Piece, ...]:
    locations = {entry.partition: entry.location for entry in staged.partitions}
    _refuse_absent([partition.key for partition in partitions if partition not in locations], "the staged partitions")
    by_location: dict[str, list[Partition]] = {}
    for partition in partitions:
        by_location.setdefault(locations[partition], []).append(partition)
    return tuple(
        Piece.of(target, f"{session.attach(files.existing(location))}.{ROWS}", own)
        for location, own in by_location.items()
    )


def _refuse_absent(keys: Sequence[str], where: str) -> None:
    if keys:
        raise WarehouseError(f"{', '.join(keys)} is not in {where}. Stage it, or back it up, first.")
