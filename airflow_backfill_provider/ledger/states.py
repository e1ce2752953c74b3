"""The states of a backfill and of a partition, and every move between them with the reason it happens.

A move that is not in the table is refused. Being told to go where one already is, is not a move.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class BackfillState(StrEnum):
    """Where one backfill is in its life."""

    PLANNED = "planned"
    AWAITING_APPROVAL = "awaiting_approval"
    RUNNING = "running"
    VALIDATED = "validated"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    COMPLETED = "completed"
    HALTED = "halted"
    FAILED = "failed"
    REJECTED = "rejected"
    PUBLISHED_UNVERIFIED = "published_unverified"
    ROLLED_BACK = "rolled_back"
    EXPIRED = "expired"


class PartitionState(StrEnum):
    """Where one partition of a backfill is in its life."""

    PENDING = "pending"
    STAGING = "staging"
    STAGED = "staged"
    VALIDATED = "validated"
    REJECTED = "rejected"
    PUBLISHED = "published"
    ROLLED_BACK = "rolled_back"
    SKIPPED = "skipped"


_B = BackfillState
_P = PartitionState

ACTIVE = frozenset({_B.PLANNED, _B.AWAITING_APPROVAL, _B.RUNNING, _B.VALIDATED, _B.PUBLISHING, _B.PUBLISHED})
"""The next task of the run takes it further."""

STOPPED = frozenset({_B.HALTED, _B.FAILED, _B.REJECTED})
"""Nothing goes on until a person clears a task, gives the backfill up, or rolls back the units that were published."""

WRITTEN = frozenset({_B.PUBLISHED, _B.PUBLISHED_UNVERIFIED, _B.COMPLETED})
"""The published table holds this backfill's rows, so there is something to roll back."""

TERMINAL = frozenset({_B.ROLLED_BACK, _B.EXPIRED})
"""It is over. No move leads out, but for a commit that came after the backfill was given up or rolled back."""

RELEASES_LOCK = frozenset({_B.COMPLETED, _B.ROLLED_BACK, _B.EXPIRED})
"""Reaching one of these gives the range lock back."""

MAY_STAGE = frozenset({_B.PLANNED, _B.RUNNING, _B.VALIDATED}) | STOPPED
"""A partition that is not published may be staged: no publish reads the stages, and nobody is asked, at this moment."""

READY = frozenset({_P.VALIDATED, _P.PUBLISHED})
"""A partition that does not hold a publish back: validated, or published with an earlier unit of the range."""

