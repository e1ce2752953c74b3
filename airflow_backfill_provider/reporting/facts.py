"""What the ledger holds about one backfill, read once; every section of the report is made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from airflow_backfill_provider.checks.moved import is_matched
from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.ledger.records import Approval, BackfillRecord, EventRecord, PartitionRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.controlled import Control, compared_in
from airflow_backfill_provider.steps.drill import ENDED_EVENT, DrillEnd
from airflow_backfill_provider.steps.expectation import Expectation, expectation
from airflow_backfill_provider.steps.gates import Inspection, inspections
from airflow_backfill_provider.steps.judge import DIFF_EVIDENCE, MEASURED_EVIDENCE
from airflow_backfill_provider.steps.moves import end_of_way_back, last_move
from airflow_backfill_provider.steps.proved_before import Proof, proved_before
from airflow_backfill_provider.steps.retention import Retention, retention
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.warehouses.base import Fingerprint
from airflow_backfill_provider.windows import Partition

Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Compared:
    """Old rows of one partition against its new ones, in rows; None where they could not be matched by key."""

    identical: int | None
    changed: int | None
    added: int | None
    removed: int | None

    @property
    def differing(self) -> int | None:
        """Rows that are not the same on both sides."""
        if self.changed is None or self.added is None or self.removed is None:
            return None
        return self.changed + self.added + self.removed


@dataclass(frozen=True)
class Line:
    """One partition."""

    partition: Partition
    record: PartitionRecord
    baseline: Fingerprint
    """The published rows when the plan was made."""
    source_rows: int | None
    """Rows of the source when the plan was made; None without a source."""
    evidence: Entries

    @property
    def key(self) -> str:
        """The partition's key."""
        return self.partition.key

    @property
    def state(self) -> PartitionState:
        """Where it is in its life."""
        return self.record.state

    @property
    def rows_old(self) -> int:
        """Published rows when the plan was made."""
        return self.baseline.rows

    @property
    def differs(self) -> bool:
        """Whether other rows are staged than were published."""
        staged = (self.record.rows, self.record.digest, self.record.method)
        return staged != (self.baseline.rows, self.baseline.digest, self.baseline.method)

    @property
    def rows_new(self) -> int | None:
        """Staged rows; None when none are staged."""
        return self.record.rows

    @cached_property
    def compared(self) -> Compared | None:
        """What the comparison by key found; None when it was not made of the rows that are staged now."""
        for entry in self.evidence:
            if entry["kind"] == DIFF_EVIDENCE:
                if not is_matched(entry):
                    return Compared(None, None, None, None)
                return Compared(*(entry[name] for name in ("identical", "changed", "added", "removed")))
        return None

    def measured(self, side: str) -> Mapping[str, Any]:
        """Recorded values of ``staged``, ``baseline`` or ``source`` rows, by the metric's text."""
        found: Mapping[str, Any] = next(
            (entry for entry in self.evidence if entry["kind"] == MEASURED_EVIDENCE), {}
        ).get(side, {})
        return found


