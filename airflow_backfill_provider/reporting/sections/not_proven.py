"""What the report does not show to be right, said as plainly as what it does."""

from __future__ import annotations

from airflow_backfill_provider.ledger.states import WRITTEN
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.words import counted, listed

SHOWN = 20
"""Warnings of the plan that are listed."""


def not_proven(facts: Facts) -> Section:
    """Gaps of this backfill, then what no backfill proves, then what the plan warned of."""
    content = {
        "sentences": [*_gaps(facts), *facts.plan.not_proven],
        "warnings": facts.plan.warnings[:SHOWN],
        "warnings_left_out": len(facts.plan.warnings[SHOWN:]),
    }
    return Section("not_proven", "What is not proven", content)


def _gaps(facts: Facts) -> list[str]:
    gaps = []
    if unseen := [one.what for one in facts.inspections if not one.is_inspected]:
        gaps.append(f"Nobody inspected {listed(unseen)}.")
    if missing := len(facts.lines) - len(facts.compared):
        were = "was" if missing == 1 else "were"
        gaps.append(f"{counted(missing, 'partition')} {were} never compared with what was published.")
    if unmatched := len(facts.unmatched):
        gaps.append(
            f"Rows of {counted(unmatched, 'partition')} could not be matched: their key repeats or is missing, so which "
            "rows changed there is not known."
        )
    target = facts.plan.target
    if target.partition_by in target.key:
        gaps.append(
            f"Nobody looked for rows that moved to another partition: the key holds {target.partition_by}, so such a row is removed in one "
            "and added in the other as if they were two."
        )
    if facts.backfill.state in WRITTEN and not facts.verified:
        gaps.append("The published range was not shown to hold exactly the rows that were checked.")
    if facts.plan.spec.source is None:
        gaps.append("The spec names no source, so nothing was reconciled with one.")
    if facts.plan.spec.control_period is None:
        gaps.append(
            "The spec names no control_period, so nothing shows that the new SQL leaves rows that the bug did not affect as they are."
        )
    elif not facts.control_held:
        gaps.append("The control period was not shown to come out as it is published.")
    gaps.append(
        "Rows outside the range were not compared before and after. A publish replaces the listed partitions and names no other."
    )
    if excluded := facts.plan.spec.uncompared_columns:
        gaps.append(f"Values of {', '.join(excluded)} were not compared; they are published all the same.")
    return gaps
