"""Whether code of the team's own, which may write anywhere, left the published table alone while it ran."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from pydantic import TypeAdapter

from airflow_backfill_provider.errors import BackfillError, StrayWrite
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.request import conf_of
from airflow_backfill_provider.steps.baseline import require_equal
from airflow_backfill_provider.steps.neighbours import neighbours
from airflow_backfill_provider.steps.open_runs import open_runs
from airflow_backfill_provider.steps.way_on import rebase
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Fingerprint, Published
from airflow_backfill_provider.windows import Partition

STRAY_EVENT = "stray_write"
HELD_EVENT = "neighbours_held"
"""A call of code begins, or its run may go on after it; its line has the partitions that it is for, and what was published of those
beside the range when it began."""
RELEASED_EVENT = "neighbours_released"
"""They were the same after that call, of which nothing goes on, or a person wants to go on from what they are now."""
_SHOWN = 5
_MARKS = TypeAdapter(dict[str, Fingerprint])


@contextmanager
def watched(work: Work, plan: Plan, partitions: Sequence[Partition]) -> Iterator[None]:
    """Hold the published rows of these partitions, and of those beside them that are over, before against after.

    Those of the range must be what the plan saw. Those beside it must be what they were when a call began that nobody saw
    end, such as one whose process was killed, whose run may go on, or whose stray write was found; until a call for the same
    partitions finds them so, and nothing of the earlier one goes on. What is found also stands in the audit trail.
    An error of the code itself is raised once nothing else was found.

    :raises TargetMoved: they are not what the plan saw, before anything ran that nobody saw end.
    :raises StrayWrite: they changed meanwhile, or in such an earlier call.
    """
    around = _around(plan, partitions)
    before = work.warehouse.fingerprint(plan.target, Published(), around)
    known = {**plan.control, **plan.baseline}
    expected = {partition.key: known[partition.key] for partition in partitions}
    moved = any(before[key] != mark for key, mark in expected.items())
    if moved and (_unseen(work) or open_runs(work, list(expected))):
        _require_same(work, plan, expected, before)
    claim = f"The published range of {plan.target.table} moved since the plan was made"
    require_equal(expected, before, claim, rebase(work.backfill_id))
    beside = {key: mark for key, mark in before.items() if key not in plan.baseline}
    if beside:
        _require_same(work, plan, _held(work, beside), before)
        _hold(work, expected, beside)
    # Where every neighbour is of the range, the plan holds them to its baseline.

    def look(error: BaseException | None = None) -> None:
        after = work.warehouse.fingerprint(plan.target, Published(), around)
        _require_same(work, plan, before, after, error)
        going = {errand.key for errand in open_runs(work)}
        if not beside and not going.isdisjoint(expected):  # it may write yet, also to the range
            _hold(work, expected, {})
        _release_what_ended(work, expected, after, going)

    try:
        yield
    except BaseException as error:  # an execution_timeout, or a kill, is none of Exception's
        try:
            look(error)
        except StrayWrite:
            raise
        except BackfillError as unseen:
            work.log.warning("What the code left behind could not be looked at, so the next attempt does: %s", unseen)
        raise
    look()


def release_neighbours(work: Work, reason: str) -> None:
    """Go on from what is published beside the range now, whatever earlier calls left there; for a person to decide."""
    for call in _unseen(work):
        _release(work, call, reason)


def _around(plan: Plan, partitions: Sequence[Partition]) -> tuple[Partition, ...]:
    beside = {one for partition in partitions for one in neighbours(plan, partition)}
    return tuple(sorted({*partitions, *(one for one in beside if one.is_over(plan.planned_at))}))


def _hold(work: Work, of: Iterable[str], beside: Mapping[str, Fingerprint]) -> None:
    detail = {"call": uuid4().hex, "of": list(of), "beside": _MARKS.dump_python(dict(beside), mode="json")}
    work.ledger.record_event(work.backfill_id, HELD_EVENT, by=work.by, detail=detail)


def _release(work: Work, call: str, reason: str) -> None:
    detail = {"call": call, "reason": reason}
    work.ledger.record_event(work.backfill_id, RELEASED_EVENT, by=work.by, detail=detail)


def _release_what_ended(
    work: Work, of: Collection[str], after: Mapping[str, Fingerprint], going: Collection[str]
) -> None:
    """Release each call for these partitions of which nothing goes on, and that left what is beside them as it was."""
    for call, detail in _unseen(work).items():
        its = set(detail.get("of", ()))  # an earlier version of the provider wrote none
        marks = _MARKS.validate_python(detail["beside"])
        is_same = all(after.get(key) == mark for key, mark in marks.items())
        if is_same and not its.isdisjoint(of) and its.isdisjoint(going):
            _release(work, call, "they were the same after it")


def _unseen(work: Work) -> dict[str, Mapping[str, Any]]:
    """Each call after which nobody looked, or of which something may go on, oldest first."""
    released = {event.detail["call"] for event in work.ledger.events(work.backfill_id, RELEASED_EVENT)}
    held = {event.detail["call"]: event.detail for event in work.ledger.events(work.backfill_id, HELD_EVENT)}
    return {call: detail for call, detail in held.items() if call not in released}


def _held(work: Work, beside: Mapping[str, Fingerprint]) -> dict[str, Fingerprint]:
    """What these neighbours were when the first of those calls began that had them beside it."""
    first: dict[str, Fingerprint] = {}
    for detail in _unseen(work).values():
        first = {**_MARKS.validate_python(detail["beside"]), **first}
    return {key: mark for key, mark in first.items() if key in beside}


def _require_same(
    work: Work,
    plan: Plan,
    before: Mapping[str, Fingerprint],
    after: Mapping[str, Fingerprint],
    error: BaseException | None = None,
) -> None:
    moved = {key: (mark.rows, after[key].rows) for key, mark in before.items() if after[key] != mark}
    if not moved:
        return
    work.ledger.record_event(work.backfill_id, STRAY_EVENT, by=work.by, detail={"moved": moved})
    counts = ", ".join(f"{key} had {was} rows, has {now}" for key, (was, now) in list(moved.items())[:_SHOWN])
    raise StrayWrite(
        f"Published rows of {plan.target.table} changed while {plan.spec.transform.origin} ran, now or in an attempt before: "
        f"{len(moved)} partitions differ ({counts}; where the counts agree, the values differ). Either it writes the table itself, "
        "instead of returning its rows or writing them to context.staging_table, or another process wrote meanwhile. Nothing of "
        "it was staged or published, but what was written there stays: put it right first, from the table's own "
        f"history or backups. Then mend the code and trigger the DAG with {conf_of(work.backfill_id, 'restage')}; "
        "or, if another process wrote, with rebase.",
        moved,
    ) from error
