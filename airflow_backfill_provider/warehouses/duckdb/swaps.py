"""Which table a view left and which it shows since, beside each receipt that moved it; and the versions left behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses.base import Receipt, StorageItem
from airflow_backfill_provider.warehouses.duckdb.catalog import places
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.versions import readers, shown_by
from airflow_backfill_provider.warehouses.relational.receipts import SCHEMA, TABLE
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import text_literal

VERSION = "version:"
"""How the location of an old version starts; the rest is its name as SQL."""
_TABLE = "swaps"
_COLUMNS = (
    "table_schema VARCHAR NOT NULL, table_name VARCHAR NOT NULL, sequence BIGINT NOT NULL, left_schema VARCHAR NOT NULL, "
    "left_name VARCHAR NOT NULL, shown_schema VARCHAR NOT NULL, shown_name VARCHAR NOT NULL, "
    "PRIMARY KEY (table_schema, table_name, sequence)"
)


def write_move(run: Run, view: Place, left: Place, shown: Place, receipt: Receipt) -> None:
    """Say beside the receipt that the view moved; it becomes visible with it."""
    log = view.beside(SCHEMA, _TABLE)
    run(f"CREATE TABLE IF NOT EXISTS {log} ({_COLUMNS})")
    place = ", ".join(map(text_literal, (view.schema, view.name)))
    tables = ", ".join(map(text_literal, (left.schema, left.name, shown.schema, shown.name)))
    run(f"INSERT INTO {log} VALUES ({place}, {receipt.sequence}, {tables})")


@dataclass(frozen=True)
class Moved:
    """One move of a view from one table to another."""

    view: Place
    left: Place
    shown: Place
    backfill_id: str
    at: datetime


def read_moves(run: Run, database: str) -> list[Moved]:
    """Every move of a view, oldest first."""
    log = Place(database, SCHEMA, _TABLE, is_view=False)
    if log not in places(run):
        return []
    return [
        Moved(
            Place(database, schema, name, is_view=True),
            Place(database, left_schema, left_name, is_view=False),
            Place(database, shown_schema, shown_name, is_view=False),
            backfill_id,
            at.replace(tzinfo=UTC),
        )
        for schema, name, left_schema, left_name, shown_schema, shown_name, backfill_id, at in run(
            "SELECT table_schema, table_name, left_schema, left_name, shown_schema, shown_name, backfill_id, committed_at "
            f"FROM {log.sql} JOIN {log.beside(SCHEMA, TABLE)} USING (table_schema, table_name, sequence) ORDER BY committed_at"
        )
    ]


def old_versions(run: Run) -> tuple[StorageItem, ...]:
    """Every table that a view was pointed away from, that is still there and not shown again."""
    return tuple(
        StorageItem(moved.backfill_id, "version", _location(table), _bytes(run, table), moved.at)
        for table, moved in _left(run).items()
    )


def drop_version(session: Session, location: str) -> None:
    """Drop that old version; silent when there is none.

    :raises WarehouseError: a view reads it.
    """
    with session.transaction():
        table = next((one for one in _left(session.run) if _location(one) == location), None)
        if table is None:
            return
        if found := readers(session.run, table):
            raise WarehouseError(f"{table} is read by {', '.join(map(str, found))}, so it was not dropped.")
        session.run(f"DROP TABLE {table.sql}")


def _left(run: Run) -> dict[Place, Moved]:
    ((database,),) = run("SELECT current_database()")
    last = {moved.left: moved for moved in read_moves(run, database)}
    there = places(run)
    return {
        table: moved
        for table, moved in last.items()
        if table in there and not (moved.view in there and table in _shown(run, moved.view))
    }


def _shown(run: Run, view: Place) -> list[Place]:
    try:
        return [shown_by(run, view)]
    except SpecError:
        return []


def _location(table: Place) -> str:
    return f"{VERSION}{table.short_sql}"


def _bytes(run: Run, table: Place) -> int:
    """Of the blocks that hold its columns, which may be shared with another table's."""
    ((size,),) = run(
        f"SELECT count(DISTINCT block_id) * (SELECT max(block_size) FROM pragma_database_size()) "
        f"FROM pragma_storage_info({text_literal(table.sql)}) WHERE persistent"
    )
    return int(size)
