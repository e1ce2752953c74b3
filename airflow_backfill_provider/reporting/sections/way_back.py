"""How to undo it, from where, and until when."""

from __future__ import annotations

from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.steps.report import undo_command


def way_back(facts: Facts) -> Section:
    """The rollback's command while there is something to roll back."""
    published_at, undone = facts.retention.published_at, facts.moved_to(BackfillState.ROLLED_BACK)
    keep_for = facts.plan.spec.rollback.keep_for
    ended = facts.way_back_ended
    stands = facts.wrote and undone is None and ended is None
    until = facts.retention.until("backup") if stands else None
    content = {
        "command": undo_command(facts.plan, facts.backfill.backfill_id) if stands else None,
        "location": facts.backfill.backup_location,
        "partitions": len(facts.backfill.backup_fingerprints),
        "keep_for": write_duration(keep_for),
        "until": until,
        "longer": until is not None and published_at is not None and until > published_at + keep_for,
        "undone": undone,
        "ended": ended if facts.wrote else None,
        "way": facts.plan.spec.publish.way_back,
    }
    return Section("way_back", "The way back", content)
