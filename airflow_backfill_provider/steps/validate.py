"""Validate: judge each staged partition against what it will replace, then the range as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_backfill_provider.checks.report import ValidationReport
from airflow_backfill_provider.errors import PublishRefused, ValidationFailed
from airflow_backfill_provider.ledger.records import Gate, PartitionRecord
from airflow_backfill_provider.ledger.states import READY, BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.approval import require_approval
from airflow_backfill_provider.steps.budget import Budgets
from airflow_backfill_provider.steps.control_period import hold_control
from airflow_backfill_provider.steps.drill import damage
from airflow_backfill_provider.steps.failing import failing_together, record_failure
from airflow_backfill_provider.steps.judge import DIFF_EVIDENCE, judge_partitions, judge_range
from airflow_backfill_provider.steps.live import unclaimed
from airflow_backfill_provider.steps.metrics import CHANGED_ROWS, OUTCOMES
from airflow_backfill_provider.steps.open_runs import ended_by_a_stop
from airflow_backfill_provider.steps.samples import keep_sample
from airflow_backfill_provider.steps.stage import stage_batch, stage_partitions, with_what_follows
from airflow_backfill_provider.steps.way_on import after_a_no
from airflow_backfill_provider.steps.work import Work

RESTAGING_EVENT = "partitions.restaging"
"""A validation is about to stage partitions again; its line has the number that each one's next attempt gets."""
_JUDGED = frozenset({PartitionState.VALIDATED, PartitionState.PUBLISHED, PartitionState.ROLLED_BACK})


Evidence = Mapping[str | None, Sequence[Mapping[str, Any]]]
"""What was found, as the ledger keeps it, by partition key."""


@dataclass(frozen=True)
class ValidationResult:
    """What one batch came to."""

    validated: int
    reused: int
    warnings: int


def _tell_nobody(report: ValidationReport) -> None:
    """The report goes to the ledger and the log alone."""


def validate_batch(
    work: Work, keys: Sequence[str], tell: Callable[[ValidationReport], None] = _tell_nobody
) -> ValidationResult:
    """Judge every staged partition of a batch and record the evidence; one that was rejected is staged again first, also by
    the attempt after one that broke off meanwhile.

    ``tell`` gets the report before a rejection is raised.

    :raises ValidationFailed: at least one partition was rejected; ``.outcomes`` has every failing check.
    :raises PublishRefused: a partition of the batch is not staged.
    :raises NotApproved: a partition was rejected, and the plan, or its trial, waits for a person.
    :raises Stopped: a stop signal is set; no run elsewhere of these partitions is gone on with.
    """
    with ended_by_a_stop(work, keys):
        return _validate_batch(work, keys, tell)


def _validate_batch(work: Work, keys: Sequence[str], tell: Callable[[ValidationReport], None]) -> ValidationResult:
    work.stop_or_go()
    revision, plan = work.revision, work.plan()
    partitions = plan.select(keys)
    records = work.ledger.partitions(work.backfill_id, keys)
    unfinished = _being_staged_again(work, records)
    again = [one for one in partitions if one.key in unfinished or records[one.key].state is PartitionState.REJECTED]
    again = with_what_follows(plan, again, records)
    if again:
        require_approval(work, plan, Gate.PLAN, Gate.REVIEW)
        work.run()
        work.log.info("Staging %s rejected partitions again.", len(again))
        attempts = {one.key: records[one.key].attempt + 1 for one in again}
        work.ledger.record_event(work.backfill_id, RESTAGING_EVENT, by=work.by, detail={"attempts": attempts})
        with failing_together(work, list(attempts)):
            stage_partitions(work, plan, again)
        plan, records = work.plan(), work.ledger.partitions(work.backfill_id, keys)
    if plan.request.drill:
        damage(work, plan, partitions)
        records = work.ledger.partitions(work.backfill_id, keys)
    open_ones = tuple(partition for partition in partitions if records[partition.key].state not in _JUDGED)
    unstaged = [p.key for p in open_ones if records[p.key].state is not PartitionState.STAGED]
    if unstaged:
        raise PublishRefused(
            f"{', '.join(unstaged[:5])} cannot be validated before being staged; clear stage_recompute."
        )
    if not open_ones:
        return ValidationResult(validated=0, reused=len(partitions), warnings=0)
    outcomes, evidence = judge_partitions(work, plan.as_read(open_ones), open_ones, records)
    report = ValidationReport(tuple(outcomes))
    bad = report.rejected_keys
    good = [partition.key for partition in open_ones if partition.key not in bad]
    work.ledger.record_verdicts(
        work.backfill_id,
        dict.fromkeys(good, PartitionState.VALIDATED) | dict.fromkeys(sorted(bad), PartitionState.REJECTED),
        evidence,
        attempts={partition.key: records[partition.key].attempt for partition in open_ones},
        revision=revision,
        by=work.by,
        reason=report.summary(),
    )
    _count(work, good, bad, evidence)
    tell(report)
    for line in report.lines():
        work.log.warning("%s", line)
    if bad:
        record_failure(work, sorted(bad), report.reason())
        keep_sample(work, plan, {key: evidence[key] for key in bad})
        raise ValidationFailed(
            f"{len(bad)} of {len(open_ones)} partitions were rejected, so nothing will be published.\n"
            + "\n".join(report.lines())
            + f"\n{after_a_no(plan, 'clear this task: a rejected partition is staged again before it is judged.')}",
            report.failures,
        )
    return ValidationResult(validated=len(good), reused=len(partitions) - len(open_ones), warnings=len(report.warnings))


