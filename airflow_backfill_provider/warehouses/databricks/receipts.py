"""Receipts: what each publish and rollback left in the metadata of its own commit, read back from the table's history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt
from airflow_backfill_provider.warehouses.databricks.session import Session

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The parameter of a session that every commit made in it carries."""
_OURS = "safe_backfill"
_RECENT = 20


def metadata(publication: Publication, attempt: str, deleted: int, inserted: int) -> str:
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
    return json.dumps({_OURS: ours})


def read(session: Session, table: str) -> tuple[Receipt, ...]:
    """Every receipt of the table, oldest first, as far back as its history goes."""
    found = _found(session.records(f"DESCRIBE HISTORY {table}"))
    return tuple(receipt for _, receipt in sorted(found, key=lambda one: one[1].sequence))


def of_attempt(session: Session, table: str, attempt: str) -> Receipt | None:
    """The receipt of that very commit, which is recent; None when it never happened."""
    recent = session.records(f"DESCRIBE HISTORY {table} LIMIT {_RECENT}")
    return next((receipt for made_by, receipt in _found(recent) if made_by == attempt), None)


def _found(history: list[dict[str, Any]]) -> Iterator[tuple[str, Receipt]]:
    for commit in history:
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
                    committed_at=commit["timestamp"].astimezone(UTC),
                ),
            )


def _ours(text: Any) -> Mapping[str, Any] | None:
    """What we wrote; None of whatever others keep there."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return None
    ours = found.get(_OURS) if isinstance(found, dict) else None
    return ours if isinstance(ours, dict) else None
