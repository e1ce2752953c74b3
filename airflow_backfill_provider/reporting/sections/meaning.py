"""What the columns mean: what a new one lacks, what was left out, and where a column means something else than before."""

from __future__ import annotations

from airflow_backfill_provider.ledger.states import WRITTEN, BackfillState
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section


def meaning(facts: Facts) -> Section | None:
    """What the spec declares of columns; None where that is nothing."""
    plan = facts.plan
    gate = plan.spec.schema_gate
    content = {
        "new": [(name, gate.columns.get(name)) for name in plan.spec.new_columns],
        "added": {column.name.casefold() for column in plan.target.added},
        "published": facts.backfill.state in WRITTEN,
        "rolled_back": facts.backfill.state is BackfillState.ROLLED_BACK,
        "discarded": plan.discarded,
        "change": gate.semantic_change,
    }
    said = content["new"] or content["discarded"] or content["change"]
    return Section("meaning", "What the columns mean", content) if said else None
