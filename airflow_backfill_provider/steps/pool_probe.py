"""Whether the probe of a run's pool was skipped: who clears only what failed leaves it out, and its scope refuses to go on."""

from __future__ import annotations

from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.work import Work

PROBE_EVENT = "pool.probe"
"""A line of the audit trail: at its end, a run with this ``run_id`` had a skipped probe that a clear may leave out, or has not any more."""


def record_probe(work: Work, *, is_left_out: bool) -> None:
    """Remember what became of the probe of this run; nothing when that is known."""
    if is_left_out != _is_left_out(work.ledger, work.backfill_id, work.run_id):
        detail = {"run_id": work.run_id, "is_left_out": is_left_out}
        work.ledger.record_event(work.backfill_id, PROBE_EVENT, by=work.by, detail=detail)


def is_probe_left_out(ledger: Ledger, backfill: BackfillRecord) -> bool:
    """Whether clearing only what failed leaves the probe out of the run that works on the backfill, or did last."""
    return _is_left_out(ledger, backfill.backfill_id, backfill.run_id)


def _is_left_out(ledger: Ledger, backfill_id: str, run_id: str) -> bool:
    told = [event.detail for event in ledger.events(backfill_id, PROBE_EVENT) if event.detail["run_id"] == run_id]
    return bool(told) and bool(told[-1]["is_left_out"])
