"""Validate: judge each staged partition against what it will replace, then the range as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.checks.evaluate import evaluate_partition
from airflow_backfill_provider.checks.metrics import metrics_for
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.report import ValidationReport
from airflow_backfill_provider.errors import (
    BackfillError,
    ConnectionLost,
    LockTimeout,
    PublishRefused,
    StageChanged,
    ValidationFailed,
)
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.plan import Plan, source_rows
from airflow_backfill_provider.spec.checks import Sql
from airflow_backfill_provider.steps.baseline import require_equal
from airflow_backfill_provider.steps.stage import stage_partitions
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import Published, RowDiff, Staged
from airflow_backfill_provider.windows import Partition

DIFF_EVIDENCE = "row_diff_counts"
"""The kind of the evidence entry that holds a partition's row diff, whether or not the spec bounds it."""

_JUDGED = frozenset({PartitionState.VALIDATED, PartitionState.PUBLISHED, PartitionState.ROLLED_BACK})


@dataclass(frozen=True)
class ValidationResult:
    """What one batch came to."""

    validated: int
    reused: int
    warnings: int


def validate_batch(work: Work, keys: Sequence[str]) -> ValidationResult:
    """Judge every staged partition of a batch and record the evidence; one that was rejected is staged again first.

    :raises ValidationFailed: at least one partition was rejected; ``.outcomes`` has every failing check.
    :raises PublishRefused: a partition of the batch is not staged.
    """
    work.stop_or_go()
    revision, plan = work.revision, work.plan()
    partitions = plan.select(keys)
    records = work.ledger.partitions(work.backfill_id, keys)
    rejected = [partition for partition in partitions if records[partition.key].state is PartitionState.REJECTED]
    if rejected:
        work.run()
        work.log.info("Staging %s rejected partitions again.", len(rejected))
        stage_partitions(work, plan, rejected)
        records = work.ledger.partitions(work.backfill_id, keys)
    open_ones = tuple(partition for partition in partitions if records[partition.key].state not in _JUDGED)
    unstaged = [p.key for p in open_ones if records[p.key].state is not PartitionState.STAGED]
    if unstaged:
        raise PublishRefused(
            f"{', '.join(unstaged[:5])} cannot be validated before being staged; clear stage_recompute."
        )
    if not open_ones:
        return ValidationResult(validated=0, reused=len(partitions), warnings=0)
    outcomes, evidence = judge(work, plan, open_ones, records)
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
    for line in report.lines():
        work.log.warning("%s", line)
    if bad:
        raise ValidationFailed(
            f"{len(bad)} of {len(open_ones)} partitions were rejected, so nothing will be published.\n"
            + "\n".join(report.lines())
            + "\nMend the cause and clear this task: a rejected partition is staged again before it is judged.",
            report.failures,
        )
    return ValidationResult(validated=len(good), reused=len(partitions) - len(open_ones), warnings=len(report.warnings))


def judge(
    work: Work, plan: Plan, partitions: Sequence[Partition], records: Mapping[str, PartitionRecord]
) -> tuple[list[Outcome], dict[str | None, list[dict[str, Any]]]]:
    """Measure and compare the staged partitions and evaluate every check; outcomes, and the evidence by key."""
    staged = Staged(tuple(staged_partition(partition, records[partition.key]) for partition in partitions))
    needed = metrics_for(plan.spec)
    warehouse, target = work.warehouse, plan.target
    of_staged = warehouse.measure(target, staged, partitions, needed.staged)
    of_baseline = warehouse.measure(target, Published(), partitions, needed.baseline)
    of_source: Mapping[str, Any] = {}
    if plan.spec.source is not None and needed.source:
        rows = source_rows(plan.spec.source, plan.spec)
        of_source = warehouse.measure(target, rows, partitions, needed.source)
    diffs = warehouse.compare(target, Published(), staged, partitions)
    _require_compared(work, plan, staged, diffs)
    judged: list[Outcome] = []
    evidence: dict[str | None, list[dict[str, Any]]] = {}
    for partition in partitions:
        key = partition.key
        outcomes = evaluate_partition(
            plan.spec, key, of_staged[key], of_baseline[key], of_source.get(key, {}), diffs[key],
            _run_sql_checks(work, plan, staged, partition),
        )  # fmt: skip
        outcomes = [_with_sql(work, plan, staged, partition, outcome) for outcome in outcomes]
        evidence[key] = [*(outcome.to_json() for outcome in outcomes), _diff_evidence(diffs[key])]
        judged += outcomes
    return judged, evidence


