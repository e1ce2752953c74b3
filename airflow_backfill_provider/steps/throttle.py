"""Throttle: wait while others need the warehouse. Any one condition is enough, none can be overridden, and every wait ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from airflow_backfill_provider.errors import Throttled, WaitedTooLong
from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.spec.throttle import Throttle
from airflow_backfill_provider.steps.live_lag import LAG_EVENT, Moment
from airflow_backfill_provider.steps.metrics import THROTTLED_SECONDS, Metrics, Untold
from airflow_backfill_provider.steps.way_on import clear_command, published_so_far

THROTTLED_EVENT = "throttle.waiting"
RELEASED_EVENT = "throttle.over"
Probe = Callable[[Throttle], object]
"""Measures a condition; whatever it raises, or returns that is no number, means that it cannot be read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reason:
    """Why a backfill waits now."""

    throttle: Throttle
    until: datetime
    """When to look again."""
    value: float | None = None
    """What was measured; None when that could not be read, and for quiet hours."""
    unreadable: str = ""

    def __str__(self) -> str:
        name, limit = self.throttle.name, self.throttle.max
        if self.throttle.quiet_hours is not None:
            return f"{name}: quiet hours {self.throttle.quiet_hours} in {self.throttle.timezone}"
        if self.value is None:
            return f"{name} cannot be read, which means wait ({self.unreadable}); its limit is {limit:g}"
        return f"{name} is {self.value:g}, above {limit:g}"


@dataclass
class Throttling:
    """The conditions of one backfill, as one task looks at them; call it between partitions."""

    ledger: Ledger
    backfill_id: str
    throttles: Sequence[Throttle]
    probe: Probe
    now: Callable[[], datetime]
    by: str
    metrics: Metrics = field(default_factory=Untold)
    run_id: str = ""
    """The DAG run that works."""
    clear_number: int = 0
    """How often that run was cleared."""
    _believed_until: dict[str, datetime] = field(default_factory=dict)
    _looked: bool = False
    """Whether this task has asked the ledger if somebody was waiting."""

    def __call__(self) -> None:
        """Go on when nothing is a reason to wait.

        :raises Throttled: something is; ``.again_at`` says when to look again.
        :raises WaitedTooLong: it has been one for longer than it may, as this task sees it or another of this try of the run did.
        """
        if not self.throttles:
            return
        self._require_patience()
        reason = self._first_reason()
        if reason is None:
            if not self._looked:
                self._looked = True
                self._release()
            return
        self._looked = False
        now, name = self.now(), reason.throttle.name
        waits = _waits(self.ledger, self.backfill_id)
        if not waits or waits[-1].detail["name"] != name:
            self._record(THROTTLED_EVENT, reason)
        waited = _waited(waits, name, now)
        since = next((wait.at for wait in waits if wait.detail["name"] == name), now)
        if reason.throttle.quiet_hours is None and waited > reason.throttle.give_up_after:
            self._record(
                RELEASED_EVENT,
                reason,
                gave_up=f"{reason}, since {since:%Y-%m-%dT%H:%M:%SZ}, which is longer than its give_up_after of "
                f"{write_duration(reason.throttle.give_up_after)}",
                run_id=self.run_id,
                clear_number=self.clear_number,
            )
            self._require_patience()
        raise Throttled(
            f"Waiting since {since:%Y-%m-%dT%H:%M:%SZ}: {reason}. Looking again at {reason.until:%Y-%m-%dT%H:%M:%SZ}.",
            reason.until,
        )

    def measure_lag(self, moment: Moment) -> None:
        """Look at every live lag, for the audit trail alone; one that cannot be read stands there as that."""
        for throttle in self.throttles:
            if throttle.live_lag:
                try:
                    self._measured(throttle, moment)
                except Exception as error:  # whatever it is, nothing hangs on this number
                    log.warning("The live lag %s cannot be read.", throttle.name, exc_info=error)

    def _measured(self, throttle: Throttle, moment: Moment) -> float:
        """What the condition measures now; of a live lag it goes into the audit trail. Raises what the probe does."""
        value: float | None = None
        try:
            value = _number(self.probe(throttle))
            return value
        finally:
            if throttle.live_lag:
                detail = {"name": throttle.name, "moment": moment, "value": value, "limit": throttle.max}
                self.ledger.record_event(self.backfill_id, LAG_EVENT, by=self.by, detail=detail)

    def _require_patience(self) -> None:
        """Stop once a task of this try of the run has given up; a run that was cleared since, or another run, goes on."""
        here = (self.run_id, self.clear_number)
        for end in self.ledger.events(self.backfill_id, RELEASED_EVENT):
            gave_up = end.detail.get("gave_up")
            if gave_up and (end.detail["run_id"], end.detail["clear_number"]) == here:
                raise WaitedTooLong(
                    f"Stopped: {gave_up}. {published_so_far(self.ledger, self.backfill_id)}, and what is staged is kept. Clear "
                    f"the failed tasks once that is over: {clear_command(self.ledger.backfill(self.backfill_id))}"
                )

    def _first_reason(self) -> Reason | None:
        for throttle in self.throttles:
            now = self.now()
            if (end := throttle.quiet_until(now)) is not None:
                return Reason(throttle, end)
            if throttle.quiet_hours is not None or self._believed_until.get(throttle.name, now) > now:
                continue
            again_at = now + throttle.every
            try:
                value = self._measured(throttle, Moment.DURING)
            except Exception as error:  # whatever it is, nobody knows whether the others are well
                log.warning("The throttle %s cannot be read.", throttle.name, exc_info=error)
                said = next(iter(str(error).splitlines()), "")[:200]
                return Reason(throttle, again_at, unreadable=f"{type(error).__name__}: {said}")
            assert throttle.max is not None
            if value > throttle.max:
                return Reason(throttle, again_at, value)
            self._believed_until[throttle.name] = again_at
        return None

    def _release(self) -> None:
        waits = _waits(self.ledger, self.backfill_id)
        if waits:
            name, seconds = waits[-1].detail["name"], round((self.now() - waits[0].at).total_seconds(), 1)
            detail = {"name": name, "seconds": seconds}
            self.ledger.record_event(self.backfill_id, RELEASED_EVENT, by=self.by, detail=detail)
            self.metrics.duration(THROTTLED_SECONDS, seconds)
            log.info("%s is no reason to wait any more, after %.0f s.", name, seconds)

    def _record(self, action: str, reason: Reason, **more: Any) -> None:
        detail = {
            "name": reason.throttle.name,
            "reason": str(reason),
            "value": reason.value,
            "limit": reason.throttle.max,
            **more,
        }
        self.ledger.record_event(self.backfill_id, action, by=self.by, detail=detail)


