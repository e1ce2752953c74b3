"""From partitions to what recomputes them: a run each, or one for all that lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.elsewhere import sent
from airflow_backfill_provider.steps.watch import watched
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.transform import may_read_table
from airflow_backfill_provider.warehouses.base import Fingerprint, Recompute, StagedPartition, StageWriter
from airflow_backfill_provider.windows import Partition, Window, describe, side_by_side

NEIGHBOURS = 3
"""How many partitions are recomputed both ways before ``scope: range`` is believed. Three: the one in the middle has
a neighbour on both sides, so that a rule which looks across a partition's bounds shows."""
PROOF_EVENT = "range_scope_proved"


def one_by_one(plan: Plan, partitions: Sequence[Partition]) -> tuple[Recompute, ...]:
    """One run per partition."""
    return tuple(_recompute(plan, (partition,), partition) for partition in partitions)


def after(plan: Plan, partition: Partition, past: Sequence[StagedPartition]) -> Recompute:
    """That of a partition which is made from those before it: it reads them as they were staged, and the published table
    where none of them was.

    :raises TransformRefused: its SQL reads the table in a way that cannot be turned to staged rows.
    """
    (plain,) = one_by_one(plan, [partition])
    chained = plan.recomputer.afterwards(plain, past) if past else plain
    if chained is None and may_read_table(plain.select, plan.spec.target.table, plan.dialect):
        raise TransformRefused(
            f"The SQL of {partition.key} reads {plan.spec.target.table} in a way that cannot be turned to the rows that are staged for "
            "the partitions before it, so it would read what is published of them. Write it with every part of its name, as a plain "
            "table in FROM or JOIN, in the SQL of every partition."
        )
    return chained or plain


def together(plan: Plan, partitions: Sequence[Partition]) -> tuple[Recompute, ...]:
    """One run for all partitions that lie side by side in one era."""
    return tuple(
        _recompute(plan, run, _spanning(run)) for era in _by_era(plan, partitions).values() for run in side_by_side(era)
    )


def _recompute(plan: Plan, partitions: tuple[Partition, ...], interval: Partition) -> Recompute:
    return plan.recomputer.recompute(partitions, interval, plan.source_versions)


def _as_it_is(recompute: Recompute) -> Recompute:
    return recompute


def write(
    work: Work,
    plan: Plan,
    writer: StageWriter,
    recomputes: Sequence[Recompute],
    damage: Callable[[Recompute], Recompute] = _as_it_is,
) -> tuple[StagedPartition, ...]:
    """Stage these, watching what is published while code of the team's own runs.

    ``damage`` makes of each what a drill stages in its place, once it is known where it runs.

    :raises StrayWrite: published rows changed meanwhile; nothing of it counts as staged.
    """
    recomputes = [damage(sent(work, plan, recompute)) for recompute in recomputes]
    of_code = [partition for recompute in recomputes if recompute.fill for partition in recompute.partitions]
    with watched(work, plan, of_code) if of_code else nullcontext():
        return writer.write(*recomputes)


def prove_range_scope(work: Work, plan: Plan, partitions: Sequence[Partition], around: Partition | None = None) -> bool:
    """Whether ``scope: range`` may be used for these partitions; False when in an era no three of them lie side by side.

    Three neighbours of each era are recomputed alone and together, in a stage that is dropped; once per plan intent. Where
    ``around`` has neighbours, it is among the three.

    :raises TransformRefused: the two ways give different rows; naming the partitions. Nothing was kept.
    """
    proved = {
        event.detail.get("era")
        for event in work.ledger.events(work.backfill_id, PROOF_EVENT)
        if event.detail.get("intent") == plan.intent_hash
    }
    eras = _by_era(plan, partitions)
    return all([era in proved or _prove(work, plan, era, members, around) for era, members in eras.items()])


def _prove(work: Work, plan: Plan, era: int, partitions: Sequence[Partition], around: Partition | None) -> bool:
    runs = [run for run in side_by_side(partitions) if len(run) >= NEIGHBOURS]
    if not runs:
        return False
    run = next((run for run in runs if around in run), runs[0])
    middle = run.index(around) if around in run else 0
    first = min(max(middle - NEIGHBOURS // 2, 0), len(run) - NEIGHBOURS)
    neighbours = run[first : first + NEIGHBOURS]
    alone, jointly = _both_ways(work, plan, neighbours)
    differing = [key for key, mark in alone.items() if jointly[key] != mark]
    if differing:
        counts = ", ".join(
            f"{key} has {alone[key].rows} rows alone and {jointly[key].rows} together" for key in differing
        )
        raise TransformRefused(
            f"transform.scope: range gives other rows than partition by partition ({counts}; where the counts agree, the "
            "values differ), so the rule looks across a partition's bounds. Nothing was kept. Use scope: partition."
        )
    keys = [partition.key for partition in neighbours]
    detail: dict[str, Any] = {"intent": plan.intent_hash, "era": era, "keys": keys}
    work.ledger.record_event(work.backfill_id, PROOF_EVENT, by=work.by, detail=detail)
    work.log.info("scope: range equals partition by partition on %s.", describe(neighbours))
    return True


def _by_era(plan: Plan, partitions: Sequence[Partition]) -> dict[int, list[Partition]]:
    """The partitions by the number of their era; those of two eras are recomputed by two files, so never together."""
    by_era: dict[int, list[Partition]] = {}
    for partition in partitions:
        by_era.setdefault(plan.spec.era_of(partition), []).append(partition)
    return by_era


def _both_ways(
    work: Work, plan: Plan, neighbours: Sequence[Partition]
) -> tuple[dict[str, Fingerprint], dict[str, Fingerprint]]:
    """What each partition comes to alone, and together; staged aside and thrown away."""
    with work.warehouse.open_stage(plan.target, work.backfill_id, "proof") as writer:
        alone, jointly = (write(work, plan, writer, way(plan, neighbours)) for way in (one_by_one, together))
    work.warehouse.drop(writer.location)
    return _marks(alone), _marks(jointly)


def _marks(staged: Sequence[StagedPartition]) -> dict[str, Fingerprint]:
    return {entry.partition.key: entry.fingerprint for entry in staged}


def _spanning(run: Sequence[Partition]) -> Partition:
    """The whole run as the template sees it: one data interval."""
    return Partition(describe(run), Window(run[0].window.start, run[-1].window.end))
