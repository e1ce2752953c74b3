"""A pool that does not exist leaves tasks waiting for ever without a word; find out before mapping.

A task cannot read pools, so a probe task is put into the pool and its state is watched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import SpecError

PATIENCE = 45
"""Seconds that the probe may wait for a slot, unless ``[safe_backfill] pool_patience`` says otherwise."""
log = logging.getLogger(__name__)
_STARTED = frozenset({"queued", "running", "success", "failed", "up_for_retry", "restarting"})


class PoolProbeOperator(BaseOperator):
    """Succeed as soon as the pool lets a task start."""

    ui_color = "#f4f4f4"

    def execute(self, context: Context) -> None:
        self.log.info("The pool %s starts tasks.", self.pool)


_BY_DAG_TEST = "dag_test"
"""Who triggers a run of ``DAG.test()``, which runs one task after the other, in any order, and heeds no pool."""


def wait_for_pool(context: Context, pool: str, probe: str, at_work: Callable[[], Sequence[str]]) -> None:
    """Return once the probe has started; at once in a run of ``DAG.test()``.

    :param at_work: the other backfills that work in the pool, by id; where there are any, a pool that starts nothing is full.
    :raises SpecError: it has not within the patience, and nobody else works there; says how to create the pool.
    """
    run = context["dag_run"]
    if getattr(run, "triggering_user_name", None) == _BY_DAG_TEST:
        return
    patience = conf.getfloat("safe_backfill", "pool_patience", fallback=PATIENCE)
    deadline = time.monotonic() + patience
    while (state := _state(context["ti"], run.dag_id, run.run_id, probe)) not in _STARTED:
        if time.monotonic() >= deadline:
            if others := at_work():
                log.info(
                    "Nothing started in the pool %s within %.0f s, where %s at work: its tasks begin as slots become free.",
                    pool, patience, f"{', '.join(others)} {'is' if len(others) == 1 else 'are'}",
                )  # fmt: skip
                return
            raise SpecError(
                f"Nothing started in the pool {pool!r} within {patience:.0f} s (its probe is {state}): the pool does not "
                f"exist, has 0 slots, or other tasks than those of backfills take every slot. Create it with `airflow pools set {pool} 4 backfills` or in "
                "the UI under Admin, Pools; then clear this task."
            )
        time.sleep(0.5)


def _state(ti: Any, dag_id: str, run_id: str, task_id: str) -> str | None:
    states = ti.get_task_states(dag_id=dag_id, task_ids=[task_id], run_ids=[run_id])
    state = states.get(run_id, {}).get(task_id)
    return None if state is None else str(state)
