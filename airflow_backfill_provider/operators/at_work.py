"""Whether a publish of a backfill is at work, as Airflow sees its task; asked by a task, through its supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowRuntimeError

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.records import BackfillRecord
    from airflow_backfill_provider.ledger.store import Ledger

_AT_WORK = frozenset({"running", "restarting"})
"""One that is only queued, or waits to be tried again, asks the ledger before it writes anything."""
_IN_A_SLOT = _AT_WORK | {"queued"}
"""A task that is only scheduled has none: its pool may be missing, or full."""


def nobody_is_at_work(context: Context, ledger: Ledger, backfill_id: str) -> bool:
    """Whether Airflow knows every task that began to publish the backfill, and takes none of them for running.

    Where the ledger does not know the task of each time, every other task of the backfill's runs is asked about instead. A task
    whose worker died is taken for running until its heartbeat has been missing for as long as ``[scheduler]
    task_instance_heartbeat_timeout``.
    """
    from airflow_backfill_provider.connections import installation

    publishers, here = ledger.publishers(backfill_id), installation()
    if any(("" if task is None else task.installation) != here for task in publishers):
        return False  # another Airflow's, which has runs of the same ids
    tasks: list[tuple[str, str, list[str] | None]] = [
        (task.dag_id, task.run_id, [task.task_id]) for task in publishers if task is not None
    ]
    if not publishers or None in publishers:
        tasks = [(dag_id, run_id, None) for dag_id, run_id in ledger.runs(backfill_id)]
    return all(_is_idle(context["ti"], *one) for one in tasks)


def has_tasks(context: Context, backfill: BackfillRecord) -> bool:
    """Whether this Airflow has a task at work, or about to be, of the run that works on the backfill."""
    from airflow_backfill_provider.connections import installation

    if backfill.origin.installation != installation():
        return False
    try:
        found = context["ti"].get_task_states(dag_id=backfill.dag_id, run_ids=[backfill.run_id])
    except AirflowRuntimeError:
        return False  # another Airflow's, or deleted here
    states = found.get(backfill.run_id, {}).values()
    return any(getattr(state, "value", str(state)) in _IN_A_SLOT for state in states)


def _is_idle(ti: Any, dag_id: str, run_id: str, task_ids: list[str] | None) -> bool:
    try:
        states = ti.get_task_states(dag_id=dag_id, run_ids=[run_id], task_ids=task_ids).get(run_id)
    except AirflowRuntimeError:
        return False  # another Airflow's, or deleted here
    own = ti.task_id if (ti.dag_id, ti.run_id) == (dag_id, run_id) else None
    return bool(states) and not any(
        getattr(state, "value", str(state)) in _AT_WORK for task, state in states.items() if task != own
    )
