"""Control period: partitions that the bug did not affect are recomputed, and must come out as they are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from airflow_backfill_provider.errors import ControlMoved
from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.request import conf_of
from airflow_backfill_provider.steps.approval import require_approval
from airflow_backfill_provider.steps.aside import aside
from airflow_backfill_provider.steps.controlled import CONTROL_EVENT, Control, compared
from airflow_backfill_provider.steps.open_runs import ended_by_a_stop
from airflow_backfill_provider.steps.proved_before import proved_before
from airflow_backfill_provider.steps.recompute import one_by_one
from airflow_backfill_provider.steps.source import require_pinned_sources
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Published, Staged, StagedPartition
from airflow_backfill_provider.windows import Partition

_SHOWN = 5
_FLOATING = frozenset({"double", "double precision", "float", "float4", "float8", "real"})
"""The types of columns, as the engines write them, whose sums depend on the order of rows."""
_WRITTEN = frozenset({PartitionState.PUBLISHED, PartitionState.ROLLED_BACK})


def hold_control(work: Work) -> tuple[Control, ...]:
    """Recompute each control partition aside and hold it against what is published; empty without a control period.

    Nothing of it is kept but the result. A partition that held under this very plan is not computed again, and none is
    once a part of the range is published.

    :raises ControlMoved: a partition moved; naming each with its rows and columns.
    :raises Stopped: a stop signal is set; no run elsewhere of these partitions is gone on with.
    """
    with ended_by_a_stop(work, [one.key for one in work.stored_plan().spec.control_partitions]):
        return _hold_control(work)


def _hold_control(work: Work) -> tuple[Control, ...]:
    work.stop_or_go()
    plan = work.plan()
    wanted = plan.spec.control_partitions
    if not wanted:
        return ()
    require_approval(work, plan, Gate.PLAN)
    found = compared(work.ledger, plan)
    counts = work.ledger.counts(work.backfill_id)
    if not any(counts[state] for state in _WRITTEN):
        pending = [one for one in wanted if one.key not in found or not found[one.key].held]
        if pending:
            work.run()
            require_pinned_sources(work, plan)
        for partition in pending:
            work.stop_or_go()
            found[partition.key] = _compared(work, plan, partition)
    controls = tuple(found[one.key] for one in wanted if one.key in found)
    _require_held(work, plan, controls)
    return controls


def _compared(work: Work, plan: Plan, partition: Partition) -> Control:
    (recompute,) = one_by_one(plan, [partition])
    with aside(work, plan, "control", recompute) as staged:
        control = _difference(work, plan, staged)
    work.log.info("Control partition %s.", control)
    detail = {"plan_hash": plan.plan_hash, **asdict(control)}
    work.ledger.record_event(work.backfill_id, CONTROL_EVENT, by=work.by, detail=detail)
    return control


def _difference(work: Work, plan: Plan, staged: StagedPartition) -> Control:
    partition, left_out = staged.partition, plan.spec.uncompared_columns
    period = plan.spec.control_period
    tolerance = period.tolerance if period is not None else {}
    sides = plan.target, Published(), Staged((staged,)), [partition]
    diff = work.warehouse.compare(*sides, exclude=[*left_out, *tolerance])[partition.key]
    columns: Mapping[str, int] = {}
    if diff.changed or (tolerance and diff.identical):
        columns = work.warehouse.changed_columns(*sides, exclude=left_out, tolerance=tolerance)[partition.key]
    return Control(
        partition=partition.key,
        rows_old=diff.old,
        rows_new=diff.new,
        identical=diff.identical,
        changed=diff.changed,
        added=diff.added,
        removed=diff.removed,
        unmatched=diff.old_null_keys + diff.old_duplicate_keys + diff.new_null_keys + diff.new_duplicate_keys,
        columns=columns,
    )


def _rounding(plan: Plan, moved: Sequence[Control]) -> str:
    """What to say when nothing but floating point numbers differ, which another order of rows may do; otherwise empty."""
    floating = {column.name for column in plan.target.columns if column.type.lower() in _FLOATING}
    names = sorted({name for control in moved for name in control.columns})
    alike = not any(control.added or control.removed or control.unmatched for control in moved)
    if not names or not alike or not floating.issuperset(names):
        return ""
    return (
        f" {', '.join(names)} {'hold' if names[1:] else 'holds'} floating point numbers, whose last digits depend on the order in "
        f"which they are added: control_period: {{tolerance: {{{names[0]}: …}}}} says how far they may be off."
    )


def _held_before(work: Work, plan: Plan, moved: Sequence[Control]) -> str:
    """That some of them came out as published when the table was last backfilled; empty when none did, or it is not known."""
    last = proved_before(work.ledger, plan)
    held = [one.partition for one in moved if last is not None and one.partition in last.held]
    if last is None or not held:
        return ""
    return f" {', '.join(held[:_SHOWN])} did come out as published in {last.good}: look at what changed since."


def _require_held(work: Work, plan: Plan, controls: Sequence[Control]) -> None:
    moved = [control for control in controls if not control.held]
    if not moved:
        return
    named = "; ".join(map(str, moved[:_SHOWN])) + (f"; and {len(moved) - _SHOWN} more" if moved[_SHOWN:] else "")
    rounding = _rounding(plan, moved)
    if all(control.is_wholesale for control in controls) and not rounding:
        everywhere = [
            name
            for name in moved[0].columns
            if all(one.columns.get(name) == one.identical + one.changed for one in controls)
        ]
        column = (
            f" {', '.join(everywhere)} differs in every row: one that is meant to differ each time, as a load time does, is left "
            "out by compare: [row_diff: {exclude_columns: […]}]."
            if everywhere
            else ""
        )
        message = (
            f"Wrong target? Of no control partition of {plan.target.table} do the rows come out as they are published: {named}. "
            f"Look whether target.table is the table that this SQL publishes and target.key what identifies its rows; otherwise the new "
            f"SQL changes every row, not only those that the bug touched.{column}"
        )
    else:
        message = (
            f"{len(moved)} of {len(controls)} control partitions of {plan.target.table}, which the bug did not affect, do not come "
            f"out as they are published: {named}. Either the new SQL changes more than the bug did, or the bug is wider than the "
            f"range, or the source is not what it was when they were published.{rounding}"
        )
    raise ControlMoved(
        f"{message}{_held_before(work, plan, moved)} No control partition is ever published, and the range was not either. Mend the SQL and trigger "
        f"the DAG with {conf_of(work.backfill_id, 'restage')}; or name other partitions in control_period, or a tolerance, "
        "and clear scope_partitions with downstream.",
        [control.partition for control in moved],
    )
