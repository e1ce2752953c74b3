"""Receipts: what each publish and rollback left in the metadata of its own commit, read back from the table's log.

``backfill_id`` stands beside them for people; Spark's history shows nothing but ``userMetadata``, so all of it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from deltalake import CommitProperties, DeltaTable

from airflow_backfill_provider.warehouses import user_metadata
from airflow_backfill_provider.warehouses.base import Publication, Receipt

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def commit_properties(publication: Publication, attempt: str, deleted: int, inserted: int) -> CommitProperties:
    """What goes into the commit; ``attempt`` tells this one from every other."""
    text = user_metadata.written(publication, attempt, deleted, inserted)
    return CommitProperties(custom_metadata={"backfill_id": publication.backfill_id, "userMetadata": text})


def read(table: DeltaTable) -> tuple[Receipt, ...]:
    """Every receipt of the table, oldest first, as far back as its log goes."""
    return user_metadata.oldest_first(_found(table))


def of_attempt(table: DeltaTable, attempt: str) -> Receipt | None:
    """The receipt of that very commit; None when it never happened."""
    return user_metadata.of_attempt(_found(table), attempt)


def _found(table: DeltaTable) -> Iterator[tuple[str, Receipt]]:
    return user_metadata.receipts(
        (commit["version"], _EPOCH + timedelta(milliseconds=commit["timestamp"]), commit.get("userMetadata"))
        for commit in table.history()
    )
