"""Drill: one staged partition is damaged on purpose; validation must stop it and say which it is.

A drill claims no range that a real backfill could want, asks nobody, and its publish is refused whatever it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from airflow_backfill_provider.checks.report import ValidationReport
from airflow_backfill_provider.errors import TrialFailed
from airflow_backfill_provider.ledger.records import FinishedStage
from airflow_backfill_provider.ledger.states import TERMINAL, BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.failing import FAILED_EVENT
from airflow_backfill_provider.steps.judge import judge_partitions
from airflow_backfill_provider.steps.recompute import one_by_one, write
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Fingerprint, Landing, Recompute
from airflow_backfill_provider.windows import Partition

DAMAGED_EVENT = "drill.damaged"
ENDED_EVENT = "drill.ended"


@dataclass(frozen=True)
class DrillEnd:
    """How a drill came out."""

    passed: bool
    damaged: str
    """The key of the partition that was damaged; empty when none was."""
    found: str
    """What was said of it, or why the drill did not pass."""
    dropped: int
    """Stages and shadows that were dropped at the end."""

    def __str__(self) -> str:
        if not self.passed:
            return f"failed: {self.found}"
        return f"passed: {self.damaged} was damaged on purpose, and stopped by name; nothing was published"


def claimed(plan: Plan) -> str:
    """What the ledger calls the table whose range is claimed: a drill keeps off nothing but another drill."""
    return f"drill of {plan.target.table}" if plan.request.drill else plan.target.table


def damage(work: Work, plan: Plan, partitions: Sequence[Partition]) -> None:
    """Stage the drill's partition again with every row twice, as if a join had doubled them, when it is among these and has rows.

    One that would be rejected as it is stays as it is: its rejection would prove nothing about the damage.

    :raises TrialFailed: computed again it has other rows, so that what is staged is not that damage; it is not on record as damaged.
    """
    victim = plan.trial_partition
    if victim not in partitions:
        return
    record = work.ledger.partitions(work.backfill_id, [victim.key])[victim.key]
    if record.state is not PartitionState.STAGED or not record.rows:
        return
    outcomes, _ = judge_partitions(work, plan, [victim], {victim.key: record})
    if ValidationReport(tuple(outcomes)).rejected_keys:
        return
    (recompute,) = one_by_one(plan, [victim])
    attempts = work.ledger.start_staging(work.backfill_id, [victim.key], owner=work.by, intent=plan.intent_hash)
    with work.warehouse.open_stage(plan.target, work.backfill_id, "drill") as writer:
        (staged,) = write(work, plan, writer, [recompute], damage=_twice)
    mark = staged.fingerprint
    _require_damaged(plan, victim, record.rows, mark)
    finished = FinishedStage(
        victim.key, attempts[victim.key], staged.location, mark.rows, mark.digest, mark.method, 0.0
    )
    work.ledger.finish_staging(work.backfill_id, [finished], by=work.by)
    detail = {
        "key": victim.key,
        "attempt": attempts[victim.key],
        "rows": record.rows,
        "damaged_rows": mark.rows,
    }
    work.ledger.record_event(work.backfill_id, DAMAGED_EVENT, by=work.by, detail=detail)
    work.log.warning("Drill: every row of %s is staged twice, on purpose.", victim.key)


def _require_damaged(plan: Plan, victim: Partition, before: int, mark: Fingerprint) -> None:
    # Published rows that are kept beside those of a SELECT are not doubled, and what is made from staged rows is made from published ones here.
    in_part = plan.spec.publish.keep_unmatched or plan.spec.transform.is_chained
    if mark.rows == 2 * before or (in_part and mark.rows > before):
        return
    raise TrialFailed(
        f"The drill was to stage every row of {victim.key} twice: it has {before} rows, and {mark.rows} were staged instead of {2 * before}. "
        "So it comes out otherwise each time that it is computed, or its source moved meanwhile. Nothing was published. Look at what it "
        "reads, then drill again."
    )


def _twice(recompute: Recompute) -> Recompute:
    if (fill := recompute.fill) is not None:

        def filled_twice(landing: Landing) -> None:
            fill(landing)
            landing.double()

        return replace(recompute, fill=filled_twice)
    rows = f"SELECT * FROM (\n{recompute.select}\n)"  # noqa: S608 - our own SELECT
    return replace(recompute, select=f"{rows} AS once UNION ALL {rows} AS again")


def ended(ledger: Ledger, backfill_id: str) -> DrillEnd | None:
    """How the drill came out; None when it goes on, or is none."""
    events = ledger.events(backfill_id, ENDED_EVENT)
    return DrillEnd(**events[-1].detail) if events else None


def end_drill(work: Work, plan: Plan) -> DrillEnd:
    """Judge the drill, record how it came out, and drop what it left aside; a second call does nothing."""
    if (before := ended(work.ledger, work.backfill_id)) is not None:
        return before
    damaged, problem = _judged(work, plan)
    if work.ledger.backfill(work.backfill_id).state not in TERMINAL:
        work.ledger.move(work.backfill_id, BackfillState.EXPIRED, by=work.by, reason="the drill is over")
    mine = [item.location for item in work.warehouse.storage() if item.backfill_id == work.backfill_id]
    for location in mine:
        work.warehouse.drop(location)
    end = DrillEnd(not problem, damaged, problem or _said(work, damaged), len(mine))
    work.ledger.record_event(work.backfill_id, ENDED_EVENT, by=work.by, detail=asdict(end))
    return end


def _judged(work: Work, plan: Plan) -> tuple[str, str]:
    """The damaged partition, and why the drill does not pass; empty when it does."""
    ours = [one for one in work.warehouse.receipts(plan.target) if one.backfill_id == work.backfill_id]
    records = work.ledger.partitions(work.backfill_id)
    details = [event.detail for event in work.ledger.events(work.backfill_id, DAMAGED_EVENT)]
    # What was staged again after the damage is not damaged.
    events = [detail for detail in details if detail["attempt"] == records[detail["key"]].attempt]
    damaged = str(events[-1]["key"]) if events else ""
    if ours:
        return damaged, f"{plan.target.table} has a receipt of it, so something was published"
    rejected = [key for key, record in records.items() if record.state is PartitionState.REJECTED]
    if not events:
        victim = records[plan.trial_partition.key]
        if victim.rows == 0:
            return "", f"{victim.key} has no row, so nothing could be damaged; name a range with rows"
        reason = f" ({victim.reason})" if victim.reason else ""
        return (
            "",
            f"it ended before a partition could be damaged: {victim.key} is {victim.state}{reason}, so nothing shows whether "
            "damage would be noticed; see the failed task",
        )
    if damaged not in rejected:
        return damaged, f"{damaged} was damaged on purpose, and no check rejected it: it is {records[damaged].state}"
    if others := [key for key in rejected if key != damaged]:
        return damaged, f"{', '.join(others[:5])} was rejected too, which nobody damaged"
    if f"{damaged}: " not in _said(work, damaged):
        return damaged, f"{damaged} was rejected, and no message names it"
    return damaged, ""


def _said(work: Work, damaged: str) -> str:
    """What was said when the damaged partition failed; empty when nothing was."""
    said = [event for event in work.ledger.events(work.backfill_id, FAILED_EVENT) if damaged in event.detail["keys"]]
    return str(said[-1].detail["reason"]) if said else ""
