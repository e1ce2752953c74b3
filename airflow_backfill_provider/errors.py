"""Every error this package raises on purpose.

::

    BackfillError
    ├── SpecError                  the spec cannot be run as written
    ├── RequestError               the trigger's conf cannot be planned
    ├── TransformRefused           the transform cannot be redirected into staging, or does not fit the target
    ├── CodeFailed                 code of the team's own raised; may work when tried again
    ├── StrayWrite                 code of the team's own wrote to something else than its stage; ``.moved``
    ├── Stopped                    a stop signal is set, or cannot be read
    │   ├── BudgetExceeded         a budget of the spec is used up
    │   └── WaitedTooLong          others needed the warehouse for longer than a throttle waits
    ├── Throttled                  others need the warehouse; ``.again_at``
    ├── SwitchUnreadable           the kill switch cannot be read, or what was written to it is not in force
    ├── TrialFailed                one partition was tried, and a run of it cannot be trusted; nothing was published
    ├── ControlMoved               the new rule changes partitions that the bug did not affect; ``.moved``
    ├── ValidationFailed           checks ran and at least one said no; ``.outcomes``
    ├── HeldBack                   another partition failed, and ``compute.fail_fast`` lets no more begin
    ├── NotApproved                a person has to say yes first, and nobody did; nothing was computed or written
    ├── PublishRefused             publishing now would break a promise; nothing was written
    │   ├── IntentChanged          the spec is no longer the one this work was staged for
    │   ├── TargetMoved            the range is not what it was when the plan was made; ``.moved``
    │   ├── SourceMoved            the source is not what it was when the plan was made; ``.moved``
    │   ├── StageChanged           staged rows are not the validated ones; ``.changed``
    │   └── RangeLocked            a backfill or a live run owns part of the range; ``.owner``
    ├── WarehouseError             the engine said no
    │   ├── PartitionOverrun       staged rows lie outside their partition
    │   ├── ConnectionLost         may work when tried again
    │   │   └── RunLeftOpen        a run elsewhere may go on, and the next attempt goes on with it
    │   └── LockTimeout            the engine's lock was not to be had in time; may work when tried again
    ├── ReportNotWritten           the report's files could not be written; the ledger still has what they say
    └── LedgerError                the ledger said no, or cannot be read
        ├── LedgerUnavailable      nobody answers for the ledger, or somebody else holds it; may work when tried again
        └── TransitionRefused      ``.subject``, ``.current``, ``.wanted``

Only those of :data:`TRANSIENT` and :class:`CodeFailed` are worth a retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


class BackfillError(Exception):
    """Base of every error of this package."""


class SpecError(BackfillError):
    """The spec cannot be run as written."""


class RequestError(BackfillError):
    """The trigger's conf cannot be planned."""


class TransformRefused(BackfillError):
    """The transform cannot be redirected into staging, or its columns do not fit the target."""


class CodeFailed(BackfillError):
    """Code of the team's own raised; the same call may work when tried again."""


class StrayWrite(BackfillError):
    """Code of the team's own wrote to something else than its stage; nothing of it was staged or published.

    ``moved`` maps partition key to (rows before, rows after); it is empty where the write was undone.
    """

    def __init__(self, message: str, moved: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(message)
        self.moved = dict(moved)


class Stopped(BackfillError):
    """A stop signal is set, or cannot be read."""


class BudgetExceeded(Stopped):
    """A budget of the spec is used up; what was staged stays."""


class WaitedTooLong(Stopped):
    """Others needed the warehouse for longer than a throttle waits; what was staged stays."""


class Throttled(BackfillError):
    """Others need the warehouse, so the work waits; nothing failed. ``again_at`` is when to look again."""

    def __init__(self, message: str, again_at: datetime) -> None:
        super().__init__(message)
        self.again_at = again_at


class SwitchUnreadable(BackfillError):
    """The kill switch cannot be read, or what was written to it is not in force."""


class TrialFailed(BackfillError):
    """One partition was tried, and a run of it cannot be trusted; nothing was published."""


class ControlMoved(BackfillError):
    """Partitions that the bug did not affect do not come out as they are published; nothing was published.

    ``moved`` are their keys.
    """

    def __init__(self, message: str, moved: Sequence[str]) -> None:
        super().__init__(message)
        self.moved = tuple(moved)


class ValidationFailed(BackfillError):
    """Checks ran and at least one of them said no."""

    def __init__(self, message: str, outcomes: Sequence[Any]) -> None:
        super().__init__(message)
        self.outcomes = tuple(outcomes)


class HeldBack(BackfillError):
    """Another partition failed, and ``compute.fail_fast`` lets no more begin; what is staged stays."""


class NotApproved(BackfillError):
    """A person has to say yes to exactly this first, and nobody did; nothing was computed or written."""


class PublishRefused(BackfillError):
    """Publishing now would break a promise; nothing was written."""


class IntentChanged(PublishRefused):
    """The spec is no longer the one this work was staged for."""


class TargetMoved(PublishRefused):
    """The range is not what it was when the plan was made; nothing was written.

    ``moved`` maps partition key to (rows expected, rows found).
    """

    def __init__(self, message: str, moved: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(message)
        self.moved = dict(moved)


class SourceMoved(PublishRefused):
    """The source has other numbers of rows than when the plan was made; nothing was written.

    ``moved`` maps partition key to (rows expected, rows found).
    """

    def __init__(self, message: str, moved: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(message)
        self.moved = dict(moved)


class StageChanged(PublishRefused):
    """Staged rows are not the ones that were validated; nothing was written.

    ``changed`` maps partition key to (rows expected, rows found).
    """

    def __init__(self, message: str, changed: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(message)
        self.changed = dict(changed)


class RangeLocked(PublishRefused):
    """A backfill, or a run of the scheduled pipeline, owns part of the range; ``owner`` is the id of either."""

    def __init__(self, message: str, owner: str) -> None:
        super().__init__(message)
        self.owner = owner


class WarehouseError(BackfillError):
    """The engine said no."""


class VersionGone(WarehouseError):
    """A version of a source, which the plan pinned, can no longer be read."""


class PartitionOverrun(WarehouseError):
    """The transform produced rows that lie outside the partition it was run for."""


class ConnectionLost(WarehouseError):
    """The connection broke; the same call may work when tried again."""


class RunLeftOpen(ConnectionLost):
    """How a run elsewhere is, or its rows, could not be had; it was not ended, and the next attempt goes on with it."""


class LockTimeout(WarehouseError):
    """The engine's lock was not to be had in time; the same call may work when tried again."""


class ReportNotWritten(BackfillError):
    """The report's files could not be written; the ledger still has what they say."""


class LedgerError(BackfillError):
    """The ledger said no, or cannot be read."""


class LedgerUnavailable(LedgerError):
    """The ledger's database cannot be reached, or another process holds it; the same call may work when tried again."""


class PlanUnreadable(LedgerError):
    """A plan in the ledger is none that this version of the provider can read."""


class TransitionRefused(LedgerError):
    """A state move that the table of allowed moves does not hold, or that someone else made first."""

    def __init__(self, subject: str, current: str, wanted: str) -> None:
        super().__init__(f"{subject} cannot go from {current!r} to {wanted!r}.")
        self.subject = subject
        self.current = current
        self.wanted = wanted


TRANSIENT = (ConnectionLost, LockTimeout, LedgerUnavailable)
"""What says nothing of the work itself: nobody answered, or somebody else was in the way."""
