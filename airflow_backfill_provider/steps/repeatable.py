"""Whether a second run of the transform over the same source gives the same rows, each once; shown on one partition."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import TrialFailed
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.source_reading import SourceReading
from airflow_backfill_provider.spec.metric import Metric, MetricKind
from airflow_backfill_provider.spec.request import conf_of
from airflow_backfill_provider.steps.aside import aside
from airflow_backfill_provider.steps.recompute import one_by_one
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.transform import Finding
from airflow_backfill_provider.warehouses.base import Staged, StagedPartition

_SHOWN = 5
_LABEL = "trial"


def require_repeatable(work: Work, plan: Plan, first: StagedPartition) -> None:
    """Compute the partition again, aside, and hold it against what is staged.

    Where the SQL may depend on the order of rows, they are in another one the second time. Where it reads the table that it
    rebuilds, it runs once more over its own result. Columns that the spec leaves out of its row diff may differ.

    :raises TrialFailed: the runs differ, or a key is staged twice; naming columns, rows, and what in the SQL may do it.
    """
    recomputer = plan.recomputer
    (plain,) = one_by_one(plan, [first.partition])
    _require_each_once(work, plan, first)
    suspects = recomputer.unrepeatable(first.partition)
    ways = recomputer.again(plain, suspects)
    if len(ways) > 1:
        work.log.info("%s is computed again over the same rows in another order.", first.partition.key)
    with aside(work, plan, _LABEL, *ways) as second:
        if difference := _difference(work, plan, first, second):
            raise TrialFailed(
                f"{first.partition.key} was computed twice, and the two runs differ: {difference}. "
                f"{_likely(work, plan, first, suspects)} {_way_on(work)}"
            )
    rerun = recomputer.afterwards(plain, [first])
    if rerun is None:
        return
    with aside(work, plan, _LABEL, rerun) as third:
        if difference := _difference(work, plan, first, third):
            raise TrialFailed(
                f"{first.partition.key} was computed again over its own result, as a second run would once it is published, and "
                f"gives others: {difference}. The SQL reads {plan.target.table}, the table that it rebuilds, and adds to what it "
                f"finds there: each run would add again. Compute the rows from the source alone. {_way_on(work)}"
            )


def _difference(work: Work, plan: Plan, first: StagedPartition, other: StagedPartition) -> str:
    """In which columns the two differ, and in how many rows; empty when they do not, or only where that does not matter."""
    if first.fingerprint == other.fingerprint:
        return ""
    sides = Staged((first,)), Staged((other,))
    partition, left_out, key = first.partition, plan.spec.uncompared_columns, ", ".join(plan.target.key)
    diff = work.warehouse.compare(plan.target, *sides, [partition], exclude=left_out)[partition.key]
    if diff.old == diff.new == diff.identical:
        work.log.info("Two runs of %s differ in %s alone, which the row diff leaves out.", partition.key, left_out)
        return ""
    faulty = diff.old_null_keys + diff.old_duplicate_keys + diff.new_null_keys + diff.new_duplicate_keys
    if faulty:
        return f"{diff.old} rows and {diff.new}, of which {faulty} have a {key} that is NULL or repeated"
    found = []
    if diff.changed:
        columns = work.warehouse.changed_columns(plan.target, *sides, [partition], exclude=left_out)[partition.key]
        found = [f"{name} in {rows} of {diff.old} rows" for name, rows in columns.items()]
    if diff.added or diff.removed:
        found.append(f"{key} itself, by which {diff.removed} rows are of the first alone and {diff.added} of the other")
    return ", ".join(found)


def _likely(work: Work, plan: Plan, staged: StagedPartition, suspects: Sequence[Finding]) -> str:
    """What may do it: the source that is being written, or a function of the SQL."""
    key, source = staged.partition.key, plan.spec.source
    if source is not None:
        reading = SourceReading(plan.spec, work.warehouse, plan.target, plan.arrived, plan.source_versions)
        now = reading.rows([staged.partition])[key]
        if now != plan.source_rows[key]:
            return (
                f"The source {source.table} is being written: it had {plan.source_rows[key]} rows of it when the plan was made "
                f"and has {now}. Try again when that is over, or bound it by source.cutoff."
            )
    if suspects:
        return (
            f"Likely because of: {'; '.join(map(str, suspects[:_SHOWN]))}. A column that is meant to differ can be left out, by "
            "compare: [row_diff: {exclude_columns: […]}]."
        )
    return (
        "Nothing in it is known to do that: look for a clock, a random number, a function of your own, a sum of floating point numbers, whose last "
        "digits depend on the order of rows, or a table that is being written."
    )


def _require_each_once(work: Work, plan: Plan, staged: StagedPartition) -> None:
    repeats = Metric(MetricKind.DUPLICATES, plan.target.key)
    found = work.warehouse.measure(plan.target, Staged((staged,)), [staged.partition], [repeats])
    if rows := found[staged.partition.key][repeats]:
        raise TrialFailed(
            f"{staged.partition.key} has each row more than once: {rows} of its {staged.fingerprint.rows} staged rows repeat the "
            f"{', '.join(plan.target.key)} of another. Look for a join that finds several rows for one, or for rows that are added "
            f"to those published already. {_way_on(work)}"
        )


def _way_on(work: Work) -> str:
    return (
        "No other partition was computed, and nothing was published. Mend it and trigger the DAG with "
        f"{conf_of(work.backfill_id, 'restage')}; or clear the trial when the cause is outside of the SQL."
    )
