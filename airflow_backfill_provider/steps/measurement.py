"""Measuring for the checks: all at once, and one by one when that fails, so that an error is one check's alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from airflow_backfill_provider.errors import TRANSIENT, BackfillError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.checks import Check, Sql
from airflow_backfill_provider.spec.metric import ROWS, Metric, Scalar
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Rows, Staged
from airflow_backfill_provider.windows import Partition

_Answer = TypeVar("_Answer")
Values = dict[Metric, Scalar | Exception]


def measure(
    work: Work, plan: Plan, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
) -> dict[str, Values]:
    """The metrics of each partition, by key, from one statement.

    When it fails, each metric is measured by itself, and where that fails too in each partition by itself; what
    cannot be measured is the engine's error.

    :raises TRANSIENT: which says nothing about a check; a retry may help.
    :raises WarehouseError: the rows cannot even be counted.
    """

    def ask(some: Sequence[Partition], wanted: Sequence[Metric]) -> dict[str, Values]:
        found = work.warehouse.measure(plan.target, rows, some, wanted)
        return {key: dict(values) for key, values in found.items()}

    everything = _or_error(partial(ask, partitions, metrics))
    if not isinstance(everything, Exception):
        return everything
    measured = ask(partitions, [ROWS])
    for metric in metrics:
        found = _or_error(partial(ask, partitions, [metric]))
        for partition in partitions:
            if isinstance(found, Exception):
                alone = _or_error(partial(ask, [partition], [metric]))
                measured[partition.key][metric] = (
                    alone if isinstance(alone, Exception) else alone[partition.key][metric]
                )
            else:
                measured[partition.key] |= found[partition.key]
    return measured


def measure_together(
    work: Work, plan: Plan, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
) -> Values:
    """As :func:`measure`, of the rows of all partitions together; no statement when there is no metric."""
    if not metrics:
        return {}

    def ask(wanted: Sequence[Metric]) -> Values:
        return dict(work.warehouse.measure_together(plan.target, rows, partitions, wanted))

    everything = _or_error(partial(ask, metrics))
    if not isinstance(everything, Exception):
        return everything
    measured: Values = {}
    for metric in metrics:
        found = _or_error(partial(ask, [metric]))
        measured |= {metric: found} if isinstance(found, Exception) else found
    return measured


def run_sql_checks(
    work: Work, plan: Plan, staged: Staged, asked: Callable[[Check], bool]
) -> Mapping[str, int | Exception]:
    """The rows that each ``sql`` check that is asked returns of these staged rows, or the engine's error."""
    results: dict[str, int | Exception] = {}
    for check in plan.spec.checks:
        if isinstance(check, Sql) and asked(check):
            count = partial(work.warehouse.count_rows, plan.target, staged, check.query, where=check.where or "")
            results[check.name] = _or_error(count)
    return results


def _or_error(ask: Callable[[], _Answer]) -> _Answer | BackfillError:
    try:
        return ask()
    except TRANSIENT:
        raise
    except BackfillError as error:
        return error