@dataclass(frozen=True)
class Facts:
    """One backfill as the report shows it."""

    backfill: BackfillRecord
    plan: Plan
    lines: tuple[Line, ...]
    """Every partition, in the plan's order."""
    of_range: Entries
    """The evidence of the range as a whole."""
    events: tuple[EventRecord, ...]
    """The audit trail, oldest first."""
    approvals: tuple[Approval, ...]
    """Every question that people were asked, with what became of it."""
    retention: Retention
    """Until when what it left aside is kept."""
    before: Proof | None
    """What the last good backfill of the table proved before this one was planned; None when there is none."""

    @property
    def counts(self) -> Mapping[PartitionState, int]:
        """Partitions by state; states that none is in are left out."""
        found = Counter(line.state for line in self.lines)
        return {state: found[state] for state in PartitionState if found[state]}

    @property
    def compared(self) -> tuple[Line, ...]:
        """The partitions whose staged rows were compared with what was published."""
        return tuple(line for line in self.lines if line.compared is not None)

    @property
    def unmatched(self) -> tuple[Line, ...]:
        """The compared partitions whose rows could not be matched by key."""
        return tuple(line for line in self.compared if line.compared and line.compared.differing is None)

    def differing(self, what: str) -> int:
        """Rows ``changed``, ``added`` or ``removed`` in all partitions of which that is known."""
        return sum(getattr(line.compared, what) or 0 for line in self.compared)

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Every check's answer, those that stop the publish first, then warnings; of the range before its partitions."""
        recorded = [*self.of_range, *(entry for line in self.lines for entry in line.evidence)]
        found = [Outcome.from_json(entry) for entry in recorded if "verdict" in entry]
        return tuple(sorted(found, key=lambda outcome: _WORST_FIRST.index(outcome.verdict)))

    @cached_property
    def control(self) -> Mapping[str, Control | None]:
        """How each control partition came out under this very plan, by key; None where it was not computed."""
        found = compared_in(self.events, self.plan)
        return {key: found.get(key) for key in self.plan.control}

    @property
    def control_held(self) -> bool:
        """Whether there is a control period, and all of it came out as it is published."""
        return bool(self.control) and all(control is not None and control.held for control in self.control.values())

    @cached_property
    def expectation(self) -> Expectation:
        """What changed and should not have, and the other way round."""
        differing = {line.key: line.compared.differing for line in self.lines if line.compared is not None}
        return expectation(self.plan, differing, self.control, {line.key for line in self.lines if not line.differs})

    @property
    def drill(self) -> DrillEnd | None:
        """How the drill came out; None when it goes on, or is none."""
        found = [event for event in self.events if event.action == ENDED_EVENT]
        return DrillEnd(**found[-1].detail) if found else None

    def moved_to(self, state: BackfillState) -> EventRecord | None:
        """The line of the audit trail that says that the backfill came to this state, the last one."""
        return last_move(self.events, state)

    @property
    def way_back_ended(self) -> EventRecord | None:
        """The line that says that it expired when its backup was dropped; None when it did not, or was given up."""
        return end_of_way_back(self.events) if self.backfill.state is BackfillState.EXPIRED else None

    @property
    def outcome(self) -> BackfillState:
        """What became of it; one that was completed, and whose way back has ended since, is completed."""
        return self.backfill.state if self.way_back_ended is None else BackfillState.COMPLETED

    @property
    def to_write(self) -> tuple[Line, ...]:
        """The partitions of which other rows are staged than were published, or of which it is not known yet."""
        return tuple(line for line in self.lines if line.differs)

    @property
    def written(self) -> tuple[Line, ...]:
        """Those whose published rows it replaced by others, now or until they were put back."""
        return tuple(line for line in self.to_write if line.state in _WRITTEN)

    @property
    def wrote(self) -> bool:
        """Whether it replaced published rows by others, now or until they were put back."""
        return bool(self.written)

    @property
    def wrote_all(self) -> bool:
        """Whether it did so wherever rows differ."""
        return self.wrote and len(self.written) == len(self.to_write)

    @property
    def verified(self) -> bool:
        """Whether the published range was last found to hold exactly the staged rows."""
        good, bad = (self.moved_to(one) for one in (BackfillState.PUBLISHED, BackfillState.PUBLISHED_UNVERIFIED))
        return good is not None and (bad is None or bad.sequence < good.sequence)

    @property
    def inspections(self) -> tuple[Inspection, ...]:
        """Where people may look, and who did, under the newest plan."""
        return inspections(self.approvals, self.plan, self.backfill.revision)

    @property
    def as_of(self) -> datetime:
        """The last thing that happened."""
        return max([self.backfill.updated_at, *(event.at for event in self.events)])


_WRITTEN = (PartitionState.PUBLISHED, PartitionState.ROLLED_BACK)
_WORST_FIRST = (Verdict.FAIL, Verdict.ERROR, Verdict.WARN, Verdict.PASS)


def read(ledger: Ledger, backfill_id: str) -> Facts:
    """Read one backfill; changes nothing.

    :raises LedgerError: there is no such backfill.
    """
    plan = stored_plan(ledger, backfill_id)
    records, evidence = ledger.partitions(backfill_id), ledger.evidence(backfill_id)
    kept = retention(ledger, backfill_id)
    assert kept is not None
    backfill = ledger.backfill(backfill_id)
    return Facts(
        backfill=backfill,
        plan=plan,
        lines=tuple(
            Line(
                partition=partition,
                record=records[partition.key],
                baseline=plan.baseline[partition.key],
                source_rows=plan.source_rows.get(partition.key) if plan.spec.source else None,
                evidence=tuple(evidence.get(partition.key, ())),
            )
            for partition in plan.partitions
        ),
        of_range=tuple(evidence.get(None, ())),
        events=tuple(ledger.events(backfill_id)),
        approvals=tuple(ledger.approvals(backfill_id)),
        retention=kept,
        before=proved_before(ledger, plan, before=backfill.created_at),
    )
