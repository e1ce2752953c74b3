"""One partition by a run elsewhere: submit it, wait, take its rows; go on with the run of a worker that was killed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from secrets import token_hex

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
from airflow_backfill_provider.steps.open_runs import (
    SENT_EVENT,
    Errand,
    begun,
    end,
    open_runs,
    over,
    over_as_far_as_known,
    put_on_record,
)
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
    return replace(recompute, fill=lambda landing: _Attempt(work, plan, partition, runs, landing).fill())


class _Attempt:
    """One attempt at one partition: it goes on with the run that an earlier one left, and begins one of its own otherwise."""

    def __init__(self, work: Work, plan: Plan, partition: Partition, runs: ElsewhereSpec, landing: Landing) -> None:
        self._work, self._plan, self._partition = work, plan, partition
        self._runs, self._landing = runs, landing
        self._elsewhere = work.elsewhere(plan.spec)

    def fill(self) -> None:
        """Have a run's rows in the landing.

        :raises CodeFailed: the run failed, was refused, or took too long.
        :raises RunLeftOpen: nobody answered for it; it was not ended.
        :raises Stopped: a stop signal is set; the run was ended, as far as it can be.
        """
        if (left := self._left()) is not None:
            if not (failure := self._take(left)):
                return
            # Its end is no failure of this attempt: it may be the very end that a stop made of it.
            self._work.log.warning("%s failed, so another run takes its place: %s", left.name, failure)
        mine = self._new()
        if failure := self._take(mine, is_new=True):
            raise CodeFailed(f"{mine.name} failed: {failure} Nothing of it was kept.")

    def _left(self) -> Errand | None:
        """The run that a killed worker waited for, under the same intent and plan; None when there is none. Any other is ended.

        What a run's own code does is in no hash, so that one which began before a restage or a rebase is never gone on with.
        """
        work, found = self._work, open_runs(self._work, [self._partition.key])
        waited = [errand for errand in found if not errand.is_given_up]
        under = self._plan.intent_hash, work.revision
        left = waited[-1] if waited and (waited[-1].intent, waited[-1].revision) == under else None
        for errand in found:
            if errand is not left:
                end(work, self._elsewhere, errand, "nobody goes on with it")
        if left is not None:
            work.log.info("Going on with %s, which an earlier attempt began.", left.name)
        return left

    def _new(self) -> Errand:
        """The next run of the partition, on record before it is submitted: whoever comes next asks for the same.

        A ledger that was made anew counts from one again, and a run of that name may be there: the name has a token beside the number.
        """
        work, key = self._work, self._partition.key
        before = [one for one in work.ledger.events(work.backfill_id, SENT_EVENT) if one.detail["key"] == key]
        name = f"safe_backfill__{work.backfill_id}__{_plain(key)}__{len(before) + 1}_{token_hex(3)}"
        address = dict(self._landing.address)
        errand = Errand(key, name, address, self._plan.intent_hash, work.revision, work.now())
        put_on_record(work, errand)
        return errand

    def _take(self, errand: Errand, *, is_new: bool = False) -> str:
        """Wait for the run and take its rows; how it failed, or nothing when they were taken."""
        try:
            failure = self._wait(errand, is_new=is_new)
            if not failure:
                self._collect(errand)
        except TRANSIENT as unheard:
            raise RunLeftOpen(
                f"{errand.name} was left as it is, and may go on: {unheard} It was not ended; the next attempt of this task goes on with it."
            ) from unheard
        return failure

    def _wait(self, errand: Errand, *, is_new: bool) -> str:
        """Wait until the run is over; how it failed, or nothing. Whatever else ends the wait ends the run, but that nobody answers."""
        work = self._work
        try:
            if (handle := errand.handle) is None:
                told = {**self._runs.extras, **told_of(self._partition, work.backfill_id), **errand.address}
                handle = self._elsewhere.submit(errand.name, told)
                errand = replace(errand, handle=handle)
                begun(work, errand, handle)
            progress = self._end_of(errand, handle)
        except TRANSIENT:
            raise
        except BaseException as error:  # an execution_timeout, or a kill, is none of Exception's
            reason = f"{type(error).__name__}: {error}"
            if errand.handle is not None:
                end(work, self._elsewhere, errand, reason)
            elif is_new and isinstance(error, CodeFailed):  # otherwise it may have begun, and the next attempt asks
                over_as_far_as_known(work, errand, reason)
            if isinstance(error, Stopped):
                _halt_as_far_as_known(work, error)
            raise
        if progress.failure:
            over_as_far_as_known(work, errand, progress.failure)
        return progress.failure

    def _end_of(self, errand: Errand, handle: str) -> Progress:
        """:raises CodeFailed: it cannot be looked at, or takes too long.
        :raises ConnectionLost: nobody has answered for :data:`PATIENCE`.
        :raises Stopped: a stop signal is set.
        """
        work, runs = self._work, self._runs
        work.log.info("Waiting for %s.", errand.name)
        until = errand.asked_at + runs.timeout
        look = _Look(work, self._elsewhere, errand.name, handle)
        while not (progress := look()).is_over:
            if (left := (until - work.now()).total_seconds()) <= 0:
                raise CodeFailed(
                    f"{errand.name} was not over after {write_duration(runs.timeout)}, the timeout of the transform, and is ended if it "
                    "can be; nothing of it was kept. Raise the timeout, or let a run do less."
                )
            work.pause(min(left, runs.poll_every.total_seconds()))
            work.check_stop()
        return progress

    def _collect(self, errand: Errand) -> None:
        try:
            self._landing.collect(errand.address)
            over(self._work, errand, "its rows were taken")
        except TRANSIENT:
            raise
        except BaseException as error:
            over_as_far_as_known(self._work, errand, f"{type(error).__name__}: {error}")
            raise


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


def _plain(key: str) -> str:
    """The key as part of a run's id; one that has other characters is told apart by its hash."""
    plain = re.sub(r"[^A-Za-z0-9_.~+-]", "_", key)
    return plain if plain == key else f"{plain}_{sha256(key.encode()).hexdigest()[:8]}"
