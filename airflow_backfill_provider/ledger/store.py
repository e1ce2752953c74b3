"""The ledger: what was planned, how far it is, what was found, who decided, and who owns which range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection

from airflow_backfill_provider.errors import LedgerError, PublishRefused, TransitionRefused
from airflow_backfill_provider.ledger import (
    approvals,
    backfill_rows,
    live_claims,
    partition_rows,
    planning,
    range_locks,
    schema,
    staging,
    trail,
)
from airflow_backfill_provider.ledger.engine import LedgerEngine
from airflow_backfill_provider.ledger.records import (
    UNKNOWN_ORIGIN,
    AirflowTask,
    Approval,
    BackfillRecord,
    Decision,
    EventRecord,
    FinishedStage,
    GivenUpClaim,
    LiveClaim,
    LiveRun,
    NewBackfill,
    Origin,
    PartitionRecord,
    Question,
    Restatement,
    StoredPlan,
)
from airflow_backfill_provider.ledger.states import (
    MAY_STAGE,
    RELEASES_LOCK,
    BackfillState,
    PartitionState,
)
from airflow_backfill_provider.windows import Span

TAKEN_OVER = "run.took_over"
"""The line of the audit trail which says that another run works on the backfill."""


def utc_now() -> datetime:
    """The present instant, aware."""
    return datetime.now(UTC)


class Ledger:
    """Our own database, shared by every task of every backfill.

    Each method is one transaction; a change and its line in the audit trail are recorded together or not at all.
    Writers come one after the other: whole ledger on SQLite, per backfill on PostgreSQL.

    Every method raises :class:`LedgerError` when the database cannot be used, its schema is not this version's, or
    the backfill or partition it is asked about is unknown. Messages never hold the URL's password.
    """

    def __init__(self, url: str | URL, *, now: Callable[[], datetime] = utc_now) -> None:
        self._engine = LedgerEngine(url)
        self._now = now
        self._recognised = False

    @property
    def address(self) -> str:
        """The ledger's URL as it may be shown: without password and parameters."""
        return self._engine.address

    def exists(self) -> bool:
        """False when it is a SQLite file that is not there."""
        return self._engine.exists()

    def upgrade(self) -> bool:
        """Create the schema or bring it to this version's; True when something changed. Safe to run at any time."""
        return schema.upgrade(self._engine)

    def close(self) -> None:
        """Let go of every handle."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open_backfill(self, new: NewBackfill, *, by: str) -> None:
        """Open a planned backfill, with its plan and pending partitions, and claim its range.

        :raises RangeLocked: another backfill, or a live run, owns part of the range; nothing is recorded.
        :raises LedgerError: there is a backfill with that id, or its partitions are none, repeated or unclaimed.
        """
        with self._write() as connection:
            planning.open_backfill(connection, new, at=self._now(), by=by)

    def revise_plan(
        self,
        backfill_id: str,
        plan: StoredPlan,
        *,
        restage: Collection[str],
        revalidate: Collection[str],
        by: str,
        reason: str,
    ) -> int:
        """Add a plan revision and return its number; the backfill is planned again, earlier revisions stay readable.

        ``restage`` keys become pending and their stages are forgotten. ``revalidate`` keys that were validated or
        rejected become staged. The evidence of both, and of the whole range, is superseded.

        :raises TransitionRefused: the backfill is publishing, has published or is over, or a partition has published.
        """
        with self._write() as connection:
            return planning.revise_plan(
                connection,
                backfill_id,
                plan,
                restage=restage,
                revalidate=revalidate,
                at=self._now(),
                by=by,
                reason=reason,
            )

    def backfill(self, backfill_id: str) -> BackfillRecord:
        """The backfill as it is now."""
        with self._read() as connection:
            return backfill_rows.read(connection, backfill_id)

    def find_backfill(self, backfill_id: str) -> BackfillRecord | None:
        """The backfill as it is now, or None when there is none with that id."""
        with self._read() as connection:
            return backfill_rows.find(connection, backfill_id)

    def backfills(
        self,
        *,
        name: str | None = None,
        target: str | None = None,
        states: Collection[BackfillState] | None = None,
        limit: int | None = 50,
    ) -> list[BackfillRecord]:
        """The newest backfills, of one spec, of one target, in these states or of all, newest first; without a limit all of them."""
        with self._read() as connection:
            return backfill_rows.newest(connection, name=name, target=target, limit=limit, states=states)

    def names(self) -> frozenset[str]:
        """The name of every spec that was ever backfilled."""
        with self._read() as connection:
            return backfill_rows.names(connection)

    def connections(self) -> tuple[str, ...]:
        """Every Airflow connection of a warehouse that a backfill was opened with, in order."""
        with self._read() as connection:
            return backfill_rows.connections(connection)

    def plan(self, backfill_id: str, revision: int | None = None) -> StoredPlan:
        """The newest revision of the plan, or the one asked for."""
        with self._read() as connection:
            return backfill_rows.read_plan(connection, backfill_id, revision)

    def partitions(self, backfill_id: str, keys: Collection[str] | None = None) -> dict[str, PartitionRecord]:
        """The partitions by key, in key order; all of them, or exactly those asked for."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return partition_rows.read_partitions(connection, backfill_id, keys)

    def counts(self, backfill_id: str) -> Counter[PartitionState]:
        """How many partitions are in each state; a state that none is in counts 0."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return partition_rows.count_states(connection, backfill_id)

    def staged_rows(self, backfill_id: str) -> tuple[int, int]:
        """How many partitions have staged rows on record, and how many rows those are."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return partition_rows.staged_rows(connection, backfill_id)

    def move(
        self,
        backfill_id: str,
        to: BackfillState,
        *,
        by: str,
        reason: str = "",
        expected: Collection[BackfillState] | None = None,
        revision: int | None = None,
        task: AirflowTask | None = None,
        error: str | None = None,
    ) -> None:
        """Move a backfill; nothing happens when it is there already. Its end gives the range back, but completed ones keep it
        as long as they are on their way back.

        ``expected`` and ``revision`` are the states, and the plan revision, that the caller decided on; ``task`` is the one that
        publishes from then on, where it begins to; ``error`` is the name of the one that halts it, where one does.

        :raises TransitionRefused: the move is not allowed from the state it is in, or that state is not expected.
        :raises PublishRefused: it would begin to publish, and is on its way back.
        :raises LedgerError: the plan was revised since.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            backfill_rows.require_revision(backfill, revision)
            if expected is not None and backfill.state not in expected:
                raise TransitionRefused(f"Backfill {backfill_id!r}", backfill.state.value, to.value)
            if to is BackfillState.PUBLISHING and range_locks.is_on_way_back(connection, backfill_id):
                raise PublishRefused(
                    f"Backfill {backfill_id!r} is on its way back: what it published is being put back, or was to be and that broke "
                    "off. Nothing was written. Let its rollback end, or trigger it again; publishing the range then takes a new backfill. "
                    "One of which neither the task nor a statement in the warehouse runs any more, and that had put nothing back, is called "
                    "off, and the publish goes on once it is cleared: "
                    f"airflow safe-backfill abandon {backfill_id} --rollback-is-dead --reason …"
                )
            if not backfill_rows.move(connection, backfill, to, at=at):
                return
            detail: dict[str, Any] = {"from": backfill.state.value, "to": to.value, "reason": reason}
            if task is not None:
                detail["task"] = asdict(task)
            if error is not None:
                detail["error"] = error
            if to in RELEASES_LOCK:
                is_kept = to is BackfillState.COMPLETED and range_locks.is_on_way_back(connection, backfill_id)
                detail["released_range"] = not is_kept and range_locks.release(connection, backfill_id)
            trail.add_event(connection, backfill_id, trail.MOVED_EVENT, at=at, by=by, detail=detail)

    def move_partitions(
        self, backfill_id: str, keys: Collection[str], to: PartitionState, *, by: str, reason: str = ""
    ) -> None:
        """Move partitions, all or none; nothing happens to those that are there already.

        Staging is begun and finished by :meth:`start_staging` and :meth:`finish_staging` only.

        :raises TransitionRefused: a move is not allowed from the state a partition is in.
        """
        at = self._now()
        with self._write() as connection:
            backfill_rows.lock(connection, backfill_id)
            moved = partition_rows.move(connection, backfill_id, keys, to, at=at, reason=reason)
            if moved:
                trail.add_event(
                    connection,
                    backfill_id,
                    trail.PARTITIONS_MOVED_EVENT,
                    at=at,
                    by=by,
                    detail={
                        "from": Counter(state.value for state in moved.values()),
                        "to": to.value,
                        "reason": reason,
                        "keys": list(moved),
                    },
                )

    def start_staging(
        self, backfill_id: str, keys: Collection[str], *, owner: str, intent: str | None = None
    ) -> dict[str, int]:
        """Begin to stage partitions and return each attempt's number, 1, 2, …, by key; all or none.

        Any earlier attempt is fenced off: what it staged, or still stages, cannot be recorded any more. With
        ``intent``, the intent hash the caller works under, a caller that missed a plan revision is refused.

        :raises TransitionRefused: a partition has published or was skipped.
        :raises LedgerError: the backfill is publishing, has published or is over; or the intent is not the plan's.
        """
        with self._write() as connection:
            return staging.start(connection, backfill_id, keys, owner=owner, intent=intent, at=self._now())

    def finish_staging(self, backfill_id: str, stages: Sequence[FinishedStage], *, by: str) -> None:
        """Record what attempts staged; their partitions are staged. All or none.

        :raises LedgerError: an attempt no longer owns its partition; nothing is recorded.
        """
        with self._write() as connection:
            staging.finish(connection, backfill_id, stages, at=self._now(), by=by)

    def record_verdicts(
        self,
        backfill_id: str,
        verdicts: Mapping[str, PartitionState],
        evidence: Mapping[str | None, Sequence[Mapping[str, Any]]],
        *,
        attempts: Mapping[str, int],
        revision: int,
        by: str,
        reason: str = "",
    ) -> None:
        """Move judged partitions to VALIDATED or REJECTED together with what was found; all or nothing.

        ``attempts`` and ``revision`` say which stages were judged, and under which plan.

        :raises LedgerError: a partition was staged again or the plan was revised meanwhile; nothing is recorded.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            backfill_rows.require_revision(backfill, revision)
            partition_rows.require_attempts(connection, backfill_id, attempts)
            for to in sorted(set(verdicts.values())):
                keys = [key for key, verdict in verdicts.items() if verdict is to]
                partition_rows.move(
                    connection, backfill_id, keys, to, at=at, reason=reason if to is PartitionState.REJECTED else ""
                )
                detail = {"to": to.value, "keys": keys, "revision": revision}
                trail.add_event(connection, backfill_id, "partitions.judged", at=at, by=by, detail=detail)
            trail.add_evidence(connection, backfill_id, evidence, revision=revision, at=at, by=by)

    def ask_approval(self, backfill_id: str, question: Question, *, by: str) -> None:
        """Record what a person is asked, and let the backfill wait for the answer. Asking the same again changes nothing.

        :raises LedgerError: the plan was revised since.
        :raises TransitionRefused: the backfill is where nobody is asked any more.
        """
        with self._write() as connection:
            approvals.ask(connection, backfill_id, question, at=self._now(), by=by)

    def decide_approval(
        self, backfill_id: str, question: Question, decision: Decision, *, decided_by: str, by: str, reason: str = ""
    ) -> None:
        """Record what became of a question. A yes lets the backfill go on, everything else rejects it.

        :raises LedgerError: the plan was revised since, or the backfill is over; nothing is recorded.
        """
        with self._write() as connection:
            approvals.decide(
                connection,
                backfill_id,
                question,
                decision,
                decided_by=decided_by,
                reason=reason,
                at=self._now(),
                by=by,
            )

    def approvals(self, backfill_id: str) -> list[Approval]:
        """Every question about the backfill with what became of it; the last decision is the last one."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return approvals.read(connection, backfill_id)

    def requesters(self, backfill_id: str) -> frozenset[str]:
        """Whoever asked for the backfill, or for a revision of its plan."""
        with self._read() as connection:
            return backfill_rows.read_requesters(connection, backfill_rows.read(connection, backfill_id))

    def record_evidence(
        self, backfill_id: str, evidence: Mapping[str | None, Sequence[Mapping[str, Any]]], *, by: str
    ) -> None:
        """Make these outcomes (JSON values) the current evidence of their partitions; None is the range as a whole.

        What they replace is kept, marked as superseded.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            if keys := [key for key in evidence if key is not None]:
                partition_rows.read_states(connection, backfill_id, keys)
            trail.add_evidence(connection, backfill_id, evidence, revision=backfill.revision, at=at, by=by)
            details = [
                {"key": key, "outcomes": len(outcomes), "revision": backfill.revision}
                for key, outcomes in evidence.items()
            ]
            trail.add_events(connection, backfill_id, "evidence.recorded", at=at, by=by, details=details)

    def evidence(self, backfill_id: str) -> dict[str | None, list[dict[str, Any]]]:
        """The current evidence by partition key (None: the whole range); a key without any is absent."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return trail.read_evidence(connection, backfill_id)

    def take_over(
        self, backfill_id: str, *, dag_id: str, run_id: str, mode: str, by: str, origin: Origin = UNKNOWN_ORIGIN
    ) -> None:
        """Record that another run works on the backfill now, or how far it goes; nothing happens when that is known."""
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            now = {"dag_id": dag_id, "run_id": run_id, "mode": mode}
            before = {name: getattr(backfill, name) for name in now}
            if origin != backfill.origin:
                backfill_rows.change(connection, backfill_id, at=at, **asdict(origin))
            if now != before:
                backfill_rows.change(connection, backfill_id, at=at, **now)
                trail.add_event(connection, backfill_id, TAKEN_OVER, at=at, by=by, detail={"from": before, "to": now})

    def runs(self, backfill_id: str) -> frozenset[tuple[str, str]]:
        """Every run that works or worked on the backfill, as DAG id and run id."""
        with self._read() as connection:
            backfill = backfill_rows.read(connection, backfill_id)
            earlier = [event.detail["from"] for event in trail.read_events(connection, backfill_id, TAKEN_OVER)]
            tasks = trail.read_publishers(connection, backfill_id)
        named = {(backfill.dag_id, backfill.run_id), *((run["dag_id"], run["run_id"]) for run in earlier)}
        return frozenset(named | {(task.dag_id, task.run_id) for task in tasks if task is not None})

    def publishers(self, backfill_id: str) -> frozenset[AirflowTask | None]:
        """Every task that began to publish the backfill; None among them for one that nobody named."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return frozenset(trail.read_publishers(connection, backfill_id))

    def set_backup(
        self, backfill_id: str, location: str, fingerprints: Mapping[str, Mapping[str, Any]], *, by: str
    ) -> None:
        """Record where the backup is and the fingerprint of each partition in it (JSON values)."""
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            copied = {key: dict(fingerprint) for key, fingerprint in fingerprints.items()}
            backfill_rows.change(connection, backfill_id, at=at, backup_location=location, backup_fingerprints=copied)
            detail = {"location": location, "partitions": len(fingerprints), "replaces": backfill.backup_location}
            trail.add_event(connection, backfill_id, "backup.recorded", at=at, by=by, detail=detail)

    def record_event(
        self,
        backfill_id: str,
        action: str,
        *,
        by: str,
        detail: Mapping[str, Any] | None = None,
        expected: Collection[BackfillState] | None = None,
    ) -> None:
        """Add a line of one's own (JSON values) to the audit trail.

        :raises LedgerError: the backfill is not in one of the ``expected`` states, when those are given.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            if expected is not None and backfill.state not in expected:
                raise LedgerError(f"Backfill {backfill_id!r} is {backfill.state.value!r} by now. Nothing was recorded.")
            trail.add_event(connection, backfill_id, action, at=at, by=by, detail=detail or {})

    def announce_drop(
        self, backfill_id: str, action: str, detail: Mapping[str, Any], *, seen: int, expire: str = "", by: str
    ) -> bool:
        """Record what is about to be dropped (JSON values), unless anything was recorded since it was decided on.

        :param seen: the sequence of the newest line of the audit trail when that was decided, by :meth:`last_sequence`.
        :param expire: a reason to expire the backfill in the same transaction; from then on no rollback can begin.
        :returns: False, with nothing recorded, when the audit trail has a newer line.
        :raises TransitionRefused: the backfill cannot expire from the state it is in.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            if trail.last_sequence(connection, backfill_id) != seen:
                return False
            if expire:
                to = BackfillState.EXPIRED
                backfill_rows.move(connection, backfill, to, at=at)
                moved = {"from": backfill.state.value, "to": to.value, "reason": expire}
                trail.add_event(connection, backfill_id, trail.MOVED_EVENT, at=at, by=by, detail=moved)
            trail.add_event(connection, backfill_id, action, at=at, by=by, detail=detail)
            return True

    def last_sequence(self, backfill_id: str) -> int:
        """The sequence of the newest line of a backfill's audit trail."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return trail.last_sequence(connection, backfill_id)

    def events(self, backfill_id: str, *actions: str) -> list[EventRecord]:
        """The audit trail of a backfill, oldest first; only the lines of these actions when any is given."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return trail.read_events(connection, backfill_id, *actions)

    def last_events(self, backfill_id: str, limit: int) -> list[EventRecord]:
        """The last lines of the audit trail of a backfill, oldest first."""
        with self._read() as connection:
            backfill_rows.read(connection, backfill_id)
            return trail.read_last_events(connection, backfill_id, limit)

    def claim_range(self, backfill_id: str, spans: Sequence[Span], *, by: str) -> None:
        """Claim spans of the backfill's target for it; nothing happens when it owns them already.

        :raises RangeLocked: another backfill, or a live run, owns part of them; nothing is recorded.
        :raises LedgerError: no span is given, or the backfill has expired.
        """
        at = self._now()
        with self._write() as connection:
            backfill = _claimant(connection, backfill_id, spans)
            if range_locks.claim(connection, backfill_id, backfill.target, backfill.tenant, spans, at=at):
                detail = {"spans": [str(span) for span in range_locks.union(spans)]}
                trail.add_event(connection, backfill_id, "range.claimed", at=at, by=by, detail=detail)

    def begin_way_back(
        self, backfill_id: str, spans: Sequence[Span], *, by: str, publish_is_dead: bool = False
    ) -> bool:
        """Claim spans of the backfill's target to put back what was there before, until :meth:`end_way_back`.

        Until then its completion does not give them back; rolled back or given up, it does. Until then it does not begin to
        publish either.

        :param publish_is_dead: a publish of it that is recorded as under way was cut off; it is recorded so, with this.
        :returns: False when its way back had begun before and has not ended; that somebody goes on with it is recorded, as one may still work.
        :raises RangeLocked: another backfill, or a live run, owns part of them; nothing is recorded.
        :raises PublishRefused: it publishes, and nobody said that this is dead; nothing is recorded.
        :raises LedgerError: no span is given, or the backfill has expired.
        """
        at = self._now()
        with self._write() as connection:
            backfill = _claimant(connection, backfill_id, spans)
            if backfill.state is BackfillState.PUBLISHING:
                if not publish_is_dead:
                    raise PublishRefused(
                        f"Backfill {backfill_id!r} is publishing by now. Nothing was put back. Let that publish end, then roll it back again."
                    )
                _cut_off(connection, backfill, at=at, by=by)
            begun = range_locks.begin_way_back(connection, backfill_id, backfill.target, backfill.tenant, spans, at=at)
            detail = {"spans": [str(span) for span in range_locks.union(spans)], "again": not begun}
            trail.add_event(connection, backfill_id, trail.WAY_BACK_EVENT, at=at, by=by, detail=detail)
            return begun

    def end_way_back(self, backfill_id: str, *, by: str, reason: str = "") -> None:
        """Give back whatever a backfill that is over holds; one that is not over keeps its range, until its own end.

        :param reason: why a person ended it; empty where it came to its end.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            is_over = backfill.state in RELEASES_LOCK
            if (range_locks.release if is_over else range_locks.end_way_back)(connection, backfill_id):
                detail = {"released_range": is_over, "reason": reason}
                trail.add_event(connection, backfill_id, "way_back.ended", at=at, by=by, detail=detail)

    def is_on_way_back(self, backfill_id: str) -> bool:
        """Whether what was there before is being put back, or was to be and that broke off."""
        with self._read() as connection:
            return range_locks.is_on_way_back(connection, backfill_id)

    def reserve_range(self, backfill_id: str, spans: Sequence[Span], *, by: str) -> None:
        """Keep other backfills out of the spans until this one ends, and live runs only once it claims them.

        Nothing happens when it reserved them before, as :meth:`open_backfill` does.

        :raises RangeLocked: another backfill owns part of them; nothing is recorded.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            if range_locks.reserve(connection, backfill_id, backfill.target, backfill.tenant, spans, at=at):
                detail = {"spans": [str(span) for span in range_locks.union(spans)]}
                trail.add_event(connection, backfill_id, "range.reserved", at=at, by=by, detail=detail)

    def release_live_range(self, backfill_id: str, *, by: str) -> None:
        """Give what the backfill claimed of its reserved spans back to live runs; other backfills stay out until it ends.

        Nothing happens while it may not stage, as a publish may rest on the claim, and once a partition is published.
        """
        at = self._now()
        with self._write() as connection:
            backfill = backfill_rows.lock(connection, backfill_id)
            if (
                backfill.state not in MAY_STAGE
                or partition_rows.count_states(connection, backfill_id)[PartitionState.PUBLISHED]
            ):
                return
            if released := range_locks.release_reserved(connection, backfill_id):
                detail = {"spans": [str(span) for span in released]}
                trail.add_event(connection, backfill_id, "range.released", at=at, by=by, detail=detail)

    def lock_owner(self, target: str, spans: Sequence[Span], tenant: str = "") -> str | None:
        """The id of a backfill that owns part of the spans, or None."""
        with self._read() as connection:
            found = range_locks.find_overlap(connection, target, tenant, spans)
            return None if found is None else found[0]

    def restating(self, target: str, spans: Sequence[Span]) -> list[Restatement]:
        """What backfills own of these spans of a target now, oldest claim first."""
        with self._read() as connection:
            return range_locks.restating(connection, target, spans)

    def holds_range(self, backfill_id: str, spans: Sequence[Span]) -> bool:
        """Whether the backfill owns every instant and value of the spans; False for no spans at all."""
        with self._read() as connection:
            return range_locks.holds(connection, backfill_id, spans)

    def claim_live(self, run: LiveRun, target: str, spans: Sequence[Span]) -> None:
        """Claim spans of the target for a live run, in place of whatever an earlier attempt of it holds.

        :raises RangeLocked: a backfill, or another live run, owns part of them; nothing is recorded.
        :raises LedgerError: no span is given.
        """
        if not spans:
            raise LedgerError(f"The {run} claims no span of {target!r}; give the spans that it writes.")
        with self._write() as connection:
            range_locks.claim_live(connection, run, target, spans, at=self._now())

    def release_live(self, claim_id: str, attempt: int | None = None) -> bool:
        """Give back what a live run holds; False when it holds nothing.

        With ``attempt`` only what that attempt claimed: one that was given up for dead must not take the next one's.
        """
        with self._write() as connection:
            return live_claims.release(connection, claim_id, attempt)

    def give_up_live(self, claim_id: str, *, by: str, reason: str) -> bool:
        """Give back what a dead live run holds, and keep who did so and why; False when it holds nothing."""
        with self._write() as connection:
            return live_claims.give_up(connection, claim_id, at=self._now(), by=by, reason=reason)

    def given_up_claims(self, limit: int = 20) -> list[GivenUpClaim]:
        """The claims of live runs that were given up last, newest first."""
        with self._read() as connection:
            return live_claims.read_given_up(connection, limit=limit)

    def live_claims(self) -> list[LiveClaim]:
        """What live runs hold now, oldest first."""
        with self._read() as connection:
            return live_claims.read(connection)

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        self._recognise()
        with self._engine.read() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        self._recognise()
        with self._engine.write() as connection:
            yield connection

    def _recognise(self) -> None:
        if not self._recognised:
            schema.require(self._engine)
            self._recognised = True


def _cut_off(connection: Connection, backfill: BackfillRecord, *, at: datetime, by: str) -> None:
    """Record that its publish goes no further, before it is put back."""
    to = BackfillState.VALIDATED
    backfill_rows.move(connection, backfill, to, at=at)
    detail = {"from": backfill.state.value, "to": to.value, "reason": "its publish is dead, and is put back"}
    trail.add_event(connection, backfill.backfill_id, trail.MOVED_EVENT, at=at, by=by, detail=detail)


def _claimant(connection: Connection, backfill_id: str, spans: Sequence[Span]) -> BackfillRecord:
    """:raises LedgerError: there is nothing to claim, or the backfill may claim nothing."""
    if not spans:
        raise LedgerError(f"Backfill {backfill_id!r} claims no span; give the spans of its partitions.")
    backfill = backfill_rows.lock(connection, backfill_id)
    if backfill.state is BackfillState.EXPIRED:
        raise LedgerError(f"Backfill {backfill_id!r} has expired, so it claims no range. Nothing was recorded.")
    return backfill
