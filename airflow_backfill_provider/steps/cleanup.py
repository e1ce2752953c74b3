"""Clean-up: drop what backfills left aside once its time is over, and never anything that one may still need.

What is about to be dropped is in the ledger before it is, in the transaction that ends the way back. So a clean-up that was
killed is finished by the next one, and a rollback either began before, which keeps the backup, or is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from airflow_backfill_provider.errors import BackfillError, Stopped
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.leftovers import Leftover, leftovers
from airflow_backfill_provider.steps.retention import WAY_BACK, Retention
from airflow_backfill_provider.steps.work import go_on
from airflow_backfill_provider.warehouses.base import Warehouse

DROPPING_EVENT = "storage.dropping"
DROPPED_EVENT = "storage.dropped"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CleanUp:
    """What one clean-up of a warehouse came to."""

    dropped: tuple[Leftover, ...] = ()
    failed: tuple[str, ...] = ()
    """A sentence for each thing that was due and could not be dropped."""
    kept: int = 0
    """Things whose time is not over, or that are needed, or unknown to the ledger."""


def clean_up(
    ledger: Ledger,
    warehouse: Warehouse,
    conn_id: str,
    *,
    now: datetime,
    by: str,
    check_stop: Callable[[], None] = go_on,
) -> CleanUp:
    """Drop everything in the warehouse whose time is over, and record it; a second call finds nothing to do.

    A completed backfill whose backup is dropped becomes ``expired``. One thing that cannot be dropped does not keep the
    others.

    :raises Stopped: a stop signal is set; what was dropped is recorded.
    """
    dropped: list[Leftover] = []
    failed: list[str] = []
    found = sorted(leftovers(ledger, warehouse, conn_id), key=lambda one: (one.item.backfill_id, one.item.location))
    for _, group in groupby(found, key=lambda one: one.item.backfill_id):
        due = [one for one in group if one.is_due(now)]
        if not due or (kept := due[0].retention) is None:
            continue
        check_stop()
        if not _announce(ledger, kept, due, conn_id, by):
            log.info("Backfill %s moved while it was looked at; the next clean-up decides.", kept.backfill.backfill_id)
            continue
        gone = []
        for one in due:
            try:
                warehouse.drop(one.item.location)
            except BackfillError as error:
                failed.append(f"{one.item.location} of backfill {one.item.backfill_id} was not dropped: {error}")
            else:
                gone.append(one)
        if gone:
            detail = {"conn_id": conn_id, "items": [_described(one) for one in gone]}
            ledger.record_event(kept.backfill.backfill_id, DROPPED_EVENT, by=by, detail=detail)
        dropped += gone
    return CleanUp(tuple(dropped), tuple(failed), len(found) - len(dropped) - len(failed))


def clean_up_all(
    ledger: Ledger,
    conn_ids: Sequence[str],
    open_warehouse: Callable[[str], Warehouse],
    *,
    now: datetime,
    by: str,
    check_stop: Callable[[], None],
    is_known: Callable[[str], bool],
) -> tuple[list[Leftover], list[str]]:
    """Clean up the warehouses behind these connections, without any behind every one that the ledger knows and Airflow has.

    What was dropped, and a sentence for each thing or warehouse that could not be.

    :raises Stopped: a stop signal is set.
    """
    dropped: list[Leftover] = []
    failed: list[str] = []
    for conn_id in conn_ids or ledger.connections():
        if not conn_ids and not is_known(conn_id):
            log.warning("Airflow has no connection %s: another installation cleans up there, or nobody does.", conn_id)
            continue
        try:
            with closing(open_warehouse(conn_id)) as warehouse:
                done = clean_up(ledger, warehouse, conn_id, now=now, by=by, check_stop=check_stop)
        except Stopped:
            raise
        except BackfillError as error:
            failed.append(f"The warehouse {conn_id} was not cleaned up: {error}")
        else:
            dropped += done.dropped
            failed += done.failed
    return dropped, failed


def _announce(ledger: Ledger, kept: Retention, due: Sequence[Leftover], conn_id: str, by: str) -> bool:
    ends = kept.backfill.state is BackfillState.COMPLETED and any(one.item.kind in WAY_BACK for one in due)
    return ledger.announce_drop(
        kept.backfill.backfill_id,
        DROPPING_EVENT,
        {"conn_id": conn_id, "items": [_described(one) for one in due]},
        seen=kept.seen,
        expire="its backup was kept for as long as it was to be" if ends else "",
        by=by,
    )


def _described(one: Leftover) -> dict[str, Any]:
    assert one.until is not None
    return {
        "kind": one.item.kind,
        "location": one.item.location,
        "bytes": one.item.bytes,
        "until": one.until.isoformat(),
    }
