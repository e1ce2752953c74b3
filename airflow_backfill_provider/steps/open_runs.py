"""The life of a run elsewhere, in the audit trail: on record, begun, over; or given up, while it may go on.

Until it is over it is open: the next attempt goes on with it, or ends it where it was given up. So does a stop end it, what it may
write beside the range is looked for, and whoever gives the backfill up is told of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_backfill_provider.errors import BackfillError, LedgerUnavailable, Stopped
from airflow_backfill_provider.recompute import Elsewhere
from airflow_backfill_provider.spec.transforms import ElsewhereTransform
from airflow_backfill_provider.steps.work import Work

SENT_EVENT = "elsewhere.sent"
"""A run is about to be submitted; its line has the run's name and where its rows go."""
BEGUN_EVENT = "elsewhere.begun"
"""It was submitted; its line has the run's name, and the handle by which it is looked at and ended."""
GIVEN_UP_EVENT = "elsewhere.given_up"
"""Nobody takes its rows any more, and it may go on: it could not be ended, with the reason."""
OVER_EVENT = "elsewhere.over"
"""It does nothing any more: its end was seen, or it was ended, with the reason."""


@dataclass(frozen=True)
class Errand:
    """One run for one partition."""

    key: str
    name: str
    """The same run is asked for by the same name, and no other has it."""
    address: Mapping[str, str]
    intent: str
    revision: int
    """What it was begun under."""
    asked_at: datetime
    """When it was put on record, a moment before it was submitted."""
    handle: str | None = None
    """What it is looked at by; None while nobody knows whether it was submitted."""
    is_given_up: bool = False
    """Whether nobody takes its rows any more."""


def put_on_record(work: Work, errand: Errand) -> None:
    """Before it is submitted, so that whoever comes next asks for the same."""
    detail = {
        "key": errand.key,
        "name": errand.name,
        "address": errand.address,
        "intent": errand.intent,
        "revision": errand.revision,
    }
    work.ledger.record_event(work.backfill_id, SENT_EVENT, by=work.by, detail=detail)


def begun(work: Work, errand: Errand, handle: str) -> None:
    """Record that it was submitted."""
    detail = {"name": errand.name, "handle": handle}
    work.ledger.record_event(work.backfill_id, BEGUN_EVENT, by=work.by, detail=detail)


def over(work: Work, errand: Errand, reason: str) -> None:
    """Record that it does nothing any more."""
    _record(work, OVER_EVENT, errand, reason)


def over_as_far_as_known(work: Work, errand: Errand, reason: str) -> None:
    """The same of a run whose rows are not taken. A ledger that is away changes nothing of that: without the line, the next attempt
    finds the run and how it ended."""
    _record_if_possible(work, OVER_EVENT, errand, reason)


def end(work: Work, elsewhere: Elsewhere, errand: Errand, reason: str) -> None:
    """End a run whose rows are not taken, and record that it is over; or that it is given up, where it may go on."""
    try:
        _end_there(elsewhere, errand)
    except BackfillError as unheard:
        work.log.warning("%s may go on, and what it gives is not taken: %s", errand.name, unheard)
        if not errand.is_given_up:
            _record_if_possible(work, GIVEN_UP_EVENT, errand, f"{reason[:200]} It could not be ended: {unheard}")
    else:
        over_as_far_as_known(work, errand, reason)


def _end_there(elsewhere: Elsewhere, errand: Errand) -> None:
    """End it, unless it is over or was never begun.

    :raises BackfillError: it may go on.
    """
    handle = errand.handle or elsewhere.find(errand.name)
    if handle is None:
        return
    with suppress(BackfillError):  # what cannot be looked at may be ended all the same
        if elsewhere.look(handle).is_over:
            return
    elsewhere.cancel(handle)


def _record(work: Work, event: str, errand: Errand, reason: str) -> None:
    detail = {"key": errand.key, "name": errand.name, "reason": reason[:500]}
    work.ledger.record_event(work.backfill_id, event, by=work.by, detail=detail)


def _record_if_possible(work: Work, event: str, errand: Errand, reason: str) -> None:
    try:
        _record(work, event, errand, reason)
    except LedgerUnavailable as away:
        work.log.warning("%s is not waited for any more, and the ledger does not say so yet: %s", errand.name, away)


def open_runs(work: Work, keys: Collection[str] | None = None) -> list[Errand]:
    """Every run that is on record and not over, oldest first; of these partitions, or of all."""
    sent = [
        event
        for event in work.ledger.events(work.backfill_id, SENT_EVENT)
        if keys is None or event.detail["key"] in keys
    ]
    if not sent:
        return []
    ended, given_up = (
        {event.detail["name"] for event in work.ledger.events(work.backfill_id, action)}
        for action in (OVER_EVENT, GIVEN_UP_EVENT)
    )
    handles = {
        event.detail["name"]: event.detail["handle"] for event in work.ledger.events(work.backfill_id, BEGUN_EVENT)
    }
    return [
        Errand(
            **event.detail,
            asked_at=event.at,
            handle=handles.get(event.detail["name"]),
            is_given_up=event.detail["name"] in given_up,
        )
        for event in sent
        if event.detail["name"] not in ended
    ]


@contextmanager
def ended_by_a_stop(work: Work, keys: Collection[str]) -> Iterator[None]:
    """A stop that is met inside ends the runs of these partitions too that earlier attempts left open: nobody goes on with them.

    Name those that the step itself computes: for a run of any other a task beside it may still wait.
    """
    try:
        yield
    except Stopped as stop:
        try:
            _end_all(work, keys, str(stop))
        except BackfillError as error:
            work.log.warning("Runs elsewhere that were left open may go on: %s", error)
        raise


def _end_all(work: Work, keys: Collection[str], reason: str) -> None:
    spec = work.stored_plan().spec
    if not isinstance(spec.transform, ElsewhereTransform):
        return
    for errand in open_runs(work, keys):
        end(work, work.elsewhere(spec), errand, reason)


def open_run_lines(work: Work) -> list[str]:
    """A line for each run that may go on when nothing of the backfill does any more, and what to do."""
    origin = work.stored_plan().spec.transform.origin
    return [
        f"May still run: {errand.name} of {origin}"
        + (f", whose id there is {errand.handle}" if errand.handle not in (None, errand.name) else "")
        + f", for {errand.key}. Nothing takes its rows any more, and this command cannot reach it: look for it there and end it."
        for errand in open_runs(work)
    ]
