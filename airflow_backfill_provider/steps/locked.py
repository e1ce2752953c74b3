"""How long a commit waited for its lock, and kept others from writing or reading: measured, and kept in the audit trail."""

from __future__ import annotations

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import WRITE_BLOCK_EVENT
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Receipt

_EVENT = "exchanged"


def record_lock(work: Work, receipt: Receipt) -> None:
    """Log and record it; nothing where nobody was kept out."""
    if receipt.write_block is not None and receipt.lock_wait is not None:
        detail = {
            "sequence": receipt.sequence,
            "action": str(receipt.action),
            "seconds": receipt.write_block.total_seconds(),
            "waited_seconds": receipt.lock_wait.total_seconds(),
        }
        work.ledger.record_event(work.backfill_id, WRITE_BLOCK_EVENT, by=work.by, detail=detail)
    if receipt.locked_for is None:
        return
    seconds = receipt.locked_for.total_seconds()
    work.log.info("Partitions were exchanged (%s)%s.", receipt.action, locked_words(seconds))
    detail = {"sequence": receipt.sequence, "action": str(receipt.action), "locked_seconds": seconds}
    work.ledger.record_event(work.backfill_id, _EVENT, by=work.by, detail=detail)


def locked_seconds(ledger: Ledger, backfill_id: str) -> float | None:
    """Of the last exchange; None when there was none, or its task died before it could say so."""
    seconds = [event.detail["locked_seconds"] for event in ledger.events(backfill_id, _EVENT)]
    return float(seconds[-1]) if seconds else None


def locked_words(seconds: float | None) -> str:
    """The end of a sentence about a commit."""
    return "" if seconds is None else f"; nobody could read the table for {seconds:.3f} s"
