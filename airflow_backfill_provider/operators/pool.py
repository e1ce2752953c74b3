"""A pool that does not exist leaves tasks waiting for ever without a word; find out before mapping.

A task cannot read pools, so a probe task is put into the pool and its state is watched. A task that does not start is
skipped, or the run would wait for it as long as the pool does not exist.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from shlex import quote
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.operators.base import BY_DAG_TEST

PATIENCE = 45
"""Seconds that the probe may wait for a slot, unless ``[safe_backfill] pool_patience`` says otherwise."""
_BETWEEN_TWO_TASKS = 5.0
log = logging.getLogger(__name__)
_STARTED = frozenset({"queued", "running", "success", "failed", "up_for_retry", "restarting"})
_WAITING = frozenset({None, "scheduled"})
_SKIPPED = "skipped"


class PoolProbeOperator(BaseOperator):
    """Succeed as soon as the pool lets a task start."""

    ui_color = "#f4f4f4"

    def execute(self, context: Context) -> None:
        self.log.info("The pool %s starts tasks.", self.pool)


def wait_for_pool(context: Context, pool: str, probe: str, at_work: Callable[[], Sequence[str]]) -> None:
    """Return once the probe has started; at once in a run of ``DAG.test()``.

    :param at_work: the other backfills that work in the pool, by id; where there are any, a pool that starts nothing is full.
    :raises SpecError: nobody else works there, and it has not within the patience, which says how to create the pool; or it was
        skipped by an earlier try, and has to be cleared as well before it can tell anything.
    """
    run = context["dag_run"]
    if getattr(run, "triggering_user_name", None) == BY_DAG_TEST:
        return
    clear = f"airflow dags clear {run.dag_id} --run-id {quote(run.run_id)} -y"
    patience = conf.getfloat("safe_backfill", "pool_patience", fallback=PATIENCE)
    deadline = time.monotonic() + patience
    while (state := _state(context, probe)) not in _STARTED:
        if state == _SKIPPED or time.monotonic() >= deadline:
            if others := at_work() or _at_work_a_moment_later(at_work, patience):
                log.info(
                    "The probe of the pool %s is %s, and there %s at work: its tasks begin as slots become free.",
                    pool, state, f"{', '.join(others)} {'is' if len(others) == 1 else 'are'}",
                )  # fmt: skip
                return
            if state == _SKIPPED:
                raise SpecError(
                    f"Whether the pool {pool!r} starts anything is not known: its probe {probe} was skipped by an earlier try of this "
                    f"run, and was not cleared with this task. Nothing was computed. Clear both: {clear}"
                )
            skip([probe])
            raise SpecError(
                f"Nothing started in the pool {pool!r} within {patience:.0f} s (its probe was {state}): the pool does not "
                f"exist, has 0 slots, or other tasks than those of backfills take every slot. Create it with `airflow pools set {pool} 4 backfills` or in "
                f"the UI under Admin, Pools; then clear this task with downstream, or the whole run: {clear}"
            )
        time.sleep(0.5)


def _at_work_a_moment_later(at_work: Callable[[], Sequence[str]], patience: float) -> Sequence[str]:
    """Between two tasks of a full pool nobody is at work, until the scheduler has taken the next."""
    time.sleep(min(_BETWEEN_TWO_TASKS, patience))
    return at_work()


def skip_waiting(context: Context, probe: str) -> bool:
    """Skip the probe when it waits for a slot still, not when it is queued; whether it is skipped, now or since an earlier try."""
    state = _state(context, probe)
    if state in _WAITING:
        skip([probe])
    return state in _WAITING or state == _SKIPPED


def skip(task_ids: Sequence[str]) -> None:
    """Skip these tasks of the run, as a branch skips what is downstream of it; Airflow leaves those alone that run, succeeded or failed."""
    from airflow.sdk.execution_time.comms import SkipDownstreamTasks
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    if task_ids:
        SUPERVISOR_COMMS.send(SkipDownstreamTasks(tasks=list(task_ids)))


def _state(context: Context, task_id: str) -> str | None:
    run = context["dag_run"]
    states: dict[str, Any] = context["ti"].get_task_states(dag_id=run.dag_id, task_ids=[task_id], run_ids=[run.run_id])
    state = states.get(run.run_id, {}).get(task_id)
    return None if state is None else str(state)
