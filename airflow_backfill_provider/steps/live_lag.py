"""How far the live pipeline is behind, before, while and after a backfill works; every look is in the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.spec.throttle import Throttle

LAG_EVENT = "live_lag.measured"


class Moment(StrEnum):
    """When a live lag is looked at."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True)
class LiveLag:
    """What the looks at one condition found; None where there was no look, or its number could not be read."""

    name: str
    limit: float
    before: float | None
    """When the plan was made."""
    looks: int
    """How often it was looked at between the plan and the end of the publish."""
    unread: int
    """How many of these looks could not be read."""
    above: int
    """How many of them were above the limit; the backfill waited then."""
    highest: float | None
    after: float | None
    """At once after the publish."""

    @property
    def held(self) -> bool | None:
        """Whether the backfill left the live pipeline no worse than within its limit; None when that is not known."""
        if self.before is None or self.after is None or self.looks == self.unread:
            return None
        return self.after <= self.limit

    @property
    def verdict(self) -> str:
        """The same in words."""
        if self.held is None:
            return "not known: it was not measured, or could not be read, at one of the three"
        if not self.held:
            was = "as it was before" if self.before is not None and self.before > self.limit else "and was not before"
            return f"above its limit after the publish, {was}"
        exceptions = []
        if self.before is not None and self.before > self.limit:
            exceptions.append("above it before")
        if self.above:
            exceptions.append("above it for a while, and the backfill waited")
        if self.unread:
            exceptions.append(f"{self.unread} of {self.looks} looks in between could not be read")
        return (
            "; ".join(["within its limit after the publish", *exceptions])
            if exceptions
            else "within its limit throughout"
        )


def live_lags(events: Sequence[EventRecord], throttles: Sequence[Throttle]) -> tuple[LiveLag, ...]:
    """What was found of every condition that is a live lag, in the spec's order; ``events`` is the audit trail, oldest first."""
    return tuple(
        _of(throttle.name, throttle.max, [event for event in events if event.detail.get("name") == throttle.name])
        for throttle in throttles
        if throttle.live_lag and throttle.max is not None
    )


def _of(name: str, limit: float, events: Sequence[EventRecord]) -> LiveLag:
    found: dict[Moment, list[float | None]] = {moment: [] for moment in Moment}
    for event in events:
        if event.action == LAG_EVENT:
            found[Moment(event.detail["moment"])].append(event.detail["value"])
    during = [value for value in found[Moment.DURING] if value is not None]
    return LiveLag(
        name=name,
        limit=limit,
        before=found[Moment.BEFORE][0] if found[Moment.BEFORE] else None,
        looks=len(found[Moment.DURING]),
        unread=len(found[Moment.DURING]) - len(during),
        above=sum(value > limit for value in during),
        highest=max(during, default=None),
        after=found[Moment.AFTER][0] if found[Moment.AFTER] else None,
    )
