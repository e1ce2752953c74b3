"""Rows that are left out because the target would refuse them: how many, for which constraint, and whether that is too many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.constraint import metric_of_constraint
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.steps.recompute import write
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.unfit_rows import fitting, of_one_row
from airflow_backfill_provider.warehouses.base import Staged
from airflow_backfill_provider.windows import Partition

DISCARDED_EVIDENCE = "discarded_rows_counts"
"""The kind of the evidence entry that holds what was left out of a partition."""


@dataclass(frozen=True)
class Discarded:
    """What was left out of one partition, or of several."""

    rows: int
    by: Mapping[str, int]
    """Rows that break each constraint, by its text; one row may break several."""
    unexplained: int = 0
    """By how many the rows that fit, computed once more, differ from those that are staged; of several, all of it together."""

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} for {text}" for text, count in self.by.items() if count)
        found = f"{self.rows} left out: {reasons}" if self.rows else "none left out"
        if not self.unexplained:
            return found
        return f"{found}; computed again, the rows that fit are {self.unexplained} more or fewer than are staged"

    def entry(self) -> dict[str, Any]:
        """As the ledger keeps it."""
        return {"kind": DISCARDED_EVIDENCE, **asdict(self)}


def count_discarded(work: Work, plan: Plan, staged: Staged, partitions: Sequence[Partition]) -> dict[str, Discarded]:
    """What is left out of each partition, by key; empty unless the spec leaves rows out.

    The partitions are computed once more, whole, in a stage that is dropped.
    """
    if plan.spec.schema_gate.mode != "discard_rows":
        return {}
    recomputer, constraints = plan.whole_recomputer, of_one_row(plan.target)
    metrics = {constraint.text: metric_of_constraint(constraint) for constraint in constraints}
    unfit = Metric(MetricKind.UNTRUE, expression=fitting(plan.target, plan.dialect))
    with work.warehouse.open_stage(plan.target, work.backfill_id, "unfit") as writer:
        ways = [recomputer.recompute((partition,), partition, plan.source_versions) for partition in partitions]
        whole = Staged(tuple(one for way in ways for one in write(work, plan, writer, [way])))
    try:
        found = work.warehouse.measure(plan.target, whole, partitions, [ROWS, unfit, *metrics.values()])
    finally:
        work.warehouse.drop(writer.location)
    kept = {entry.partition.key: entry.fingerprint.rows for entry in staged.partitions}
    return {
        key: Discarded(
            rows=int(values[unfit] or 0),
            by={text: int(values[metric] or 0) for text, metric in metrics.items()},
            unexplained=abs(int(values[ROWS] or 0) - int(values[unfit] or 0) - kept[key]),
        )
        for key, values in found.items()
    }


def recorded_discarded(entries: Iterable[Mapping[str, Any]]) -> Discarded | None:
    """What validation recorded of one partition; None when it recorded nothing."""
    entry = next((one for one in entries if one["kind"] == DISCARDED_EVIDENCE), None)
    return None if entry is None else Discarded(entry["rows"], entry["by"], entry["unexplained"])


def together(parts: Iterable[Discarded]) -> Discarded:
    """What was left out of all of them."""
    rows, unexplained, by = 0, 0, dict[str, int]()
    for part in parts:
        rows += part.rows
        unexplained += part.unexplained
        for text, count in part.by.items():
            by[text] = by.get(text, 0) + count
    return Discarded(rows, by, unexplained)


def judge_discarded(plan: Plan, key: str | None, found: Discarded) -> Outcome:
    """Whether no more was left out than the spec allows, and the staged rows are all others; ``key`` is None for the range."""
    limit = plan.spec.schema_gate.max_discarded or 0
    answer = Answer("discarded_rows", "discarded_rows", key, "error")
    detail = "Mend the rows in the SQL or in the source, or raise schema.max_discarded."
    if found.unexplained:
        detail = (
            "So nothing shows how many were left out: the source changed since they were staged, or the SQL yields other rows "
            "each time. Stage again once the source is at rest."
        )
    holds = found.rows <= limit and not found.unexplained
    return answer.of(holds, f"at most {limit} rows of the range left out", str(found), "" if holds else detail)
