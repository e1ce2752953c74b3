"""Retention: until when what a backfill left aside is kept, and who asked for longer. From the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.ledger.records import BackfillRecord, EventRecord
from airflow_backfill_provider.ledger.states import RELEASES_LOCK, BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.moves import last_moved_at
from airflow_backfill_provider.steps.replaced import replaced
from airflow_backfill_provider.steps.stored import stored_plan

WAY_BACK = frozenset({"backup", "version"})
"""The kinds of storage that a rollback restores from."""
_KEPT_EVENT = "storage.kept"


@dataclass(frozen=True)
class Retention:
    """What decides until when the storage of one backfill is kept; times are aware UTC."""

    backfill: BackfillRecord
    spec: BackfillSpec
    published_at: datetime | None
    """When it was last found to be published, as it should be or not; None when it never was."""
    ended_at: datetime | None
    """When it was completed, rolled back or given up, whichever came last; None while it is not over.

    One that was given up, and of which rows are published all the same, is not over."""
    kept_until: datetime | None
    """What a person asked for; None when nobody did."""
    rolling_back: bool
    """A rollback has begun and is not over."""
    seen: int
    """The newest line of the audit trail that this rests on."""

    def until(self, kind: str) -> datetime | None:
        """The instant from which storage of this kind may be dropped; None while the backfill may still need it."""
        if self.ended_at is None or self.rolling_back:
            return None
        if kind in WAY_BACK:
            # A commit may come after the backfill was given up, unseen, and its way back is kept from there.
            rolled_back = self.backfill.state is BackfillState.ROLLED_BACK
            since = self.ended_at if rolled_back else self.published_at or self.ended_at
            due = since + self.spec.rollback.keep_for
        else:
            due = self.ended_at + self.spec.compute.keep_stages_for
        return max(due, self.kept_until or due)

    @property
    def needed_by(self) -> str:
        """Why there is no date, in words; empty when there is one."""
        if self.rolling_back:
            return "its rollback is under way"
        if self.ended_at is not None:
            return ""
        given_up = self.backfill.state is BackfillState.EXPIRED
        return "it was given up, and rows of it are published" if given_up else f"it is {self.backfill.state}"


def retention(ledger: Ledger, backfill_id: str) -> Retention | None:
    """What the ledger says of one backfill's storage; None when it knows no such backfill."""
    if ledger.find_backfill(backfill_id) is None:
        return None
    seen = ledger.last_sequence(backfill_id)  # first: whatever is recorded from here on makes the rest out of date
    backfill = ledger.backfill(backfill_id)
    plan = stored_plan(ledger, backfill_id)
    moves = ledger.events(backfill_id, MOVED_EVENT)
    return Retention(
        backfill=backfill,
        spec=plan.spec,
        published_at=last_moved_at(moves, BackfillState.PUBLISHED, BackfillState.PUBLISHED_UNVERIFIED),
        ended_at=_ended_at(ledger, backfill, plan, moves),
        kept_until=kept_until(ledger.events(backfill_id, _KEPT_EVENT)),
        rolling_back=ledger.is_on_way_back(backfill_id),
        seen=seen,
    )


def keep(ledger: Ledger, backfill_id: str, until: datetime, *, now: datetime, by: str, reason: str) -> None:
    """Keep everything that the backfill left aside at least until then; recorded, and never shortened.

    :raises RequestError: that is over already, or no longer than it is kept anyway.
    :raises LedgerError: there is no such backfill, or its way back has ended.
    """
    ledger.backfill(backfill_id)
    found = retention(ledger, backfill_id)
    assert found is not None
    if until <= now:
        raise RequestError(f"{until:%Y-%m-%dT%H:%M:%SZ} is over; give a later instant. Nothing was changed.")
    already = found.until("backup")
    if already is not None and until <= already:
        raise RequestError(
            f"The backup of {backfill_id} is kept until {already:%Y-%m-%dT%H:%M:%SZ} as it is, and that is never shortened. "
            "Nothing was changed."
        )
    detail = {"until": until.isoformat(), "reason": reason}
    open_to_it = frozenset(BackfillState) - {BackfillState.EXPIRED}
    ledger.record_event(backfill_id, _KEPT_EVENT, by=by, detail=detail, expected=open_to_it)


def kept_until(events: Iterable[EventRecord]) -> datetime | None:
    """The latest instant that a person asked for, among these lines of the audit trail; None when nobody did."""
    asked = (datetime.fromisoformat(event.detail["until"]) for event in events if event.action == _KEPT_EVENT)
    return max(asked, default=None)


def _ended_at(ledger: Ledger, backfill: BackfillRecord, plan: Plan, moves: list[EventRecord]) -> datetime | None:
    if backfill.state not in RELEASES_LOCK:
        return None
    # One that expired because its backup was dropped was over when it was completed.
    ended = last_moved_at(moves, BackfillState.COMPLETED, BackfillState.ROLLED_BACK)
    if ended is None and replaced(plan, ledger.partitions(backfill.backfill_id)):
        return None
    return ended or last_moved_at(moves, BackfillState.EXPIRED)