def _being_staged_again(work: Work, records: Mapping[str, PartitionRecord]) -> set[str]:
    """The partitions that an earlier validation was staging again when it broke off, and that nobody else has begun since."""
    staging = {key: record for key, record in records.items() if record.state is PartitionState.STAGING}
    if not staging:
        return set()
    begun = {
        (key, attempt, event.by)
        for event in work.ledger.events(work.backfill_id, RESTAGING_EVENT)
        for key, attempt in event.detail["attempts"].items()
    }
    return {key for key, record in staging.items() if (key, record.attempt, record.owner) in begun}


def _count(work: Work, good: Collection[str], bad: Collection[str], evidence: Evidence) -> None:
    for outcome, keys in (("validated", good), ("rejected", bad)):
        if keys:
            work.metrics.count(OUTCOMES, len(keys), outcome=outcome)
    diffs = [entry for entries in evidence.values() for entry in entries if entry["kind"] == DIFF_EVIDENCE]
    work.metrics.count(CHANGED_ROWS, sum(diff[name] for diff in diffs for name in ("changed", "added", "removed")))


def validate_range(work: Work, tell: Callable[[ValidationReport], None] = _tell_nobody) -> int:
    """Judge the range as a whole and call the backfill validated; the number of partitions.

    Live partitions are staged and judged here, once all others are validated.

    ``tell`` gets the report before a rejection is raised.

    :raises PublishRefused: a partition is not validated.
    :raises BudgetExceeded: more is staged, or set aside, than the spec allows.
    :raises ControlMoved: the control period, held now unless it was before, is not as it is published.
    :raises ValidationFailed: a staged key exists outside the range or twice in it, or a check of the range said no.
    :raises Stopped: a stop signal is set; no run elsewhere of the control period, or of live partitions, is gone on with.
    """
    plan = work.stored_plan()
    with ended_by_a_stop(work, [one.key for one in (*plan.live, *plan.spec.control_partitions)]):
        return _validate_range(work, tell)


def _validate_range(work: Work, tell: Callable[[ValidationReport], None]) -> int:
    work.stop_or_go()
    revision, plan = work.revision, work.plan()
    records = work.ledger.partitions(work.backfill_id)
    if all(record.state in {PartitionState.PUBLISHED, PartitionState.ROLLED_BACK} for record in records.values()):
        return len(records)
    waiting = [key for key, record in records.items() if record.state not in READY]
    # Where an earlier run let them go, the scheduled pipeline may have written them since they were staged.
    waiting = sorted({*waiting, *(one.key for one in unclaimed(work, plan, plan.live))})
    live = [partition.key for partition in plan.live if partition.key in waiting]
    if live and live == waiting:
        stage_batch(work, live)
        validate_batch(work, live, tell)
        plan, records, waiting = work.plan(), work.ledger.partitions(work.backfill_id), []
    if waiting:
        raise PublishRefused(
            f"{len(waiting)} of {len(records)} partitions are not validated, so nothing is published: "
            f"{', '.join(waiting[:5])}. Clear their failed tasks once the cause is mended."
        )
    # The range was judged before its first unit was published; by now the baseline of that unit is gone.
    if not any(record.state is PartitionState.PUBLISHED for record in records.values()):
        if not _is_called_validated(work):
            Budgets(work).require_amounts()
        hold_control(work)
        _judge(work, plan, records, tell)
    if not _is_called_validated(work):
        work.run()
        work.ledger.move(work.backfill_id, BackfillState.VALIDATED, by=work.by, revision=revision)
    return len(records)


def _is_called_validated(work: Work) -> bool:
    # A publish that was killed in the middle left PUBLISHING behind; the publish step alone knows how to go on.
    return work.ledger.backfill(work.backfill_id).state in {BackfillState.VALIDATED, BackfillState.PUBLISHING}


def _judge(
    work: Work, plan: Plan, records: Mapping[str, PartitionRecord], tell: Callable[[ValidationReport], None]
) -> None:
    outcomes = judge_range(work, plan, records)
    work.ledger.record_evidence(work.backfill_id, {None: [outcome.to_json() for outcome in outcomes]}, by=work.by)
    keep_sample(work, plan, work.ledger.evidence(work.backfill_id))
    report = ValidationReport(tuple(outcomes))
    tell(report)
    for line in report.lines():
        work.log.warning("%s", line)
    if report.failures:
        raise ValidationFailed(
            "The range as a whole was rejected, so nothing will be published.\n"
            + "\n".join(report.lines())
            + f"\n{after_a_no(plan, 'clear this task.')}",
            report.failures,
        )