BACKFILL_MOVES: Mapping[BackfillState, Mapping[BackfillState, str]] = {
    _B.PLANNED: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.AWAITING_APPROVAL: "The plan needs a person's approval before anything is staged.",
        _B.RUNNING: "The first partition is about to be staged.",
        _B.HALTED: "A stop signal was found before the first partition.",
        _B.FAILED: "A task broke before the first partition.",
        _B.REJECTED: "The trial did not pass.",
        _B.EXPIRED: "The plan was given up.",
    },
    _B.AWAITING_APPROVAL: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.RUNNING: "A person approved exactly this plan or this trial, or nobody needed to.",
        _B.VALIDATED: "A person approved exactly this evidence, or nobody needed to.",
        _B.PLANNED: "Scope was cleared, or the plan was revised, which voids the approval.",
        _B.HALTED: "A stop signal was found when the wait was over.",
        _B.FAILED: "The waiting task broke.",
        _B.REJECTED: "A person said no, or nobody answered in time.",
        _B.EXPIRED: "The plan was given up while it waited.",
    },
    _B.RUNNING: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.VALIDATED: "Every partition and the range as a whole passed.",
        _B.AWAITING_APPROVAL: "The trial is done and a person reviews it.",
        _B.PLANNED: "Scope was cleared, or the plan was revised.",
        _B.HALTED: "A stop signal was found between partitions.",
        _B.FAILED: "A task broke, or its worker died.",
        _B.REJECTED: "A check said no.",
        _B.EXPIRED: "The work was given up.",
    },
    _B.VALIDATED: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.AWAITING_APPROVAL: "The evidence is shown to a person before the publish.",
        _B.PUBLISHING: "Publish begins.",
        _B.RUNNING: "A partition is staged or validated again.",
        _B.PLANNED: "Scope was cleared, or the plan was revised.",
        _B.HALTED: "A stop signal was found before publish.",
        _B.FAILED: "A task broke before publish began.",
        _B.REJECTED: "Validation ran again and a check said no.",
        _B.EXPIRED: "The validated work was given up.",
    },
    _B.PUBLISHING: {
        _B.PUBLISHED: "The commit happened and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "The commit happened and the range was not shown to be what it should be.",
        _B.VALIDATED: "Publish was refused, or cut off, and not everything was written.",
        _B.HALTED: "A stop signal was found and nothing was written.",
        _B.FAILED: "Publish broke and nothing was written.",
    },
    _B.PUBLISHED: {
        _B.COMPLETED: "Everything after publish is done.",
        _B.PUBLISHED_UNVERIFIED: "A later look found that the range is not what was published.",
        _B.ROLLED_BACK: "The backup was put back.",
    },
    _B.PUBLISHED_UNVERIFIED: {
        _B.COMPLETED: "A person looked and accepts what the range holds.",
        _B.PUBLISHED: "A re-run found the range to be what it should be.",
        _B.ROLLED_BACK: "The backup was put back.",
    },
    _B.COMPLETED: {
        _B.ROLLED_BACK: "The backup was put back.",
        _B.EXPIRED: "The backup was kept for as long as it was to be, and is dropped: the way back has ended.",
    },
    _B.HALTED: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.AWAITING_APPROVAL: "The waiting task was cleared, and asks again.",
        _B.PLANNED: "Scope was cleared after the stop signal was lifted.",
        _B.RUNNING: "A task was cleared after the stop signal was lifted.",
        _B.VALIDATED: "Only publish was cleared, and every partition is validated.",
        _B.FAILED: "A task that ran on beside the halted one broke.",
        _B.REJECTED: "A check that ran on beside the halted task said no.",
        _B.EXPIRED: "The halted work was given up.",
    },
    _B.FAILED: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.AWAITING_APPROVAL: "The waiting task was cleared, and asks again.",
        _B.PLANNED: "Scope was cleared.",
        _B.RUNNING: "The failed task was cleared.",
        _B.VALIDATED: "Only publish was cleared, and every partition is validated.",
        _B.HALTED: "A task that ran on beside the failed one found a stop signal.",
        _B.REJECTED: "A check that ran on beside the failed task said no.",
        _B.EXPIRED: "The failed work was given up.",
    },
    _B.REJECTED: {
        _B.PUBLISHED: "Its receipt was found in the table, and the range is what it should be.",
        _B.PUBLISHED_UNVERIFIED: "Its receipt was found in the table, and the range is not what it should be.",
        _B.ROLLED_BACK: "The units that were published were put back.",
        _B.AWAITING_APPROVAL: "The waiting task was cleared, and asks again.",
        _B.PLANNED: "Scope was cleared, or the plan was revised.",
        _B.RUNNING: "The rejecting task was cleared after its cause was mended.",
        _B.HALTED: "A task that ran on beside the rejecting one found a stop signal.",
        _B.FAILED: "A task that ran on beside the rejecting one broke.",
        _B.EXPIRED: "The rejected work was given up.",
    },
    _B.ROLLED_BACK: {
        _B.PUBLISHED_UNVERIFIED: "A commit of its publish came after it was rolled back, and its receipt was found in the table.",
    },
    _B.EXPIRED: {
        _B.PUBLISHED: "It was given up while a publish still ran, and its receipt was found in the table.",
        _B.PUBLISHED_UNVERIFIED: "The same, but units are missing, or the range is not what it should be.",
    },
}
"""Allowed moves of a backfill. A state that has published nothing can always be resumed or given up."""

PARTITION_MOVES: Mapping[PartitionState, Mapping[PartitionState, str]] = {
    _P.PENDING: {
        _P.PUBLISHED: "A commit of it was found, from before it was to be staged again.",
        _P.STAGING: "A task begins to stage it.",
        _P.SKIPPED: "It is left out, with a reason.",
    },
    _P.STAGING: {
        _P.PUBLISHED: "A commit of it was found, from before it was staged again.",
        _P.STAGING: "A newer attempt takes over from one that died or lags behind.",
        _P.STAGED: "The current attempt committed its rows.",
        _P.PENDING: "The plan was revised, or the attempt was given up.",
    },
    _P.STAGED: {
        _P.PUBLISHED: "A commit of it was found, from before it was to be judged again.",
        _P.VALIDATED: "Every blocking check passed.",
        _P.REJECTED: "A blocking check failed; the stage is kept for a look.",
        _P.STAGING: "Its stage is gone, changed or unwanted, and it is staged again.",
        _P.PENDING: "The plan was revised.",
    },
    _P.VALIDATED: {
        _P.PUBLISHED: "The commit that holds its rows happened.",
        _P.STAGED: "The checks are to run again on the same stage.",
        _P.STAGING: "Its stage is gone, changed or unwanted, and it is staged again.",
        _P.PENDING: "The plan was revised.",
    },
    _P.REJECTED: {
        _P.PUBLISHED: "A commit of it was found, from before it was judged again.",
        _P.STAGING: "A re-run stages it again before it is validated again.",
        _P.STAGED: "The checks are to run again on the same stage.",
        _P.PENDING: "The plan was revised.",
    },
    _P.PUBLISHED: {
        _P.ROLLED_BACK: "Its rows of the backup were put back.",
    },
    _P.ROLLED_BACK: {
        _P.PUBLISHED: "A commit of it was found, which came after it was rolled back.",
    },
    _P.SKIPPED: {
        _P.PENDING: "A revised plan wants it after all.",
    },
}
"""Allowed moves of a partition. Published rows are never staged over: that takes a new backfill."""
