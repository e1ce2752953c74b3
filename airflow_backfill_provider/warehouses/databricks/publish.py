"""Publishing into a Delta table by one statement, whose commit holds the receipt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from databricks.sql.exc import Error

from airflow_backfill_provider.errors import BackfillError, WarehouseError
from airflow_backfill_provider.warehouses.base import Publication, Receipt, Target
from airflow_backfill_provider.warehouses.databricks import receipts
from airflow_backfill_provider.warehouses.databricks.catalog import find_table
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT
from airflow_backfill_provider.warehouses.databricks.errors import is_conflict, message
from airflow_backfill_provider.warehouses.databricks.session import Session
from airflow_backfill_provider.warehouses.databricks.writes import NOT_PROVEN
from airflow_backfill_provider.warehouses.relational.replacement import Replacement
from airflow_backfill_provider.warehouses.relational.statements import Piece

Write = Callable[[str, Target, Publication, Sequence[Piece]], str]
"""The statement that writes what lands into the table of that name."""


class Conflict(Exception):
    """Somebody else committed something that the range may be in; the next attempt sees it."""


def publish(
    session: Session, target: Target, publication: Publication, landing: Sequence[Piece], attempt: str, write: Write
) -> Receipt:
    """Change the range in one commit that holds the receipt too; the session's commits carry this attempt's metadata.

    :raises Conflict: nothing was written.
    :raises WarehouseError: the statement ended without an error, and no commit has the receipt.
    """
    table = find_table(session, target.table)
    name = table.place.sql
    # The statement proves nothing of columns that it does not know, so that a value could get lost between look and commit.
    replacement = Replacement(DIALECT, session, table, target, publication, landing, bears_later_columns=False)
    replacement.refuse_other_columns()
    replacement.refuse_repeated_keys()
    publication.confirm()
    before = receipts.latest_version(session, name)
    error: Exception | None = None
    try:
        session.run(write(name, target, publication, landing))
    except (Error, BackfillError) as exc:
        error = exc
    # The log decides: an answer that was lost looks like a failure.
    receipt = receipts.of_attempt(session, name, attempt, before)
    if receipt is not None:
        return receipt
    if isinstance(error, Error) and NOT_PROVEN in str(error):
        replacement.refuse_moved()
        replacement.refuse_unvalidated()
        # Between the statement and these two looks it became again what it was.
        raise Conflict(message(error)) from error
    if isinstance(error, Error) and is_conflict(error):
        raise Conflict(message(error)) from error
    raise error or WarehouseError(
        f"The statement that writes into {target.table} ended without an error, and no commit in the table's history has its "
        "receipt: its rows may be there. Look at the range, and at DESCRIBE HISTORY, before anything is tried again."
    )
