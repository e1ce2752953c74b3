"""Receipts: what each publish and rollback left in the metadata of its own commit, read back from the table's history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from airflow_backfill_provider.warehouses import user_metadata
from airflow_backfill_provider.warehouses.base import Receipt
from airflow_backfill_provider.warehouses.databricks.session import Session

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The parameter of a session that every commit made in it carries."""
_RECENT = 20


def read(session: Session, table: str) -> tuple[Receipt, ...]:
    """Every receipt of the table, oldest first, as far back as its history goes."""
    return user_metadata.oldest_first(_found(session, f"DESCRIBE HISTORY {table}"))


def of_attempt(session: Session, table: str, attempt: str) -> Receipt | None:
    """The receipt of that very commit, which is recent; None when it never happened."""
    return user_metadata.of_attempt(_found(session, f"DESCRIBE HISTORY {table} LIMIT {_RECENT}"), attempt)


def _found(session: Session, history: str) -> Iterator[tuple[str, Receipt]]:
    return user_metadata.receipts(
        (commit["version"], commit["timestamp"].astimezone(UTC), commit.get("userMetadata"))
        for commit in session.records(history)
    )
