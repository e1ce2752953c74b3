"""Judging staged rows: find out what the verdicts rest on, have them judged, and keep what was found as evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_backfill_provider.checks.evaluate import evaluate_partition, evaluate_range, is_key_check, is_of_trial
from airflow_backfill_provider.checks.findings import Side
from airflow_backfill_provider.checks.fold import RangeDiff, fold, folds, from_recorded, to_recorded
from airflow_backfill_provider.checks.like_trial import judge_like_trial
from airflow_backfill_provider.checks.metrics import metric_of_check, metrics_for, metrics_for_range
from airflow_backfill_provider.checks.moved import is_matched, judge_moved, judge_target, judge_units
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.row_diff import with_columns
from airflow_backfill_provider.errors import PublishRefused, SpecError, StageChanged, WarehouseError
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import target_reading
from airflow_backfill_provider.source_reading import source_rows
from airflow_backfill_provider.spec.comparisons import LAST_GOOD, CompareRows
from airflow_backfill_provider.spec.metric import Metric
from airflow_backfill_provider.steps.baseline import require_equal
from airflow_backfill_provider.steps.discarded import (
    count_discarded,
    judge_discarded,
    recorded_discarded,
    together,
)
from airflow_backfill_provider.steps.last_good import Kept, kept_last
from airflow_backfill_provider.steps.measurement import Values, measure, measure_together, run_sql_checks
from airflow_backfill_provider.steps.report_queries import ask_report_queries
from airflow_backfill_provider.steps.unknown_fill import fill_metrics, judge_fill
from airflow_backfill_provider.steps.way_on import rebase
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import KeyConflicts, Published, RowDiff, Rows, Source, Staged
from airflow_backfill_provider.windows import Partition

DIFF_EVIDENCE = "row_diff_counts"
"""The kind of the evidence entry that holds a partition's row diff, whether or not the spec bounds it."""
MEASURED_EVIDENCE = "measured"
"""The kind of the entry that holds a partition's measured values by side, for the verdicts about the range."""

_Evidence = dict[str | None, list[dict[str, Any]]]


def judge_partitions(
    work: Work, plan: Plan, partitions: Sequence[Partition], records: Mapping[str, PartitionRecord]
) -> tuple[list[Outcome], _Evidence]:
    """Measure and compare the staged partitions and evaluate every check; outcomes, and the evidence by key."""
    spec, target, warehouse = plan.spec, plan.target, work.warehouse
    staged = Staged(tuple(staged_partition(partition, records[partition.key]) for partition in partitions))
    needed = metrics_for(spec, target.constraints)
    of_staged = measure(work, plan, staged, partitions, [*needed.staged, *fill_metrics(plan)])
    of_baseline = measure(work, plan, Published(), partitions, needed.baseline)
    of_source: dict[str, Values] = {}
    if spec.source is not None and needed.of("source"):
        of_source = measure(work, plan, _source(plan), partitions, needed.of("source"))
    of_tables = {
        side: measure(work, plan, _other_table(plan, name), partitions, needed.of(side))
        for side, name in spec.compared_tables.items()
        if needed.of(side)
    }
    of_last = kept_last(work.ledger, plan, plan.keys) if needed.of(LAST_GOOD) else {}
    diffs = warehouse.compare(target, Published(), staged, partitions, exclude=spec.uncompared_columns)
    _require_compared(work, plan, staged, diffs)
    by_key: dict[str, list[Outcome]] = {}
    for entry in staged.partitions:
        key = entry.partition.key
        queries = run_sql_checks(work, plan, Staged((entry,)), lambda check: check.judges_partitions)
        others = {side: Side(values[key]) for side, values in of_tables.items()}
        if key in of_last:
            others[LAST_GOOD] = _as_kept(of_last[key], needed.of(LAST_GOOD))
        by_key[key] = evaluate_partition(
            spec,
            key,
            of_staged[key],
            of_baseline[key],
            of_source.get(key, {}),
            diffs[key],
            queries,
            target.constraints,
            others,
        )
    _explain_changes(work, plan, staged, diffs, by_key)
    discarded = count_discarded(work, plan, staged, partitions)
    for key, found in discarded.items():
        by_key[key].append(judge_discarded(plan, key, found))
    evidence: _Evidence = {}
    for entry in staged.partitions:
        key = entry.partition.key
        by_key[key] = [_with_sql(work, plan, Staged((entry,)), outcome) for outcome in by_key[key]]
        measured = {"staged": of_staged[key], "baseline": of_baseline[key], "source": of_source.get(key, {})}
        evidence[key] = [
            *(outcome.to_json() for outcome in by_key[key]),
            _diff_evidence(diffs[key]),
            {"kind": MEASURED_EVIDENCE, **{side: to_recorded(values) for side, values in measured.items()}},
            *([discarded[key].entry()] if key in discarded else []),
        ]
    return [outcome for outcomes in by_key.values() for outcome in outcomes], evidence


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
        rebase(work.backfill_id),
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


