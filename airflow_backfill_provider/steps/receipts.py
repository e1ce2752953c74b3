"""What the table's own log says happened to a range."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_backfill_provider.warehouses.base import Action, Receipt


def newest_of(receipts: Sequence[Receipt], backfill_id: str) -> Receipt | None:
    """The newest receipt of one backfill: what it did last, or ``None`` when it never wrote."""
    own = (receipt for receipt in receipts if receipt.backfill_id == backfill_id)
    return max(own, key=lambda receipt: receipt.sequence, default=None)


def standing_over(receipts: Sequence[Receipt], keys: Collection[str]) -> Receipt | None:
    """The newest publish over any of the partitions that was not rolled back since, or ``None``."""
    wanted = set(keys)
    undone = {receipt.backfill_id for receipt in receipts if receipt.action is Action.ROLLBACK}
    standing = (
        receipt for receipt in receipts if receipt.backfill_id not in undone and not wanted.isdisjoint(receipt.keys)
    )
    return max(standing, key=lambda receipt: receipt.sequence, default=None)
