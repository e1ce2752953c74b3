"""Publishing into DuckDB: one transaction in which nobody else can write the table."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import LockTimeout, PublishRefused
from airflow_backfill_provider.warehouses.base import Publication, Receipt, Target
from airflow_backfill_provider.warehouses.duckdb.catalog import comment, find_table, locate
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.added import absent, add_columns
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Change, Replacement
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import literal


def publish(
    session: Session, target: Target, publication: Publication, landing: Sequence[Piece], change: Change
) -> Receipt:
    """Change the range and write the receipt, all in one commit or not at all."""
    place = locate(session.run, target.table)
    if place.is_view:
        raise PublishRefused(f"{place} is a view now, and was a table when the plan was made. Nothing was written.")
    text = comment(session.run, place)
    with session.bulk_loading(), session.transaction():
        guard(session, place, text)
        if target.added:
            there = find_table(session.run, target.table).column_names
            add_columns(session.run, place, absent(target, there))
        table = find_table(session.run, target.table)
        receipts = Receipts(DIALECT, session.run, place)
        return Replacement(DIALECT, session, table, target, publication, landing).run(change, receipts)


def guard(session: Session, place: Place, text: str | None) -> None:
    """Make every other transaction that writes the table fail, by giving the table its own comment again.

    It must be the first statement: after an earlier read, an append between that read and the guard slips in.
    """
    session.run(f"COMMENT ON TABLE {place.sql} IS {literal(text)}")
    # From here on nobody else can change the comment; what was committed before must be what was just written.
    if (found := comment(session.second_look, place)) != text:
        raise LockTimeout(f"The comment of {place} was changed to {found!r} just now; nothing was written. Try again.")