def judge_range(work: Work, plan: Plan, records: Mapping[str, PartitionRecord]) -> list[Outcome]:
    """Whether keys stay unique in the table, and every check of the range as a whole.

    What follows from the partitions is taken from their evidence; only the rest is measured, over all of the range.
    """
    staged = Staged(tuple(staged_partition(p, records[p.key]) for p in plan.partitions))
    evidence = work.ledger.evidence(work.backfill_id)
    diffs = _recorded(plan, evidence, DIFF_EVIDENCE)
    if not all(diffs):
        raise PublishRefused("Rows of a partition were never matched by key; clear its validate_partition.")
    no_new_keys = all(_adds_no_key(diff) for diff in diffs)
    conflicts = work.warehouse.key_conflicts(plan.target, staged, no_new_keys=no_new_keys)
    outcomes = _key_outcomes(work, plan, staged, conflicts, no_new_keys=no_new_keys)
    known: Values = {}
    if no_new_keys or not conflicts.repeated:
        keys = [check for check in plan.spec.checks if is_key_check(check, plan.target.key)]
        known = {metric: 0 for check in keys if (metric := metric_of_check(check)) is not None}
    measured = _recorded(plan, evidence, MEASURED_EVIDENCE)
    needed = metrics_for_range(plan.spec, plan.target.constraints)
    sides: dict[str, tuple[Rows, tuple[Metric, ...]]] = {
        "staged": (staged, (*needed.staged, *fill_metrics(plan))),
        "baseline": (Published(), needed.baseline),
    }
    if plan.spec.source is not None:
        sides["source"] = (_source(plan.as_read(plan.partitions)), needed.of("source"))
    sides |= {side: (_other_table(plan, name), needed.of(side)) for side, name in plan.spec.compared_tables.items()}
    found: dict[str, Values] = {"source": {}}
    for side, (rows, metrics) in sides.items():
        values = _folded(metrics, [entry.get(side, {}) for entry in measured], plan)
        if side == "staged":
            values |= {metric: value for metric, value in known.items() if metric in metrics}
        rest = [metric for metric in metrics if metric not in values]
        found[side] = values | measure_together(work, plan, rows, plan.partitions, rest)
    outcomes += evaluate_range(
        plan.spec,
        found["staged"],
        found["baseline"],
        found["source"],
        RangeDiff.of(diffs),
        run_sql_checks(work, plan, staged, lambda check: check.judges_range),
        plan.target.constraints,
        {side: Side(found[side]) for side in plan.spec.compared_tables},
        no_new_keys=no_new_keys,
    )
    outcomes += ask_report_queries(work, plan, staged)
    by_key = {
        key: (entry.get("baseline", {}), entry.get("staged", {}))
        for key, entry in zip(plan.keys, measured, strict=True)
    }
    outcomes += judge_fill(plan, found["staged"], {key: new for key, (_, new) in by_key.items()})
    outcomes += _whereabouts(work, plan, staged, diffs)
    if left_out := [one for key in plan.keys if (one := recorded_discarded(evidence.get(key, ()))) is not None]:
        outcomes.append(judge_discarded(plan, None, together(left_out)))
    for comparison in filter(is_of_trial, plan.spec.comparisons):
        outcomes.append(judge_like_trial(comparison, plan.trial_partition.key, by_key))
    return [_with_sql(work, plan, staged, outcome) for outcome in outcomes]


