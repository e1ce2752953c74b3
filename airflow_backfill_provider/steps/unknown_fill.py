"""A new column that is 0 in every row: a quantity that nobody knows is NULL, not 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.fold import from_recorded
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.spec_fit import is_number
from airflow_backfill_provider.steps.measurement import Values

_SHOWN = 5


def fill_metrics(plan: Plan) -> tuple[Metric, ...]:
    """What :func:`judge_fill` needs of the staged rows; what is measured of partitions adds up."""
    return tuple(metric for name in _quantities(plan) for metric in (_not_zero(name), _absent(name)))


def judge_fill(plan: Plan, staged: Values, by_partition: Mapping[str, Mapping[str, Any]]) -> list[Outcome]:
    """Whether each new column of numbers has a value other than 0, or none at all, in some row of the range.

    It stops the publish where the spec says what NULL means; where it does not, it is a warning. So is a partition in which it is 0
    in every row, beside others in which it is not.

    :param by_partition: what was recorded of the staged rows, by key.
    """
    outcomes = []
    for name in _quantities(plan):
        declared = plan.spec.schema_gate.columns.get(name)
        answer = Answer("filled_with_0", f"filled_with_0({name})", None, "error" if declared else "warn")
        expected = "a row that is not 0, or NULL where it is not known"
        counts = [staged.get(metric) for metric in (ROWS, _not_zero(name), _absent(name))]
        if not all(isinstance(count, int) for count in counts):
            outcomes.append(answer.unmeasured(expected))
            continue
        rows, other, absent = (int(count) for count in counts if isinstance(count, int))
        found = f"{rows - other - absent} of {rows} rows are 0, {absent} are NULL"
        detail = (
            f"{name} is new, and nothing tells it from a column that was never computed. Where it is not known, "
            f"leave it NULL; where 0 is right, say so: schema.columns.{name}: {{null_means: default, because: …}}"
        )
        holds = not rows or bool(other or absent)
        if holds and (filled := [key for key, one in by_partition.items() if _is_filled(name, one)]):
            named = ", ".join(filled[:_SHOWN]) + (f" and {len(filled) - _SHOWN} more" if filled[_SHOWN:] else "")
            where = f"in {len(filled)} of {len(by_partition)} partitions every row is 0: {named}. {detail}"
            outcomes.append(answer.warned(expected, found, where))
        else:
            outcomes.append(answer.of(holds, expected, found, "" if holds else detail))
    return outcomes


def _is_filled(name: str, recorded: Mapping[str, Any]) -> bool:
    """Whether the column is 0 in every row of a partition that has rows."""
    found = [from_recorded(metric, [recorded]) for metric in (ROWS, _not_zero(name), _absent(name))]
    rows, other, absent = (None if one is None else one[0] for one in found)
    return bool(rows) and other == 0 and absent == 0


def _quantities(plan: Plan) -> list[str]:
    """The new columns of numbers, but those of which the spec says why a default is right."""
    types = {column.name.casefold(): column.type for column in plan.target.columns}
    defaults = {
        name
        for name, column in plan.spec.schema_gate.columns.items()
        if column.null_means == "default" and column.because
    }
    return [
        name
        for name in plan.spec.new_columns
        if name not in defaults and is_number(types.get(name.casefold(), ""), plan.dialect)
    ]


def _not_zero(name: str) -> Metric:
    return Metric(MetricKind.OUTSIDE_VALUES, (name,), values=(0,))


def _absent(name: str) -> Metric:
    return Metric(MetricKind.NULLS, (name,))
