"""What the ledger says a backfill put in the place of other rows."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.work import fingerprint_on_record


def published(records: Mapping[str, PartitionRecord]) -> frozenset[str]:
    """The keys of the partitions that are published; some may have held the same rows before."""
    return frozenset(key for key, record in records.items() if record.state is PartitionState.PUBLISHED)


def replaced(plan: Plan, records: Mapping[str, PartitionRecord]) -> frozenset[str]:
    """The keys of the published units in which a partition holds other rows than before: a commit wrote each of them.

    A partition whose stage is forgotten counts as such: that it was published is known by a commit's receipt alone.
    """
    done = published(records)
    differing = {key for key in done if fingerprint_on_record(records[key]) != plan.baseline[key]}
    units = ({partition.key for partition in unit} for unit in plan.units())
    return frozenset(key for unit in units if unit & differing for key in unit & done)
