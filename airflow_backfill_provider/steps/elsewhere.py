"""One partition by a run elsewhere: submit it, wait, take its rows; go on with the run of a worker that was killed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from secrets import token_hex
from typing import Any

from airflow_backfill_provider.errors import (
    TRANSIENT,
    CodeFailed,
    ConnectionLost,
    LedgerUnavailable,
    RunLeftOpen,
    Stopped,
)
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.recompute import Elsewhere, Progress
from airflow_backfill_provider.recompute.elsewhere import told_of
from airflow_backfill_provider.spec.elsewhere import ElsewhereSpec
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.spec.transforms import ElsewhereTransform
from airflow_backfill_provider.steps.open_runs import SENT_EVENT, Errand, begun, cancel, open_runs, over, put_on_record
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Landing, Recompute
from airflow_backfill_provider.windows import Partition

PATIENCE = timedelta(minutes=10)
"""How long nobody may answer how a run is, before it is left open for the next attempt."""


def sent(work: Work, plan: Plan, recompute: Recompute) -> Recompute:
    """The recompute whose landing a run elsewhere fills.

    Filling it raises :class:`RunLeftOpen` when nobody answered, be it for the run, its rows or the ledger: the run is neither ended nor
    forgotten, and the next attempt goes on with it.
    """
    transform = plan.spec.transform
    if not isinstance(transform, ElsewhereTransform):
        return recompute
    (partition,) = recompute.partitions
    runs = transform.runs

    def fill(landing: Landing) -> None:
        errand = _open(work, plan, partition) or _new(work, plan, partition, landing)
        told = {**runs.extras, **told_of(partition, work.backfill_id), **errand.address}
        try:
            _wait(work, work.elsewhere(plan.spec), errand, told, runs)
            landing.collect(errand.address)
            over(work, errand, "its rows were taken")
        except TRANSIENT as unheard:
            raise RunLeftOpen(
                f"{errand.name} was left as it is, and may go on: {unheard} It was not ended; the next attempt of this task goes on with it."
            ) from unheard
        except BaseException as error:  # an execution_timeout, or a kill, is none of Exception's
            _over_as_far_as_known(work, errand, f"{type(error).__name__}: {error}")
            raise

    return replace(recompute, fill=fill)


def _wait(work: Work, elsewhere: Elsewhere, errand: Errand, told: Mapping[str, Any], runs: ElsewhereSpec) -> None:
    """Wait until the run is over.

    :raises CodeFailed: it failed, was refused, or took too long; one that took too long was cancelled.
    :raises ConnectionLost: nobody has answered for :data:`PATIENCE`; it was not cancelled.
    :raises Stopped: a stop signal is set; the run was cancelled.
    """
    try:
        if (handle := errand.handle) is None:
            handle = elsewhere.submit(errand.name, told)
            errand = replace(errand, handle=handle)
            begun(work, errand, handle)
        work.log.info("Waiting for %s.", errand.name)
        until = errand.asked_at + runs.timeout
        look = _Look(work, elsewhere, errand.name, handle)
        while not (progress := look()).is_over:
            if (left := (until - work.now()).total_seconds()) <= 0:
                raise CodeFailed(
                    f"{errand.name} was not over after {write_duration(runs.timeout)}, the timeout of the transform, and was ended; nothing "
                    "of it was kept. Raise the timeout, or let a run do less."
                )
            work.pause(min(left, runs.poll_every.total_seconds()))
            work.check_stop()
    except TRANSIENT:
        raise
    except BaseException as error:
        if errand.handle is not None:
            cancel(work, elsewhere, errand)
        if isinstance(error, Stopped):
            _halt_as_far_as_known(work, error)
        raise
    if progress.failure:
        raise CodeFailed(f"{errand.name} failed: {progress.failure} Nothing of it was kept.")


class _Look:
    """Looks how far one run is; while nobody answers it goes on as far as is known."""

    def __init__(self, work: Work, elsewhere: Elsewhere, name: str, handle: str) -> None:
        self._work, self._elsewhere, self._name, self._handle = work, elsewhere, name, handle
        self._heard_at = work.now()

    def __call__(self) -> Progress:
        """How far it is.

        :raises ConnectionLost: nobody has answered for :data:`PATIENCE`.
        """
        try:
            progress = self._elsewhere.look(self._handle)
        except ConnectionLost as unheard:
            if self._work.now() - self._heard_at >= PATIENCE:
                raise
            self._work.log.warning("%s is waited for, although nobody answers how it is: %s", self._name, unheard)
            return Progress(is_over=False)
        self._heard_at = self._work.now()
        return progress


def _halt_as_far_as_known(work: Work, stop: Stopped) -> None:
    """A ledger that is away takes nothing from the stop, which the run was ended for already."""
    try:
        work.halt(stop)
    except LedgerUnavailable as away:
        work.log.warning("The backfill is stopped, and the ledger does not say so yet: %s", away)


def _over_as_far_as_known(work: Work, errand: Errand, reason: str) -> None:
    """The same of why the run was left: without its line, the next attempt finds the run and how it ended."""
    try:
        over(work, errand, reason)
    except LedgerUnavailable as away:
        work.log.warning("%s is not waited for any more, and the ledger does not say so yet: %s", errand.name, away)


def _open(work: Work, plan: Plan, partition: Partition) -> Errand | None:
    """The run that a killed worker waited for, under the same intent and plan; None when there is none.

    What a run's own code does is in no hash, so that one which began before a restage or a rebase is never gone on with.
    """
    left = open_runs(work, [partition.key])
    if not left or (left[-1].intent, left[-1].revision) != (plan.intent_hash, work.revision):
        return None
    work.log.info("Going on with %s, which an earlier attempt began.", left[-1].name)
    return left[-1]


def _new(work: Work, plan: Plan, partition: Partition, landing: Landing) -> Errand:
    """The next run of the partition, on record before it is submitted: whoever comes next asks for the same.

    A ledger that was made anew counts from one again, and a run of that name may be there: the name has a token beside the number.
    """
    before = [one for one in work.ledger.events(work.backfill_id, SENT_EVENT) if one.detail["key"] == partition.key]
    name = f"safe_backfill__{work.backfill_id}__{_plain(partition.key)}__{len(before) + 1}_{token_hex(3)}"
    errand = Errand(partition.key, name, dict(landing.address), plan.intent_hash, work.revision, work.now())
    put_on_record(work, errand)
    return errand


def _plain(key: str) -> str:
    """The key as part of a run's id; one that has other characters is told apart by its hash."""
    plain = re.sub(r"[^A-Za-z0-9_.~+-]", "_", key)
    return plain if plain == key else f"{plain}_{sha256(key.encode()).hexdigest()[:8]}"
