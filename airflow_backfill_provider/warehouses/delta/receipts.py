"""Receipts: what each publish and rollback left in the metadata of its own commit, read back from the table's log.

``backfill_id`` stands beside them for people; Spark's history shows nothing but ``userMetadata``, so all of it is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake import CommitProperties, DeltaTable

from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt

_OURS = "safe_backfill"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def commit_properties(publication: Publication, attempt: str, deleted: int, inserted: int) -> CommitProperties:
    """What goes into the commit; ``attempt`` tells this one from every other."""
    ours = {
        "backfill_id": publication.backfill_id,
        "action": publication.action,
        "plan_hash": publication.plan_hash,
        "partition_keys": [partition.key for partition in publication.partitions],
        "deleted": deleted,
        "inserted": inserted,
        "attempt": attempt,
    }
    return CommitProperties(
        custom_metadata={"backfill_id": publication.backfill_id, "userMetadata": json.dumps({_OURS: ours})}
    )


def read(table: DeltaTable) -> tuple[Receipt, ...]:
    """Every receipt of the table, oldest first, as far back as its log goes."""
    return tuple(receipt for _, receipt in sorted(_found(table), key=lambda one: one[1].sequence))


def of_attempt(table: DeltaTable, attempt: str) -> Receipt | None:
    """The receipt of that very commit; None when it never happened."""
    return next((receipt for made_by, receipt in _found(table) if made_by == attempt), None)


def _found(table: DeltaTable) -> Iterator[tuple[str, Receipt]]:
    for commit in table.history():
        if (ours := _ours(commit.get("userMetadata"))) is not None:
            yield (
                ours["attempt"],
                Receipt(
                    sequence=commit["version"],
                    backfill_id=ours["backfill_id"],
                    action=Action(ours["action"]),
                    plan_hash=ours["plan_hash"],
                    keys=tuple(ours["partition_keys"]),
                    deleted=ours["deleted"],
                    inserted=ours["inserted"],
                    committed_at=_EPOCH + timedelta(milliseconds=commit["timestamp"]),
                ),
            )


def _ours(text: Any) -> dict[str, Any] | None:
    """What we wrote; None of whatever others keep there."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return None
    ours = found.get(_OURS) if isinstance(found, dict) else None
    return ours if isinstance(ours, dict) else None
