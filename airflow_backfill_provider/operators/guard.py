"""A guard for scheduled DAGs as they are: their runs and backfills never write one partition at the same time.

.. code-block:: python

    guard("backfills/fct_flights.yaml", publish_day)     # tasks, after they are wired

    @task
    @guarded("backfills/fct_flights.yaml")               # a TaskFlow function
    def publish_day(): ...
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from airflow.sdk import BaseOperator, XComArg, get_current_context
from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import LedgerUnavailable
from airflow_backfill_provider.identity import claim_id
from airflow_backfill_provider.operators.base import AnySpec, live_errors, origin, read_spec

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.records import LiveRun

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = timedelta(seconds=30)
"""How long a guard waits for a range that someone else holds, before its task fails and may be retried."""
RELEASE_PAUSES = (1.0, 5.0)
"""Seconds before a release is tried again that the ledger did not answer."""

log = logging.getLogger(__name__)


class RangeGuardOperator(BaseOperator):
    """Hold the range that this run writes, until a ``RangeReleaseOperator`` gives it back.

    The range is claimed in the ledger as a backfill claims its own: a backfill that overlaps is refused and told this
    run. Fails, so that a retry may go on, when a backfill or another run still owns part of it after ``patience``, or the ledger
    does not answer. A retry or clear of this task takes over what a dead attempt left.

    :param spec: the spec of the table that is written, or the path of its YAML file. Not templated.
    :param partitions: keys of the partitions that the run writes; templated. Left out, it is the run's data interval.
    :param patience: how long to wait for whoever owns the range.
    """

    template_fields: Sequence[str] = ("partitions",)
    ui_color = "#f0e4e8"

    def __init__(
        self, *, spec: AnySpec, partitions: Sequence[str] | str = (), patience: timedelta = PATIENCE, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.written_spec = spec
        self.partitions = partitions
        self.patience = patience

    def execute(self, context: Context) -> str:
        return _take(context, self.written_spec, self.partitions, self.patience).claim_id


class RangeReleaseOperator(BaseOperator):
    """Give back what a ``RangeGuardOperator`` of this run holds; nothing happens when that is nothing.

    :param guard_id: task id of the guard.
    """

    ui_color = "#f0e4e8"

    def __init__(self, *, guard_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.guard_id = guard_id

    def execute(self, context: Context) -> bool:
        run = context["dag_run"]
        with live_errors():
            return _release(_claim_id(run, self.guard_id, _map_index(context)))


def guard(
    spec: AnySpec,
    *tasks: BaseOperator | XComArg,
    partitions: Sequence[str] | str = (),
    patience: timedelta = PATIENCE,
) -> RangeGuardOperator:
    """Put the tasks between a guard and its release; call it once they are wired.

    The guard runs after everything upstream of the tasks and is their *setup*, the release their *teardown*: it gives
    the range back whether they succeed or fail, and clearing one of the tasks takes the range again.

    :param tasks: at least one, of one DAG.
    :param partitions: as for :class:`RangeGuardOperator`.
    :raises ValueError: there is no task.
    """
    if not tasks:
        raise ValueError("A guard without a task would hold its range for nobody; give the tasks that write the table.")
    guarded_tasks = [next(task.iter_references())[0] if isinstance(task, XComArg) else task for task in tasks]
    first = guarded_tasks[0]
    around: dict[str, Any] = {"dag": first.dag, "task_group": first.task_group}
    take = RangeGuardOperator(
        task_id=f"guard_{first.label}", spec=spec, partitions=partitions, patience=patience, **around
    )
    give_back = RangeReleaseOperator(task_id=f"release_{first.label}", guard_id=take.task_id, **around)
    ids = {task.task_id for task in guarded_tasks}
    before = {task_id for task in guarded_tasks for task_id in task.upstream_task_ids} - ids
    take.set_upstream([take.dag.get_task(task_id) for task_id in sorted(before)])
    take.set_downstream(guarded_tasks)
    give_back.set_upstream(guarded_tasks)
    give_back.as_teardown(setups=take)
    return take


def guarded(
    spec: AnySpec, *, partitions: Sequence[str] | str = (), patience: timedelta = PATIENCE
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Hold the range that the run writes while the function runs; stands below ``@task``.

    Parameters as for :class:`RangeGuardOperator`. The range is given back however the function ends; a worker that is
    killed leaves it to the retry of the task. How the function ends is how the task ends, also when the ledger does not answer then:
    the log says what is still claimed.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__} is async; a guard holds its range for a plain function only.")

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with _held(get_current_context(), spec, partitions, patience):
                return function(*args, **kwargs)

        return call

    return decorate


@contextmanager
def _held(context: Context, spec: AnySpec, partitions: Sequence[str] | str, patience: timedelta) -> Iterator[None]:
    rendered = context["task"].render_template(partitions, context)
    run = _take(context, spec, rendered, patience)
    try:
        yield
    finally:
        try:
            _release(run.claim_id, run.attempt)
        except Exception as error:  # whatever it is, what the function did is done
            log.error(_NOT_RELEASED, run.claim_id, error, run.claim_id)


def _release(claim: str, attempt: int | None = None) -> bool:
    """Give back what the claim holds; False when it holds nothing. A ledger that does not answer is asked again.

    :raises LedgerError: it did not answer even then, or refused.
    """
    for pause in RELEASE_PAUSES:
        with suppress(LedgerUnavailable):
            return _release_now(claim, attempt)
        time.sleep(pause)
    return _release_now(claim, attempt)


def _release_now(claim: str, attempt: int | None) -> bool:
    from airflow_backfill_provider.connections import open_ledger

    with open_ledger() as ledger:
        return ledger.release_live(claim, attempt)


_NOT_RELEASED = (
    "Claim %s could not be given back: %s The function has ended, and how it ended stands. Backfills and runs of that range are refused "
    'until the claim is released: `airflow safe-backfill abandon %s --reason "its release failed"`.'
)


def _take(context: Context, written: AnySpec, partitions: Sequence[str] | str, patience: timedelta) -> LiveRun:
    from airflow_backfill_provider.connections import open_ledger
    from airflow_backfill_provider.ledger.records import LiveRun
    from airflow_backfill_provider.steps.guard import hold, written_by_run

    dag_run, ti, index = context["dag_run"], context["ti"], _map_index(context)
    run = LiveRun(
        claim_id=_claim_id(dag_run, ti.task_id, index),
        dag_id=dag_run.dag_id,
        run_id=dag_run.run_id,
        task_id=ti.task_id if index < 0 else f"{ti.task_id}[{index}]",
        attempt=ti.try_number,
        origin=origin(dag_run),
    )
    keys = [partitions] if isinstance(partitions, str) else list(partitions)
    with live_errors():
        spec = read_spec(written)
        spans = written_by_run(spec, context.get("data_interval_start"), context.get("data_interval_end"), keys)
        with open_ledger() as ledger:
            hold(ledger, run, spec.target.table, spans, patience=patience)
    context["task"].log.info("Holding %s of %s; claim %s.", ", ".join(map(str, spans)), spec.target.table, run.claim_id)
    return run


def _claim_id(run: Any, task_id: str, map_index: int) -> str:
    from airflow_backfill_provider.connections import installation

    return claim_id(run.dag_id, run.run_id, task_id, map_index, installation())


def _map_index(context: Context) -> int:
    index = context["ti"].map_index
    return -1 if index is None else int(index)
