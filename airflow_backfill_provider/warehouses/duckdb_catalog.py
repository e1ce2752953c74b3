"""What the warehouse's catalog says of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Clock, Column, Target
from airflow_backfill_provider.warehouses.duckdb_types import CLOCKS
from airflow_backfill_provider.warehouses.sql import quote_path, text_literal

Run = Callable[[str], list[tuple[Any, ...]]]

_NAMED_AT_MOST = 10


@dataclass(frozen=True)
class Table:
    """One table or view as the catalog holds it; names in the catalog's own spelling."""

    database: str
    schema: str
    name: str
    is_view: bool
    columns: tuple[Column, ...]

    @property
    def sql(self) -> str:
        """Its name as SQL, with every part."""
        return quote_path(self.database, self.schema, self.name)

    def column(self, name: str) -> Column:
        """The column of that name, in any case, as DuckDB itself finds it.

        :raises SpecError: there is none.
        """
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise SpecError(
            f"{self.schema}.{self.name} has no column {name!r}; it has {', '.join(c.name for c in self.columns)}."
        )

    def clock(self, partition_by: str) -> Clock:
        """How the partition column tells time.

        :raises SpecError: its type has no clock.
        """
        column = self.column(partition_by)
        if column.type not in CLOCKS:
            raise SpecError(
                f"{self.schema}.{self.name} cannot be partitioned by {column.name}: a column of type {column.type} is "
                f"not supported yet. Supported: {', '.join(CLOCKS)}."
            )
        return CLOCKS[column.type]


def find_table(run: Run, name: str) -> Table:
    """The table or view of that name (``schema.name``; ``main`` when no schema is given) in the default database.

    :raises SpecError: there is none; the message names what exists.
    """
    ((database,),) = run("SELECT current_database()")
    *catalog, schema, table = name.split(".") if "." in name else ["main", name]
    if catalog and catalog != [database]:
        raise SpecError(f"{name!r} names the database {catalog[0]!r}, but the warehouse's own name is {database!r}.")
    found = run(
        "SELECT schema_name, table_name, FALSE FROM duckdb_tables() "
        f"WHERE database_name = {text_literal(database)} AND NOT internal UNION ALL "
        "SELECT schema_name, view_name, TRUE FROM duckdb_views() "
        f"WHERE database_name = {text_literal(database)} AND NOT internal ORDER BY ALL"
    )
    for found_schema, found_table, is_view in found:
        if (found_schema.lower(), found_table.lower()) == (schema.lower(), table.lower()):
            columns = _columns(run, database, found_schema, found_table)
            return Table(database, found_schema, found_table, is_view, columns)
    names = [f"{found_schema}.{found_table}" for found_schema, found_table, _ in found]
    near = get_close_matches(f"{schema}.{table}", names, n=_NAMED_AT_MOST, cutoff=0.5) or names[:_NAMED_AT_MOST]
    raise SpecError(f"There is no table {name!r}; there is {', '.join(near) or 'none at all'}.")


def describe(run: Run, name: str, partition_by: str, key: Sequence[str]) -> Target:
    """The published table as a target, column names in the catalog's spelling.

    :raises SpecError: as :meth:`Warehouse.describe`.
    """
    table = find_table(run, name)
    if table.is_view:
        raise SpecError(
            f"{name} is a view: it has no rows of its own to replace. Name the table that it reads, or the one that "
            "a pipeline writes."
        )
    partition_column = table.column(partition_by)
    keys = tuple(table.column(column) for column in key)
    for column in (partition_column, *keys):
        if column.generated:
            raise SpecError(f"{name}.{column.name} is a generated column; a partition or key column must be stored.")
    return Target(
        name, partition_column.name, table.clock(partition_by), tuple(column.name for column in keys), table.columns
    )


def comment(run: Run, table: Table) -> str | None:
    """The table's comment."""
    ((text,),) = run(
        f"SELECT comment FROM duckdb_tables() WHERE database_name = {text_literal(table.database)} "
        f"AND schema_name = {text_literal(table.schema)} AND table_name = {text_literal(table.name)}"
    )
    return None if text is None else str(text)


def _columns(run: Run, database: str, schema: str, table: str) -> tuple[Column, ...]:
    return tuple(
        Column(name, data_type, nullable=is_nullable, generated=is_generated)
        for name, data_type, is_nullable, is_generated in run(
            "SELECT column_name, data_type, is_nullable, coalesce(is_generated, FALSE) FROM duckdb_columns() "
            f"WHERE database_name = {text_literal(database)} AND schema_name = {text_literal(schema)} "
            f"AND table_name = {text_literal(table)} ORDER BY column_index"
        )
    )
