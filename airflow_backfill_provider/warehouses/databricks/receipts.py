"""Receipts: what each publish and rollback left in the metadata of its own commit, read back from the table's history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

from databricks.sql.exc import Error

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.warehouses import user_metadata
from airflow_backfill_provider.warehouses.base import Receipt
from airflow_backfill_provider.warehouses.databricks.errors import is_about_the_statement, message
from airflow_backfill_provider.warehouses.databricks.session import Session

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The parameter of a session that every commit made in it carries."""
_REDACTED = "redacted"
"""What is shown in the place of a value that looks like a secret."""
_RECENT, _MORE = 20, 5


def read(session: Session, table: str) -> tuple[Receipt, ...]:
    """Every receipt of the table, oldest first, as far back as its history goes."""
    return user_metadata.oldest_first(_found(session.records(f"DESCRIBE HISTORY {table}")))


def require_kept(session: Session, metadata: str) -> None:
    """The session was opened to have its commits carry this.

    :raises PublishRefused: they would not, for all that is known.
    """
    refusal = ""
    try:
        shown = [str(row[-1]) for row in session.run(f"SET {USER_METADATA}")]
    except Error as exc:
        if not is_about_the_statement(exc):
            raise
        shown, refusal = [], f" It says: {message(exc)}"
    if not any(one == metadata or _REDACTED in one for one in shown):
        raise PublishRefused(
            f"The compute of compute.conn_id does not keep {USER_METADATA}, which a session was opened with, so a commit would "
            f"have no receipt.{refusal} Nothing was written. Have the workspace's administrator allow it, or give the connection "
            "the http_path of a cluster that allows it."
        )


def latest_version(session: Session, table: str) -> int:
    """The version that the table is at."""
    (latest,) = session.records(f"DESCRIBE HISTORY {table} LIMIT 1")
    return int(latest["version"])


def of_attempt(session: Session, table: str, attempt: str, after: int) -> Receipt | None:
    """The receipt of that very commit; None when it never happened.

    :param after: the version that the table was at before it.
    """
    limit = _RECENT
    while True:
        commits = session.records(f"DESCRIBE HISTORY {table} LIMIT {limit}")
        receipt = user_metadata.of_attempt(_found(commits), attempt)
        if receipt is not None or len(commits) < limit or int(commits[-1]["version"]) <= after:
            return receipt
        limit *= _MORE


def _found(commits: list[dict[str, Any]]) -> Iterator[tuple[str, Receipt]]:
    return user_metadata.receipts(
        (commit["version"], commit["timestamp"].astimezone(UTC), commit.get("userMetadata")) for commit in commits
    )
