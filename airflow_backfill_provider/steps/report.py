"""Report: what came of a backfill, from the ledger alone; and the verdict that a run must fail on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_backfill_provider.errors import TransitionRefused
from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT, WRITE_BLOCK_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.request import Mode
from airflow_backfill_provider.steps.controlled import Control, compared
from airflow_backfill_provider.steps.drill import DrillEnd, end_drill, ended
from airflow_backfill_provider.steps.expectation import Expectation, expectation, in_what_alone
from airflow_backfill_provider.steps.gates import Inspection, inspections
from airflow_backfill_provider.steps.judge import DIFF_EVIDENCE
from airflow_backfill_provider.steps.locked import locked_seconds
from airflow_backfill_provider.steps.moves import end_of_way_back
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.tried import Trial, trial_of
from airflow_backfill_provider.steps.work import Work, fingerprint_on_record
from airflow_backfill_provider.warehouses.base import Action

_SHOWN = 5


@dataclass(frozen=True)
class Moved:
    """How much one partition changed, in rows."""

    key: str
    changed: int
    added: int
    removed: int

    @property
    def rows(self) -> int:
        """All rows that differ."""
        return self.changed + self.added + self.removed


@dataclass(frozen=True)
class Summary:
    """One backfill at a glance; rows are counts, times aware UTC, ``seconds`` since it was planned."""

    backfill: BackfillRecord
    plan: Plan
    counts: Mapping[PartitionState, int]
    rows_old: int
    rows_new: int
    moved: tuple[Moved, ...]
    """Every partition that changed, the one that moved most first."""
    unmatched: int
    """Partitions whose published rows repeat or lack keys, so that old and new rows could not be matched."""
    failures: tuple[str, ...]
    """One line per partition that was rejected or failed."""
    write_block: timedelta | None
    """How long nobody else could write the table, in the longest commit of a publish; None where nobody was kept out."""
    expectation: Expectation
    """What changed and should not have, and the other way round."""
    locked_seconds: float | None = None
    """How long nobody could read the table when partitions were last exchanged; None when none were, or it is not known."""
    trial: Trial | None = None
    """What the trial of this very plan found; None when none passed."""
    inspections: tuple[Inspection, ...] = ()
    """Each gate, and who looked."""
    control: tuple[Control, ...] = ()
    """How the control partitions came out under this very plan, those that were computed."""
    drill: DrillEnd | None = None
    """How the drill came out; None of a real backfill."""
    way_back_ended: bool = False
    """Whether it was completed, and its backup is dropped since."""

    def differing(self, what: str) -> int:
        """Rows ``changed``, ``added`` or ``removed``, in all partitions of which that is known."""
        return sum(getattr(move, what) for move in self.moved)

    def reached(self, mode: Mode) -> bool:
        """Whether the backfill is where a run of this mode wants it."""
        if mode is Mode.PLAN:
            return True
        if self.drill is not None:
            return self.drill.passed
        if mode is Mode.STAGE and self.backfill.state is BackfillState.VALIDATED:
            return True
        # One that expired after it was completed did what its run was for.
        return self.way_back_ended or self.backfill.state is BackfillState.COMPLETED

    @property
    def seconds(self) -> float:
        """From the plan to the last change."""
        return (self.backfill.updated_at - self.backfill.created_at).total_seconds()

    @property
    def undo(self) -> str:
        """The command that restores the range."""
        return undo_command(self.plan, self.backfill.backfill_id)

    def lines(self) -> list[str]:
        """The summary as text, a line each."""
        plan, backfill, expected = self.plan, self.backfill, self.expectation
        changed, added, removed = (self.differing(what) for what in ("changed", "added", "removed"))
        most = ", ".join(f"{move.key} ({move.rows})" for move in self.moved[:5])
        unmatched = f"; rows of {self.unmatched} partitions could not be matched" if self.unmatched else ""
        lines = [
            f"Backfill {backfill.backfill_id} of {plan.target.table}: {backfill.state}",
            f"  range       {plan.keys[0]} … {plan.keys[-1]}, {len(plan.keys)} partitions"
            + (f", {len(plan.skipped)} left out" if plan.skipped else ""),
            f"  partitions  {', '.join(f'{count} {state}' for state, count in self.counts.items() if count)}",
            f"  rows        {self.rows_old:,} old, {self.rows_new:,} new: "
            f"{changed:,} changed, {added:,} added, {removed:,} removed{unmatched}",
            f"  moved most  {most or 'nothing changed'}",
            f"  time        {self.seconds:.1f} s",
            f"  trial       {self.trial or 'none passed'}",
            *([f"  drill       {self.drill}"] if self.drill is not None else []),
            f"  asked for   by {backfill.requested_by}: {backfill.reason or 'no reason was given'}",
            *(f"  inspected   {one}" for one in self.inspections),
            *([f"  unexpected  {surprise}" for surprise in expected.changed[:_SHOWN]]),
            *(
                [f"  identical   expected to change, but as published: {_listed(expected.identical)}"]
                if expected.identical
                else []
            ),
            *([f"  alike       differ {in_what_alone(plan)}: {_listed(expected.alone)}"] if expected.alone else []),
            *([f"  control     {_held(self.control, len(plan.control))}"] if plan.control else []),
            f"  mechanism   {plan.spec.publish.mechanism}, {plan.spec.publish.commits}",
        ]
        if self.write_block is not None:
            blocked = f"nobody else could write {plan.target.table} for {self.write_block.total_seconds():.1f} s"
            lines.append(f"  blocked     {blocked}{' at the longest' if plan.spec.publish.unit != 'range' else ''}")
        if self.locked_seconds is not None:
            lines.append(f"  locked      nobody could read the table for {self.locked_seconds:.3f} s")
        if self.way_back_ended:
            lines.append("  undo        none any more: it is over, and what was kept for it may be dropped")
        elif backfill.state is BackfillState.EXPIRED and not self.counts.get(PartitionState.PUBLISHED):
            lines.append(
                "  undo        none needed: it was given up, and as far as the ledger knows nothing of it is published"
            )
        elif backfill.backup_location is not None:
            lines.append(f"  undo        {self.undo}")
        lines += [f"  failed      {line}" for line in self.failures[:20]]
        lines += [f"  not proven  {line}" for line in plan.not_proven]
        return lines


def undo_command(plan: Plan, backfill_id: str) -> str:
    """What a person runs to restore the range of this backfill."""
    return f"""airflow dags trigger rollback__{plan.spec.name} --conf '{{"backfill_id": "{backfill_id}"}}'"""


def summarise(ledger: Ledger, backfill_id: str) -> Summary:
    """Read one backfill's summary; changes nothing.

    :raises LedgerError: there is no such backfill.
    """
    plan = stored_plan(ledger, backfill_id)
    backfill = ledger.backfill(backfill_id)
    records = ledger.partitions(backfill_id)
    evidence = ledger.evidence(backfill_id)
    moved = [move for key in plan.keys if (move := _moved(key, evidence.get(key, ()))).rows]
    controls = compared(ledger, plan)
    failed = (PartitionState.REJECTED, PartitionState.PENDING, PartitionState.STAGING)
    return Summary(
        backfill=backfill,
        plan=plan,
        counts=ledger.counts(backfill_id),
        rows_old=plan.baseline_rows,
        rows_new=sum(record.rows or 0 for record in records.values()),
        moved=tuple(sorted(moved, key=lambda move: -move.rows)),
        unmatched=sum(_is_unmatched(evidence.get(key, ())) for key in plan.keys),
        failures=tuple(
            f"{key}: {record.state}{': ' + record.reason if record.reason else ''}"
            for key, record in records.items()
            if record.state in failed
        ),
        trial=trial_of(ledger, plan),
        drill=ended(ledger, backfill_id),
        control=tuple(controls.values()),
        expectation=expectation(
            plan,
            {key: _differing(evidence.get(key, ())) for key in plan.keys},
            controls,
            {key for key in plan.keys if fingerprint_on_record(records[key]) == plan.baseline[key]},
        ),
        write_block=max(
            (
                timedelta(seconds=event.detail["seconds"])
                for event in ledger.events(backfill_id, WRITE_BLOCK_EVENT)
                if event.detail.get("action", Action.PUBLISH) == Action.PUBLISH
            ),
            default=None,
        ),
        locked_seconds=locked_seconds(ledger, backfill_id),
        inspections=inspections(ledger.approvals(backfill_id), plan, backfill.revision),
        way_back_ended=backfill.state is BackfillState.EXPIRED
        and end_of_way_back(ledger.events(backfill_id, MOVED_EVENT)) is not None,
    )


def conclude(work: Work) -> Summary:
    """Close the backfill when its outcome is good, or record why it is not; the caller fails the run then. End a drill."""
    plan = work.stored_plan()
    if plan.request.drill:
        end_drill(work, plan)
        return summarise(work.ledger, work.backfill_id)
    state = work.ledger.backfill(work.backfill_id).state
    if state is BackfillState.PUBLISHED:
        work.ledger.move(work.backfill_id, BackfillState.COMPLETED, by=work.by, expected={state})
    elif state in {BackfillState.PLANNED, BackfillState.RUNNING}:
        rejected = work.ledger.counts(work.backfill_id).get(PartitionState.REJECTED, 0)
        outcome = BackfillState.REJECTED if rejected else BackfillState.FAILED
        with suppress(TransitionRefused):  # another run took the backfill over meanwhile
            work.ledger.move(
                work.backfill_id, outcome, by=work.by, reason="the run ended without a publish", expected={state}
            )
    work.let_live_go()
    return summarise(work.ledger, work.backfill_id)


def _listed(keys: Sequence[str]) -> str:
    return f"{', '.join(keys[:_SHOWN])}{f' and {len(keys) - _SHOWN} more' if keys[_SHOWN:] else ''}"


def _differing(evidence: Sequence[Mapping[str, Any]]) -> int | None:
    """Rows that differ; None where rows could not be matched, or were not compared."""
    compared = any(entry["kind"] == DIFF_EVIDENCE for entry in evidence)
    return _moved("", evidence).rows if compared and not _is_unmatched(evidence) else None


def _held(controls: Sequence[Control], wanted: int) -> str:
    """How the control period came out, in words."""
    moved = [control for control in controls if not control.held]
    missing = f"{wanted - len(controls)} of {wanted} partitions not computed" if len(controls) < wanted else ""
    held = "" if moved or missing else f"{wanted} partitions, recomputed, are as published"
    return "; ".join(part for part in (*map(str, moved[:5]), missing, held) if part)


def _moved(key: str, evidence: Sequence[Mapping[str, Any]]) -> Moved:
    for entry in evidence:
        if entry["kind"] == DIFF_EVIDENCE:
            return Moved(key, entry["changed"], entry["added"], entry["removed"])
    return Moved(key, 0, 0, 0)


def _is_unmatched(evidence: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        value
        for entry in evidence
        if entry["kind"] == DIFF_EVIDENCE
        for name, value in entry.items()
        if name.endswith("_keys")
    )
