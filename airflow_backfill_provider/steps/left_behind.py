"""Statements that an engine works on by itself: known by the ledger from their beginning, and taken over from a task that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Running, StagedPartition, Tell
from airflow_backfill_provider.windows import Partition

BEGUN_EVENT = "statement_begun"


def telling(work: Work, attempts: Mapping[str, int]) -> Tell:
    """Record each statement of these attempts, by partition key, as soon as the engine gave it an id."""

    def tell(running: Running) -> None:
        detail = {
            "statement": running.statement,
            "location": running.location,
            "attempts": {key: attempts[key] for key in running.keys},
        }
        work.ledger.record_event(work.backfill_id, BEGUN_EVENT, by=work.by, detail=detail)

    return tell


def left_behind(work: Work, plan: Plan, partitions: Sequence[Partition]) -> list[Running]:
    """The statements that the attempts before began under this plan's intent for these partitions, and did not see the end of."""
    records = work.ledger.partitions(work.backfill_id, [partition.key for partition in partitions])
    unfinished = {
        key: record.attempt
        for key, record in records.items()
        if record.state is PartitionState.STAGING and record.staged_intent == plan.intent_hash
    }
    newest: dict[str, Running] = {}
    for event in work.ledger.events(work.backfill_id, BEGUN_EVENT) if unfinished else ():
        attempts = event.detail["attempts"]
        if attempts.items() <= unfinished.items():
            running = Running(event.detail["statement"], event.detail["location"], tuple(attempts))
            newest |= dict.fromkeys(attempts, running)
    # What was submitted once more, in other company, is that statement's.
    return [one for one in dict.fromkeys(newest.values()) if all(newest[key] == one for key in one.keys)]


def take_over(
    work: Work, plan: Plan, partitions: Sequence[Partition], running: Running, tell: Tell
) -> tuple[StagedPartition, ...]:
    """What the statement staged, once it has come to its end; nothing when it failed.

    :param tell: hears of it as of one of this attempt's own.
    """
    work.log.info("Taking over the statement %s of %s.", running.statement, ", ".join(running.keys))
    tell(running)
    of_it = [partition for partition in partitions if partition.key in running.keys]
    return work.warehouse.take_over(plan.target, work.backfill_id, running, of_it)