def _require_compared(work: Work, plan: Plan, staged: Staged, diffs: Mapping[str, RowDiff]) -> None:
    """Refuse when what was compared is not the plan's baseline, or not what was staged.

    Compared with anything but the baseline, the rows say nothing about what a publish would replace.
    """
    warehouse, target = work.warehouse, plan.target
    partitions = tuple(stage.partition for stage in staged.partitions)
    old = {key: diff.old_fingerprint for key, diff in diffs.items() if diff.old_fingerprint is not None}
    new = {key: diff.new_fingerprint for key, diff in diffs.items() if diff.new_fingerprint is not None}
    if unmatched := tuple(partition for partition in partitions if partition.key not in old):
        old |= warehouse.fingerprint(target, Published(), unmatched)
    if unmatched := tuple(partition for partition in partitions if partition.key not in new):
        new |= warehouse.fingerprint(target, staged, unmatched)
    require_equal(
        {partition.key: plan.baseline[partition.key] for partition in partitions},
        old,
        f"The published range of {target.table} moved since the plan was made",
    )
    changed = {
        stage.partition.key: (stage.fingerprint.rows, new[stage.partition.key].rows)
        for stage in staged.partitions
        if stage.fingerprint != new[stage.partition.key]
    }
    if changed:
        raise StageChanged(
            f"{len(changed)} staged partitions are not what was staged: {', '.join(list(changed)[:5])}. Nothing was "
            "judged. Clear stage_recompute with downstream: a stage that changed is staged again.",
            changed,
        )


def validate_range(work: Work) -> int:
    """Judge the range as a whole and call the backfill validated; the number of partitions.

    :raises PublishRefused: a partition is not validated.
    :raises ValidationFailed: a staged key exists outside the range, or twice in it.
    """
    work.stop_or_go()
    revision, plan = work.revision, work.plan()
    records = work.ledger.partitions(work.backfill_id)
    if all(record.state in {PartitionState.PUBLISHED, PartitionState.ROLLED_BACK} for record in records.values()):
        return len(records)
    waiting = [key for key, record in records.items() if record.state is not PartitionState.VALIDATED]
    if waiting:
        raise PublishRefused(
            f"{len(waiting)} of {len(records)} partitions are not validated, so nothing is published: "
            f"{', '.join(waiting[:5])}. Clear their failed tasks once the cause is mended."
        )
    staged = Staged(tuple(staged_partition(p, records[p.key]) for p in plan.partitions))
    no_new_keys = adds_no_key(work, plan)
    conflicts = work.warehouse.key_conflicts(plan.target, staged, no_new_keys=no_new_keys)
    key = ", ".join(plan.target.key)
    outcomes = [
        Outcome.of_range(
            "key_outside_range", f"no staged {key} outside the range", conflicts.outside, conflicts.examples
        ),
    ]
    if not no_new_keys:
        outcomes.append(
            Outcome.of_range("key_repeated", f"every staged {key} once", conflicts.repeated, conflicts.examples)
        )
    work.ledger.record_evidence(work.backfill_id, {None: [outcome.to_json() for outcome in outcomes]}, by=work.by)
    report = ValidationReport(tuple(outcomes))
    if report.failures:
        raise ValidationFailed(
            "The range as a whole was rejected, so nothing will be published.\n"
            + "\n".join(report.lines())
            + "\nEvery key must stand once in the whole table: mend the SQL or the key in the spec.",
            report.failures,
        )
    # A publish that was killed in the middle left PUBLISHING behind; the publish step alone knows how to go on.
    if work.ledger.backfill(work.backfill_id).state not in {BackfillState.VALIDATED, BackfillState.PUBLISHING}:
        work.run()
        work.ledger.move(work.backfill_id, BackfillState.VALIDATED, by=work.by, revision=revision)
    return len(records)


def _run_sql_checks(work: Work, plan: Plan, staged: Staged, partition: Partition) -> dict[str, int | Exception]:
    (here,) = (stage for stage in staged.partitions if stage.partition == partition)
    results: dict[str, int | Exception] = {}
    for check in plan.spec.checks:
        if isinstance(check, Sql):
            try:
                results[check.name] = work.warehouse.count_rows(plan.target, here, check.query)
            except (ConnectionLost, LockTimeout):
                raise
            except BackfillError as error:
                results[check.name] = error
    return results


def _with_sql(work: Work, plan: Plan, staged: Staged, partition: Partition, outcome: Outcome) -> Outcome:
    """A failing outcome with the statement that shows it."""
    if outcome.metric is None or not outcome.failed:
        return outcome
    here = Staged(tuple(stage for stage in staged.partitions if stage.partition == partition))
    return outcome.with_sql(work.warehouse.metric_sql(plan.target, here, partition, outcome.metric))


def adds_no_key(work: Work, plan: Plan) -> bool:
    """Whether validation proved that every staged key is published in its own partition already, once on each side."""
    evidence = work.ledger.evidence(work.backfill_id)
    return all(
        any(entry["kind"] == DIFF_EVIDENCE and _matched(entry) for entry in evidence.get(key, ())) for key in plan.keys
    )


def _matched(diff: Mapping[str, Any]) -> bool:
    return not any(value for name, value in diff.items() if name == "added" or name.endswith("_keys"))


def _diff_evidence(diff: RowDiff) -> dict[str, Any]:
    counts = {name: value for name, value in asdict(diff).items() if not name.endswith("_fingerprint")}
    return {"kind": DIFF_EVIDENCE, **counts}