def _whereabouts(work: Work, plan: Plan, staged: Staged, diffs: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Whether the published keys come out again, each in its own partition; rows are matched only where both kinds differ."""
    bounded = any(isinstance(one, CompareRows) and one.max_removed is not None for one in plan.spec.comparisons)
    same_table = judge_target(diffs, removal_is_bounded=bounded, keeps_unmatched=plan.spec.publish.keep_unmatched)
    outcomes = [same_table] if same_table is not None else []
    # A key that holds the partition column is another key in another partition.
    if plan.target.partition_by not in plan.target.key:
        # Where keys are NULL or repeat, the comparison does not say whether one came or went.
        may_move = all(any(diff[what] or not is_matched(diff) for diff in diffs) for what in ("added", "removed"))
        moves = work.warehouse.moved_keys(plan.target, Published(), staged, plan.partitions) if may_move else {}
        outcomes.append(judge_moved(moves))
        if (unit := plan.spec.publish.unit) != "range":
            order = {partition.key: number for number, one in enumerate(plan.units()) for partition in one}
            outcomes.append(judge_units(moves, order, unit))
    return outcomes


def _key_outcomes(
    work: Work, plan: Plan, staged: Staged, conflicts: KeyConflicts, *, no_new_keys: bool
) -> list[Outcome]:
    key = ", ".join(plan.target.key)
    may_show = plan.spec.samples_in_report and plan.spec.shown_columns(plan.target.key) == plan.target.key
    examples = conflicts.examples if may_show else ()
    outcomes = [
        Outcome.of_range("key_outside_range", f"no staged {key} outside the range", conflicts.outside, examples),
        Outcome.of_range("key_repeated", f"every staged {key} once", conflicts.repeated, examples),
    ]
    if any(outcome.failed for outcome in outcomes):
        statements = work.warehouse.key_conflict_sql(plan.target, staged)
        outcomes = [
            outcome.with_sql(sql) if outcome.failed else outcome
            for outcome, sql in zip(outcomes, statements, strict=True)
        ]
    return outcomes[:1] if no_new_keys else outcomes


def _explain_changes(
    work: Work, plan: Plan, staged: Staged, diffs: Mapping[str, RowDiff], by_key: dict[str, list[Outcome]]
) -> None:
    """Say of each row diff that does not pass which columns changed; read only then."""

    def unexplained(outcome: Outcome) -> bool:
        return outcome.kind == "row_diff" and outcome.verdict != "pass"

    keys = [key for key, outcomes in by_key.items() if diffs[key].changed and any(map(unexplained, outcomes))]
    entries = tuple(entry for entry in staged.partitions if entry.partition.key in keys)
    changes = work.warehouse.changed_columns(
        plan.target,
        Published(),
        Staged(entries),
        [entry.partition for entry in entries],
        exclude=plan.spec.uncompared_columns,
    )
    for key in keys:
        by_key[key] = [
            with_columns(outcome, diffs[key], changes[key]) if unexplained(outcome) else outcome
            for outcome in by_key[key]
        ]


def _with_sql(work: Work, plan: Plan, staged: Staged, outcome: Outcome) -> Outcome:
    """A failing outcome with the statement that shows it."""
    if outcome.metric is None or not outcome.failed:
        return outcome
    partitions = [entry.partition for entry in staged.partitions]
    try:
        return outcome.with_sql(work.warehouse.metric_sql(plan.target, staged, partitions, outcome.metric))
    except (SpecError, WarehouseError):
        # There is none when the metric names a table that is gone, which the outcome says already.
        return outcome


def _source(plan: Plan) -> Source:
    assert plan.spec.source is not None
    return source_rows(plan.spec.source, plan.spec, plan.arrived, plan.source_versions)


def _other_table(plan: Plan, name: str) -> Source:
    """The rows of another table, which is cut as the target is."""
    return Source(name, plan.target.partition_by, target_reading(plan.spec))


def _as_kept(kept: Kept, metrics: Sequence[Metric]) -> Side:
    """What a backfill recorded of the rows that it staged in a partition, and published."""
    good, entries = kept
    recorded = next((entry for entry in entries if entry["kind"] == MEASURED_EVIDENCE), {}).get("staged", {})
    values = {metric: from_recorded(metric, [recorded]) for metric in metrics}
    return Side({metric: found[0] for metric, found in values.items() if found is not None}, f"as published by {good}")


def _recorded(
    plan: Plan, evidence: Mapping[str | None, Sequence[Mapping[str, Any]]], kind: str
) -> list[Mapping[str, Any]]:
    """Each partition's entry of this kind as validation recorded it; empty where there is none."""
    return [next((entry for entry in evidence.get(key, ()) if entry["kind"] == kind), {}) for key in plan.keys]


def _folded(metrics: Sequence[Metric], recorded: Sequence[Mapping[str, Any]], plan: Plan) -> Values:
    """What follows from the partitions' recorded values."""
    values: Values = {}
    for metric in metrics:
        if folds(metric, plan.target.partition_by) and (parts := from_recorded(metric, recorded)) is not None:
            values[metric] = fold(metric, parts)
    return values


def differing_in(evidence: Sequence[Mapping[str, Any]]) -> int:
    """In how many rows a partition was found to differ; 0 where rows could not be matched."""
    diff: Mapping[str, Any] = next((entry for entry in evidence if entry["kind"] == DIFF_EVIDENCE), {})
    return sum(diff.get(what, 0) for what in ("changed", "added", "removed"))


def adds_no_key(work: Work, plan: Plan) -> bool:
    """Whether validation proved that every staged key is published in its own partition already, once on each side."""
    diffs = _recorded(plan, work.ledger.evidence(work.backfill_id), DIFF_EVIDENCE)
    return all(diff and _adds_no_key(diff) for diff in diffs)


def _adds_no_key(diff: Mapping[str, Any]) -> bool:
    """Whether rows could be matched and none was added; a faulty diff proves nothing."""
    return is_matched(diff) and not diff["added"]


def _diff_evidence(diff: RowDiff) -> dict[str, Any]:
    counts = {name: value for name, value in asdict(diff).items() if not name.endswith("_fingerprint")}
    return {"kind": DIFF_EVIDENCE, **counts}
