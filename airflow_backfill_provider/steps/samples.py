"""Samples: some of the rows that differ, kept beside the stages for a person to look at, when the spec asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_backfill_provider.errors import BackfillError, Stopped
from airflow_backfill_provider.ledger.records import EventRecord
from airflow_backfill_provider.ledger.trail import VALUES
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.judge import differing_in
from airflow_backfill_provider.steps.work import Work, staged_partition
from airflow_backfill_provider.warehouses.base import Published, SampleOf, Staged

SAMPLE_EVENT = "sample.kept"
_FEW = 8
"""Partitions that are read where their rows that differ are enough."""
Evidence = Mapping[str | None, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class KeptSample:
    """Where a sample is; the values themselves are here only with ``samples_in_report``."""

    plan_hash: str
    partitions: tuple[str, ...]
    """The partitions that it stands for: all in which rows differ."""
    location: str
    keys: int
    """How many keys it holds rows of."""
    columns: tuple[str, ...]
    values: tuple[tuple[str | None, ...], ...] = ()
    """By row: its place, its side, and the values of the columns as text."""


def keep_sample(work: Work, plan: Plan, evidence: Evidence) -> None:
    """Keep a sample of the rows that differ in these partitions, in the place of the earlier ones of any of them.

    Nothing happens unless the spec asks for samples, nor where no rows differ. That none could be kept is logged: a sample
    proves nothing, so it stops nothing.

    :param evidence: what was found of each partition.
    """
    keys = [key for key in plan.keys if differing_in(evidence.get(key, ()))]
    if not plan.spec.samples or not keys or plan.request.drill:
        return
    try:
        _keep(work, plan, keys, evidence)
    except Stopped:
        raise
    except BackfillError as error:
        work.log.warning("No sample of the rows that differ was kept: %s", error)


def _keep(work: Work, plan: Plan, keys: Sequence[str], evidence: Evidence) -> None:
    records = work.ledger.partitions(work.backfill_id, keys)
    partitions = plan.select(_read_of({key: differing_in(evidence.get(key, ())) for key in keys}, plan.spec.samples))
    staged = Staged(tuple(staged_partition(one, records[one.key]) for one in partitions))
    left_out = plan.spec.uncompared_columns
    columns = plan.spec.shown_columns(plan.target.compared(left_out))
    what = SampleOf(plan.spec.samples, columns, left_out)
    sample = work.warehouse.keep_sample(plan.target, work.backfill_id, Published(), staged, partitions, what)
    kept = KeptSample(
        plan_hash=plan.plan_hash,
        partitions=tuple(keys),
        location=sample.location,
        keys=len({row[0] for row in sample.rows}),
        columns=columns,
        values=sample.rows if plan.spec.samples_in_report else (),
    )
    earlier = [one for one in _read(work.ledger.events(work.backfill_id, SAMPLE_EVENT)) if _overlap(one, kept)]
    detail = {name: value for name, value in asdict(kept).items() if name != VALUES or value}
    work.ledger.record_event(work.backfill_id, SAMPLE_EVENT, by=work.by, detail=detail)
    work.log.info("Rows of %s keys that differ are kept in %s.", kept.keys, kept.location)
    for location in dict.fromkeys(one.location for one in earlier):
        try:
            work.warehouse.drop(location)
        except BackfillError as error:
            work.log.warning("The earlier sample %s stays until clean-up: %s", location, error)


def _read_of(differing: Mapping[str, int], wanted: int) -> Sequence[str]:
    """The partitions to read so many keys from, at equal distances: a few where that is enough, and never more than keys."""
    few = _spread(list(differing), _FEW)
    return few if sum(differing[key] for key in few) >= wanted else _spread(list(differing), wanted)


def _spread(keys: Sequence[str], most: int) -> Sequence[str]:
    return [keys[number * len(keys) // most] for number in range(most)] if len(keys) > most else keys


def samples_in(events: Sequence[EventRecord], plan: Plan) -> tuple[KeptSample, ...]:
    """The samples of this very plan that no later one took the place of; ``events`` are oldest first."""
    found: list[KeptSample] = []
    for sample in reversed(_read(events)):
        if sample.plan_hash == plan.plan_hash and not any(_overlap(sample, later) for later in found):
            found.insert(0, sample)
    return tuple(found)


def _read(events: Sequence[EventRecord]) -> list[KeptSample]:
    return [
        KeptSample(
            **{
                **event.detail,
                "partitions": tuple(event.detail["partitions"]),
                "columns": tuple(event.detail["columns"]),
                "values": tuple(tuple(row) for row in event.detail.get(VALUES, ())),
            }
        )
        for event in events
        if event.action == SAMPLE_EVENT
    ]


def _overlap(one: KeptSample, other: KeptSample) -> bool:
    return not set(one.partitions).isdisjoint(other.partitions)
