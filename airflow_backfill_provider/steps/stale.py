"""Stale: what is published of a spec and would come out otherwise now, as its source moved; or is not there any more.

Of each partition its newest publish counts. It kept the number of source rows that it used, the newest arrival among them
where the spec names its column, the version of each source where the engine keeps versions, and the fingerprint of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT
from airflow_backfill_provider.plan import Plan, count_source, latest_versions, newest_arrivals
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.moves import last_moved_at
from airflow_backfill_provider.steps.settle import same_rows
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.work import staged_fingerprint
from airflow_backfill_provider.warehouses.base import Published, Warehouse
from airflow_backfill_provider.windows import Partition

_ALL = 1_000_000


@dataclass(frozen=True)
class Stale:
    """One published partition that is to be recomputed."""

    key: str
    backfill_id: str
    """Whose publish it is."""
    source_moved: str
    """What its source has now, in words; empty when that is what was used."""
    overwritten: str
    """How its published rows differ from what was published; empty when they do not."""

    def __str__(self) -> str:
        return (
            f"{self.key}  backfill {self.backfill_id}  {'; '.join(filter(None, (self.source_moved, self.overwritten)))}"
        )


@dataclass(frozen=True)
class Staleness:
    """What one spec's published partitions came to."""

    looked_at: int
    stale: tuple[Stale, ...]

    @property
    def request(self) -> str:
        """The conf that recomputes them, as JSON."""
        moved = sum(1 for one in self.stale if one.source_moved)
        overwritten = sum(1 for one in self.stale if one.overwritten)
        whys = [f"{moved} whose source moved"] * bool(moved) + [f"{overwritten} overwritten"] * bool(overwritten)
        return json.dumps({"partitions": [one.key for one in self.stale], "reason": f"stale: {', '.join(whys)}"})


def find_stale(ledger: Ledger, name: str, open_warehouse: Callable[[BackfillSpec], Warehouse]) -> Staleness:
    """Look at every partition that backfills of the spec have published; reads only.

    :param open_warehouse: from the spec that a backfill was planned with; what it opens is closed.
    :raises RequestError: there is no backfill of that name.
    :raises SpecError: a source cannot be read any more.
    """
    looked_at, stale = 0, []
    for backfill_id, plan, partitions in _published(ledger, name):
        records = ledger.partitions(backfill_id)
        looked_at += len(partitions)
        with closing(open_warehouse(plan.spec)) as warehouse:
            moved = _moved_sources(plan, warehouse, partitions)
            overwritten = _overwritten(plan, warehouse, partitions, records)
        stale += [
            Stale(one.key, backfill_id, moved.get(one.key, ""), overwritten.get(one.key, ""))
            for one in partitions
            if one.key in moved or one.key in overwritten
        ]
    return Staleness(looked_at, tuple(sorted(stale, key=lambda one: one.key)))


def _published(ledger: Ledger, name: str) -> list[tuple[str, Plan, list[Partition]]]:
    """Each backfill with the partitions whose newest publish is its own."""
    backfills = ledger.backfills(name=name, limit=_ALL)
    if not backfills:
        raise RequestError(f"There is no backfill of {name!r} in the ledger; see `airflow safe-backfill list`.")
    to = (BackfillState.PUBLISHED, BackfillState.PUBLISHED_UNVERIFIED)
    dated = [(last_moved_at(ledger.events(one.backfill_id, MOVED_EVENT), *to), one) for one in backfills]
    seen: set[tuple[str, str]] = set()
    found = []
    for _, backfill in sorted(((at, one) for at, one in dated if at), key=lambda each: each[0], reverse=True):
        plan, records = stored_plan(ledger, backfill.backfill_id), ledger.partitions(backfill.backfill_id)
        own = [
            one
            for one in plan.partitions
            if records[one.key].state is PartitionState.PUBLISHED and (backfill.target, one.key) not in seen
        ]
        seen |= {(backfill.target, one.key) for one in own}
        if own:
            found.append((backfill.backfill_id, plan, own))
    return found


def _moved_sources(plan: Plan, warehouse: Warehouse, partitions: Sequence[Partition]) -> dict[str, str]:
    """In words, by key, what the sources have that they had not when the partition was computed, or the reverse."""
    latest = latest_versions(plan.spec, warehouse, plan.eras)
    moved: dict[str, str] = {}
    for members in (
        [one for one in partitions if one in plan.settled],
        [one for one in partitions if one in plan.live],
    ):
        versions = dict(plan.as_read(members).source_versions)
        if not members or (versions and versions == latest):
            continue
        if plan.spec.source is None:
            newer = [f"{table} is at version {latest.get(table)}, was {was}" for table, was in versions.items()]
            moved |= dict.fromkeys((one.key for one in members), "; ".join(newer)) if newer else {}
            continue
        rows = count_source(plan.spec, warehouse, plan.target, members, "", versions={})
        newest = newest_arrivals(plan.spec, warehouse, plan.target, members, "", versions={})
        for one in members:
            if words := _in_words(plan, one.key, rows[one.key], newest.get(one.key)):
                moved[one.key] = words
    return moved


def _in_words(plan: Plan, key: str, rows: int, newest: str | None) -> str:
    assert plan.spec.source is not None
    was, newest_was = plan.source_rows.get(key), plan.source_newest.get(key)
    words = []
    if rows != was:
        words.append(f"{plan.spec.source.table} has {rows} rows, had {was}")
    if newest != newest_was and plan.spec.source.arrival is not None:
        words.append(f"its newest {plan.spec.source.arrival} is {newest or 'none'}, was {newest_was or 'none'}")
    return "; ".join(words)


def _overwritten(
    plan: Plan, warehouse: Warehouse, partitions: Sequence[Partition], records: dict[str, PartitionRecord]
) -> dict[str, str]:
    found = warehouse.fingerprint(plan.target, Published(), partitions)
    return {
        one.key: f"overwritten since it was published: {found[one.key].rows} rows, published were {records[one.key].rows}"
        for one in partitions
        if not same_rows(staged_fingerprint(records[one.key]), found[one.key])
    }
