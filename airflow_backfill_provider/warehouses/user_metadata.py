"""Receipts in a Delta commit's ``userMetadata``, which whoever commits may fill with text, and every history shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt

_OURS = "safe_backfill"


def written(publication: Publication, attempt: str, deleted: int, inserted: int) -> str:
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


def receipts(commits: Iterable[tuple[int, datetime, Any]]) -> Iterator[tuple[str, Receipt]]:
    """The attempt and the receipt of each commit that has one.

    :param commits: version, time in UTC and ``userMetadata`` of each, which may be anything.
    """
    for version, at, text in commits:
        if (ours := _ours(text)) is not None:
            yield (
                ours["attempt"],
                Receipt(
                    sequence=version,
                    backfill_id=ours["backfill_id"],
                    action=Action(ours["action"]),
                    plan_hash=ours["plan_hash"],
                    keys=tuple(ours["partition_keys"]),
                    deleted=ours["deleted"],
                    inserted=ours["inserted"],
                    committed_at=at,
                ),
            )


def oldest_first(found: Iterable[tuple[str, Receipt]]) -> tuple[Receipt, ...]:
    """The receipts in the order of their versions."""
    return tuple(sorted((receipt for _, receipt in found), key=lambda receipt: receipt.sequence))


def of_attempt(found: Iterable[tuple[str, Receipt]], attempt: str) -> Receipt | None:
    """The receipt of that very commit; None when it is not among them."""
    return next((receipt for made_by, receipt in found if made_by == attempt), None)


def _ours(text: Any) -> dict[str, Any] | None:
    """What we wrote; None of whatever others keep there."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return None
    ours = found.get(_OURS) if isinstance(found, dict) else None
    return ours if isinstance(ours, dict) else None