def waiting_for(ledger: Ledger, backfill_id: str) -> EventRecord | None:
    """The line of the audit trail that says what a backfill waits for, and since when; None when it does not."""
    waits = _waits(ledger, backfill_id)
    return waits[-1] if waits else None


def _waits(ledger: Ledger, backfill_id: str) -> list[EventRecord]:
    """The lines of the wait that is not over, one for each time that the first reason became another; none without one."""
    waits, ends = (ledger.events(backfill_id, action) for action in (THROTTLED_EVENT, RELEASED_EVENT))
    over = ends[-1].sequence if ends else -1
    return [wait for wait in waits if wait.sequence > over]


def _waited(waits: Sequence[EventRecord], name: str, now: datetime) -> timedelta:
    """How long ago the condition became a reason, without the quiet hours since, in which it was not looked at.

    Other conditions that came first meanwhile do not start it anew, or two that take turns would never give up.
    """
    waited, counts = timedelta(), False
    ends = [*(wait.at for wait in waits[1:]), now]
    for wait, end in zip(waits, ends, strict=True) if waits else ():
        counts = counts or wait.detail["name"] == name
        if counts and wait.detail["limit"] is not None:
            waited += end - wait.at
    return waited


def _number(value: object) -> float:
    """:raises ValueError: it is none; NULL and NaN are not."""
    if value is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    number = float(value)  # type: ignore[arg-type]
    if not isfinite(number):
        raise ValueError(f"{value!r} is no number")
    return number
