"""Runs elsewhere that nobody has seen the end of: on record in the audit trail, gone on with, or ended by a stop."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from airflow_backfill_provider.errors import BackfillError, Stopped
from airflow_backfill_provider.recompute import Elsewhere
from airflow_backfill_provider.spec.transforms import ElsewhereTransform
from airflow_backfill_provider.steps.work import Work

SENT_EVENT = "elsewhere.sent"
"""A run is about to be submitted; its line has the run's name and where its rows go."""
BEGUN_EVENT = "elsewhere.begun"
"""It was submitted; its line has the run's name, and the handle by which it is looked at and ended."""
OVER_EVENT = "elsewhere.over"
"""Nobody waits for that run any more, with the reason."""


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
    """Record that nobody waits for it any more."""
    detail = {"key": errand.key, "name": errand.name, "reason": reason[:500]}
    work.ledger.record_event(work.backfill_id, OVER_EVENT, by=work.by, detail=detail)


def cancel(work: Work, elsewhere: Elsewhere, errand: Errand) -> None:
    """End it, if it can be ended; what it gives is not taken either way."""
    if errand.handle is None:
        work.log.warning("%s may go on: nobody answered whether it began. What it gives is not taken.", errand.name)
        return
    try:
        elsewhere.cancel(errand.handle)
    except BackfillError as unheard:
        work.log.warning("%s goes on, and what it gives is not taken: %s", errand.name, unheard)


def open_runs(work: Work, keys: Collection[str] | None = None) -> list[Errand]:
    """Every run that is on record and not over, oldest first; of these partitions, or of all."""
    sent = [
        event
        for event in work.ledger.events(work.backfill_id, SENT_EVENT)
        if keys is None or event.detail["key"] in keys
    ]
    if not sent:
        return []
    ended = {event.detail["name"] for event in work.ledger.events(work.backfill_id, OVER_EVENT)}
    handles = {
        event.detail["name"]: event.detail["handle"] for event in work.ledger.events(work.backfill_id, BEGUN_EVENT)
    }
    return [
        Errand(**event.detail, asked_at=event.at, handle=handles.get(event.detail["name"]))
        for event in sent
        if event.detail["name"] not in ended
    ]


@contextmanager
def ended_by_a_stop(work: Work, keys: Sequence[str]) -> Iterator[None]:
    """A stop that is met inside ends the runs of these partitions too that earlier attempts left open: nobody goes on with them."""
    try:
        yield
    except Stopped as stop:
        try:
            _end(work, keys, str(stop))
        except BackfillError as error:
            work.log.warning("Runs elsewhere that were left open may go on: %s", error)
        raise


def _end(work: Work, keys: Sequence[str], reason: str) -> None:
    spec = work.stored_plan().spec
    if not isinstance(spec.transform, ElsewhereTransform):
        return
    for errand in open_runs(work, keys):
        cancel(work, work.elsewhere(spec), errand)
        over(work, errand, reason)


def open_run_lines(work: Work) -> list[str]:
    """A line for each run that may go on when nothing of the backfill does any more, and what to do."""
    origin = work.stored_plan().spec.transform.origin
    return [
        f"May still run: {errand.name} of {origin}"
        + (f", whose id there is {errand.handle}" if errand.handle not in (None, errand.name) else "")
        + f", for {errand.key}. Nothing takes its rows any more, and this command cannot reach it: look for it there and end it."
        for errand in open_runs(work)
    ]
