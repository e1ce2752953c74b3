"""Whether a second run of the SQL over the same source gives the same rows, each once; shown on one partition."""

from __future__ import annotations

from airflow_backfill_provider.errors import TrialFailed
from airflow_backfill_provider.plan import Plan, count_source
from airflow_backfill_provider.spec.metric import Metric, MetricKind
from airflow_backfill_provider.steps.recompute import one_by_one
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.transform import unrepeatable
from airflow_backfill_provider.warehouses.base import RowDiff, Staged, StagedPartition

_SHOWN = 5
TRIAL_LABEL = "trial"


def require_repeatable(work: Work, plan: Plan, first: StagedPartition) -> None:
    """Stage the partition once more and hold it against what is staged; the second stage is dropped.

    Columns that the spec leaves out of its row diff may differ.

    :raises TrialFailed: the runs differ, or a key is staged twice; naming columns, rows, and what in the SQL may do it.
    """
    with work.warehouse.open_stage(plan.target, work.backfill_id, TRIAL_LABEL) as writer:
        (second,) = writer.write(*one_by_one(plan, [first.partition]))
    try:
        _require_equal(work, plan, first, second)
    finally:
        work.warehouse.drop(writer.location)
    _require_each_once(work, plan, first)


def _require_equal(work: Work, plan: Plan, first: StagedPartition, second: StagedPartition) -> None:
    if first.fingerprint == second.fingerprint:
        return
    sides = Staged((first,)), Staged((second,))
    partition, left_out = first.partition, plan.spec.uncompared_columns
    diff = work.warehouse.compare(plan.target, *sides, [partition], exclude=left_out)[partition.key]
    if diff.old == diff.new == diff.identical:
        work.log.info(
            "Two runs of %s differ in %s alone, which the row diff leaves out.", partition.key, ", ".join(left_out)
        )
        return
    columns: dict[str, int] = {}
    if diff.changed:
        columns = work.warehouse.changed_columns(plan.target, *sides, [partition], exclude=left_out)[partition.key]
    raise TrialFailed(
        f"{partition.key} was computed twice, and the two runs differ: {_difference(plan, diff, columns)}. "
        f"{_likely(work, plan, first)} No other partition was computed, and nothing was published. "
        + _way_on(work)
        + (
            " A column that is meant to differ can be left out: compare: [row_diff: {exclude_columns: "
            f"[{', '.join(columns)}]}}]."
            if columns and not (diff.added or diff.removed)
            else ""
        )
    )


def _difference(plan: Plan, diff: RowDiff, columns: dict[str, int]) -> str:
    """In which columns, and in how many rows."""
    key = ", ".join(plan.target.key)
    faulty = diff.old_null_keys + diff.old_duplicate_keys + diff.new_null_keys + diff.new_duplicate_keys
    if faulty:
        return f"{diff.old} rows and {diff.new}, with {faulty} keys ({key}) that are NULL or repeated, so that rows cannot be matched"
    found = [f"{name} in {rows} of {diff.old} rows" for name, rows in columns.items()]
    if diff.added or diff.removed:
        found.append(
            f"{key} itself, by which {diff.removed} rows are of the first run alone and {diff.added} of the second"
        )
    return ", ".join(found)


def _likely(work: Work, plan: Plan, staged: StagedPartition) -> str:
    """What may do it: the source that is being written, or a function of the SQL."""
    key, source = staged.partition.key, plan.spec.source
    if source is not None:
        now = count_source(plan.spec, work.warehouse, plan.target, [staged.partition], plan.arrived)[key]
        if now != plan.source_rows[key]:
            return (
                f"The source {source.table} is being written: it had {plan.source_rows[key]} rows of it when the plan was made "
                f"and has {now}. Try again when that is over, or bound it by source.cutoff."
            )
    found = unrepeatable(plan.spec, staged.partition, plan.dialect)
    if found:
        return "Likely because of: " + "; ".join(map(str, found[:_SHOWN])) + "."
    return (
        "Nothing in the SQL is known to do that: look for a function of your own, a sum of floating point numbers, whose last "
        "digits depend on the order of rows, or a table that is being written."
    )


def _require_each_once(work: Work, plan: Plan, staged: StagedPartition) -> None:
    repeats = Metric(MetricKind.DUPLICATES, plan.target.key)
    found = work.warehouse.measure(plan.target, Staged((staged,)), [staged.partition], [repeats])
    if rows := found[staged.partition.key][repeats]:
        raise TrialFailed(
            f"{staged.partition.key} has each row more than once: {rows} of its {staged.fingerprint.rows} staged rows repeat the "
            f"{', '.join(plan.target.key)} of another. Look for a join that finds several rows for one, or for rows that are added "
            f"to those published already. No other partition was computed, and nothing was published. {_way_on(work)}"
        )


def _way_on(work: Work) -> str:
    return (
        f'Mend the SQL and trigger the DAG with {{"backfill_id": "{work.backfill_id}", "restage": true}}; '
        "or clear the trial when the cause is outside of it."
    )
