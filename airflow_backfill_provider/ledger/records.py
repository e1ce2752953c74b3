"""What goes into the ledger and what comes out of it, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.windows import Partition, Span


@dataclass(frozen=True)
class StoredPlan:
    """One revision of a plan, exactly as it was frozen."""

    revision: int
    """1 for the first; the ledger numbers the revisions and ignores the number it is given."""
    plan_hash: str
    intent_hash: str
    spec_hash: str
    document: dict[str, Any]
    """JSON values only."""
    created_at: datetime
    requested_by: str = ""
    """Who asked for this revision; empty when the ledger is older than that."""


@dataclass(frozen=True)
class Origin:
    """Where a run comes from, as far as a task of it can tell. Two Airflow installations have runs of the same ids."""

    installation: str = ""
    """The name of the Airflow installation; empty for one without."""
    run_started_at: datetime | None = None
    """When its DAG run began; None where nobody knows."""
    clear_number: int = 0
    """How often that run was cleared."""

    def is_another_than(self, known: Origin) -> bool:
        """Whether the run of these ids that is known cannot be this one: a clear alone gives a run another beginning."""
        if self.installation != known.installation:
            return True
        if self.run_started_at is None or known.run_started_at is None:
            return False
        return self.run_started_at != known.run_started_at and self.clear_number <= known.clear_number


UNKNOWN_ORIGIN = Origin()


@dataclass(frozen=True)
class NewBackfill:
    """Everything the ledger must know to open a backfill."""

    backfill_id: str
    name: str
    target: str
    tenant: str
    """Empty when the target is not split by tenant; such a backfill claims its range for every tenant."""
    dag_id: str
    run_id: str
    conn_id: str
    """The Airflow connection of the warehouse, where its stages and backups are."""
    mode: str
    reason: str
    requested_by: str
    partitions: Sequence[Partition]
    spans: Sequence[Span]
    """The range to claim; with ``claimed_later`` it must cover every partition."""
    plan: StoredPlan
    claimed_later: Sequence[Span] = ()
    """What a live run may go on writing until the backfill claims it; no other backfill may own part of it."""
    origin: Origin = UNKNOWN_ORIGIN
    """Of the run."""


@dataclass(frozen=True)
class BackfillRecord:
    """One backfill as the ledger knows it now."""

    backfill_id: str
    name: str
    target: str
    tenant: str
    dag_id: str
    run_id: str
    """The run that works on it now, or did last."""
    conn_id: str
    mode: str
    """How far that run goes."""
    state: BackfillState
    reason: str
    requested_by: str
    revision: int
    """The newest plan revision."""
    created_at: datetime
    updated_at: datetime
    backup_location: str | None
    backup_fingerprints: Mapping[str, Mapping[str, Any]]
    """By partition key; empty until a backup was made."""
    origin: Origin = UNKNOWN_ORIGIN
    """Of the run that works on it now, or did last."""


@dataclass(frozen=True)
class AirflowTask:
    """A task of a run, of whatever DAG."""

    dag_id: str
    run_id: str
    task_id: str
    installation: str = ""
    """The name of the Airflow installation whose run it is; empty for one without."""


@dataclass(frozen=True)
class PartitionRecord:
    """One partition of a backfill as the ledger knows it now.

    ``location`` to ``seconds`` are None until it is staged, and again when it is to be staged anew.
    """

    key: str
    span: Span
    state: PartitionState
    attempt: int
    """How many times a batch that holds it began to stage; the number of the attempt that owns it."""
    owner: str | None
    location: str | None
    rows: int | None
    digest: str | None
    method: str | None
    staged_intent: str | None
    """Intent hash of the plan that the current attempt was begun under."""
    seconds: float | None
    reason: str
    """The reason given for the last move."""
    updated_at: datetime


@dataclass(frozen=True)
class FinishedStage:
    """What one attempt at a partition staged."""

    key: str
    attempt: int
    location: str
    rows: int
    digest: str
    method: str
    seconds: float


@dataclass(frozen=True)
class EventRecord:
    """One line of the audit trail; written in the transaction of the change it describes."""

    sequence: int
    """Grows with time; has gaps, because it counts over all backfills."""
    backfill_id: str
    at: datetime
    action: str
    by: str
    detail: Mapping[str, Any]


class Gate(StrEnum):
    """Where a backfill waits for a person."""

    PLAN = "plan"  # before anything is staged
    REVIEW = "review"  # after the trial, before the other partitions are computed
    PUBLISH = "publish"  # with everything validated


class Decision(StrEnum):
    """What became of a question."""

    APPROVED = "approved"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"  # nobody answered, which is a no
    WAIVED = "waived"  # somebody who may decided that nobody needs to look


@dataclass(frozen=True)
class Question:
    """What a person is asked at a gate."""

    gate: Gate
    content: str
    """The hash of what is asked about: an answer holds for exactly that."""
    revision: int
    """Of the plan that it belongs to; a revised plan voids every answer."""
    shown: str
    """What the person reads."""
    asked_for: str
    """Who triggered the run that asks."""
    run_id: str
    clear_number: int = 0
    """How often that run was cleared before it asked."""


@dataclass(frozen=True)
class Approval:
    """A question and what became of it."""

    question: Question
    asked_at: datetime
    decision: Decision | None
    """None while nobody has answered."""
    decided_at: datetime | None
    decided_by: str
    reason: str

    @property
    def is_yes(self) -> bool:
        """Whether it lets the backfill go on."""
        return self.decision in (Decision.APPROVED, Decision.WAIVED)


@dataclass(frozen=True)
class LiveRun:
    """One task of a run of the scheduled pipeline that writes a target."""

    claim_id: str
    """The same for every attempt and clear of the task, so that the next one takes over what a dead one left."""
    dag_id: str
    run_id: str
    task_id: str
    attempt: int
    origin: Origin = UNKNOWN_ORIGIN

    def __str__(self) -> str:
        where = f" of installation {self.origin.installation!r}" if self.origin.installation else ""
        return f"run {self.run_id!r} of DAG {self.dag_id!r} (task {self.task_id}){where}"


@dataclass(frozen=True)
class LiveClaim:
    """One window or value that a live run holds."""

    run: LiveRun
    target: str
    span: Span
    claimed_at: datetime


@dataclass(frozen=True)
class GivenUpClaim:
    """The claim of a live run that a person released, taking the run for dead."""

    run: LiveRun
    held: str
    """The target and its spans, in words."""
    claimed_at: datetime
    at: datetime
    by: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.run.claim_id}  {self.at:%Y-%m-%dT%H:%M:%SZ}  by {self.by}: {self.reason}  {self.held}  {self.run}"
        )


@dataclass(frozen=True)
class Restatement:
    """A window or a value of a target that a backfill owns now."""

    span: Span
    since: datetime
    backfill_id: str
    name: str
    state: BackfillState
    dag_id: str
    run_id: str

    def __str__(self) -> str:
        return f"backfill {self.backfill_id} of {self.name} owns {self.span} since {self.since:%Y-%m-%dT%H:%M:%SZ} and is {self.state}"
