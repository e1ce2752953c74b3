"""Expectation: partitions that changed although nothing was to change there, and those that were to change and did not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.range_evidence import Boundary
from airflow_backfill_provider.steps.controlled import Control


@dataclass(frozen=True)
class Surprise:
    """A partition that came out otherwise than the plan expects; either kind says that the range is the wrong one."""

    partition: str
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.reason}"


@dataclass(frozen=True)
class Expectation:
    """What was expected of the partitions that were compared, against what came of them."""

    changed: tuple[Surprise, ...]
    """Changed although outside the expectation."""
    identical: tuple[str, ...]
    """Expected to change, but identical to what is published."""
    alone: tuple[str, ...] = ()
    """The same in every column that is compared, and still not the published rows: see :func:`in_what_alone`."""


def expectation(
    plan: Plan,
    differing: Mapping[str, int | None],
    controls: Mapping[str, Control | None],
    as_published: Collection[str],
) -> Expectation:
    """Hold what came of each partition against what the plan knew.

    :param differing: by partition that was compared, the rows that differ; None where rows could not be matched by key.
    :param as_published: the partitions of which exactly the published rows are staged, every column of them.
    """
    changed = [
        Surprise(key, "a control partition, which the bug did not affect")
        for key, control in controls.items()
        if control is not None and not control.held
    ]
    before, after = _outside(plan)
    for key in plan.keys:
        rows = differing.get(key)
        if not rows:
            continue
        if plan.spec.range.affected_when is not None and rows > plan.affected.get(key, 0):
            reason = f"{rows:,} rows differ, and {plan.affected.get(key, 0):,} published ones were affected"
            changed.append(Surprise(key, reason))
        elif key in before or key in after:
            where = "before" if key in before else "after"
            changed.append(
                Surprise(key, f"{rows:,} rows differ, {where} the level of the number of range.evidence changes")
            )
    alike = [key for key in plan.keys if differing.get(key) == 0]
    return Expectation(
        tuple(changed),
        tuple(key for key in alike if key in as_published),
        tuple(key for key in alike if key not in as_published),
    )


def in_what_alone(plan: Plan) -> str:
    """In what rows differ that no comparison by key finds to differ."""
    left_out = plan.spec.uncompared_columns
    return f"in {', '.join(left_out)} alone" if left_out else "only in how a value is written"


def _outside(plan: Plan) -> tuple[frozenset[str], frozenset[str]]:
    """The partitions of the range that lie before and after those that the number says are wrong."""
    if plan.range_found is None:
        return frozenset(), frozenset()
    keys = [point.key for point in plan.range_found.points]
    start, end = plan.range_found.boundaries
    first = keys.index(_said(start)) if start.candidate else 0
    last = keys.index(_said(end)) if end.candidate else len(keys) - 1
    inside = {point.key for point in plan.range_found.points if point.in_range}
    return frozenset(keys[:first]) & inside, frozenset(keys[last + 1 :]) & inside


def _said(boundary: Boundary) -> str:
    return str(boundary.candidate)
