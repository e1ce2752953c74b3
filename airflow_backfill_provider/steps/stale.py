"""Stale: what is published of a spec and would come out otherwise now, as its source moved; or is not there any more.

Of each partition its newest publish counts. It kept the number of source rows that it used, the newest arrival among them
where the spec names its column, the version of each source where the engine keeps versions, and the fingerprint of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.ledger.records import PartitionRecord
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import PARTITIONS_MOVED_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.source_reading import SourceReading, latest_versions
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.settle import same_rows
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.work import fingerprint_on_record
from airflow_backfill_provider.warehouses.base import Published, Warehouse
from airflow_backfill_provider.windows import Partition

_ALL = 1_000_000
_IN_ONE = 4_000
"""Keys in one request: Linux takes 128 KiB for one argument of a command, and the key of an hour with its quotes takes up to 30."""


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
    def requests(self) -> list[str]:
        """The confs that recompute them, as JSON; more than one where a command could not hold it."""
        moved = sum(1 for one in self.stale if one.source_moved)
        overwritten = sum(1 for one in self.stale if one.overwritten)
        whys = [f"{moved} whose source moved"] * bool(moved) + [f"{overwritten} overwritten"] * bool(overwritten)
        reason = f"stale: {', '.join(whys)}"
        return [
            json.dumps({"partitions": [one.key for one in self.stale[first : first + _IN_ONE]], "reason": reason})
            for first in range(0, len(self.stale), _IN_ONE)
        ]


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
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for backfill in backfills:
        records = ledger.partitions(backfill.backfill_id)
        published = [key for key, record in records.items() if record.state is PartitionState.PUBLISHED]
        moved = _moved_last(ledger, backfill.backfill_id) if published else {}
        for key in published:
            publish, one = (moved[key], backfill.backfill_id), (backfill.target, key)
            newest[one] = max(publish, newest.get(one, publish))
    own: dict[str, set[str]] = {}
    for (_, key), (_, backfill_id) in newest.items():
        own.setdefault(backfill_id, set()).add(key)
    found = []
    for backfill_id, keys in own.items():
        plan = stored_plan(ledger, backfill_id)
        found.append((backfill_id, plan, [one for one in plan.partitions if one.key in keys]))
    return found


def _moved_last(ledger: Ledger, backfill_id: str) -> dict[str, int]:
    """The line of the audit trail that tells of the last move of each partition.

    Of a backfill that stopped between two units nothing else says when it published; and the clocks of two hosts differ, while the
    lines of a ledger are in order.
    """
    return {
        key: event.sequence
        for event in ledger.events(backfill_id, PARTITIONS_MOVED_EVENT)
        for key in event.detail["keys"]
    }


def _by_versions(plan: Plan, partitions: Sequence[Partition]) -> list[tuple[Mapping[str, int], list[Partition]]]:
    """The partitions that were computed from the same versions of their sources, together."""
    found: dict[frozenset[tuple[str, int]], list[Partition]] = {}
    for one in partitions:
        found.setdefault(frozenset(plan.versions_read(one).items()), []).append(one)
    return [(dict(versions), members) for versions, members in found.items()]


def _moved_sources(plan: Plan, warehouse: Warehouse, partitions: Sequence[Partition]) -> dict[str, str]:
    """In words, by key, what the sources have that they had not when the partition was computed, or the reverse."""
    latest = latest_versions(plan.spec, warehouse, plan.eras)
    moved: dict[str, str] = {}
    for versions, members in _by_versions(plan, partitions):
        if versions and versions == latest:
            continue
        if plan.spec.source is None:
            newer = [f"{table} is at version {latest.get(table)}, was {was}" for table, was in versions.items()]
            moved |= dict.fromkeys((one.key for one in members), "; ".join(newer)) if newer else {}
            continue
        reading = SourceReading(plan.spec, warehouse, plan.target, arrived="", versions={})
        rows, newest = reading.rows(members), reading.newest_arrivals(members)
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
    # A plan without any was made by a version that kept none, or all its partitions were empty: then their rows tell.
    if plan.source_newest and newest != newest_was and plan.spec.source.arrival is not None:
        words.append(f"its newest {plan.spec.source.arrival} is {newest or 'none'}, was {newest_was or 'none'}")
    return "; ".join(words)


def _overwritten(
    plan: Plan, warehouse: Warehouse, partitions: Sequence[Partition], records: dict[str, PartitionRecord]
) -> dict[str, str]:
    found = warehouse.fingerprint(plan.target, Published(), partitions)
    overwritten = {}
    for one in partitions:
        mark = fingerprint_on_record(records[one.key])
        if mark is None:
            overwritten[one.key] = "not shown to be what was published: it was to be staged again when that was found"
        elif not same_rows(mark, found[one.key]):
            rows = f"{found[one.key].rows} rows, published were {mark.rows}"
            overwritten[one.key] = f"overwritten since it was published: {rows}"
    return overwritten
