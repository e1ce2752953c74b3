"""What the table's own log says happened to a range."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_backfill_provider.warehouses.base import Action, Receipt


@dataclass(frozen=True)
class Written:
    """What one backfill did to the table, by its receipts; where the table kept none, by the ledger."""

    publishes: tuple[Receipt, ...] = ()
    """Those of its commits that were not rolled back."""
    undone: frozenset[str] = frozenset()
    """Keys whose rows were published and put back; those of a commit that came after that are published as well."""
    by_ledger: frozenset[str] = frozenset()
    """Keys whose rows it published by the ledger's word alone: the table's log does not go back to their receipts."""

    @property
    def published(self) -> frozenset[str]:
        """Keys whose rows it published and did not put back."""
        return self.by_ledger.union(*(receipt.keys for receipt in self.publishes))

    @property
    def put_back(self) -> frozenset[str]:
        """Keys whose rows it put back, and that hold none that it published since."""
        return self.undone - self.published


def written_by(receipts: Sequence[Receipt], backfill_id: str) -> Written:
    """What this backfill wrote. A rollback undoes the publish of the same keys."""
    publishes: list[Receipt] = []
    undone: set[str] = set()
    for receipt in _ordered(receipts):
        if receipt.backfill_id != backfill_id:
            continue
        if receipt.action is Action.PUBLISH:
            publishes.append(receipt)
        else:
            back = frozenset(receipt.keys)
            undone |= back
            publishes = [one for one in publishes if back.isdisjoint(one.keys)]
    return Written(tuple(publishes), frozenset(undone))


def standing_over(receipts: Sequence[Receipt], keys: Collection[str]) -> Receipt | None:
    """The newest publish over any of the partitions that was not rolled back since, or ``None``."""
    standing: dict[str, list[Receipt]] = {key: [] for key in keys}
    for receipt in _ordered(receipts):
        for key in standing.keys() & set(receipt.keys):
            if receipt.action is Action.PUBLISH:
                standing[key].append(receipt)
            else:
                standing[key] = [one for one in standing[key] if one.backfill_id != receipt.backfill_id]
    newest = [stack[-1] for stack in standing.values() if stack]
    return max(newest, key=lambda receipt: receipt.sequence, default=None)


def since_rollback(receipts: Sequence[Receipt], backfill_id: str) -> list[Receipt]:
    """Every commit after the newest that rolled the backfill back, oldest first; all that are left where there is none."""
    ordered = _ordered(receipts)
    rollbacks = [
        number
        for number, one in enumerate(ordered, 1)
        if (one.backfill_id, one.action) == (backfill_id, Action.ROLLBACK)
    ]
    return ordered[max(rollbacks, default=0) :]


def receipt_detail(receipt: Receipt, mechanism: str) -> dict[str, Any]:
    """What the audit trail keeps of it, in a :data:`~airflow_backfill_provider.ledger.trail.RECEIPT_EVENT`."""
    return {
        "action": str(receipt.action),
        "mechanism": mechanism,
        "sequence": receipt.sequence,
        "partitions": len(receipt.keys),
        "deleted": receipt.deleted,
        "inserted": receipt.inserted,
    }


def _ordered(receipts: Sequence[Receipt]) -> list[Receipt]:
    return sorted(receipts, key=lambda receipt: receipt.sequence)


def longest_write_block(receipts: Sequence[Receipt | None]) -> float | None:
    """For how many seconds nobody else could write, in the commit that took longest; None where nobody was kept out."""
    blocks = [one.write_block.total_seconds() for one in receipts if one is not None and one.write_block is not None]
    return max(blocks, default=None)
