"""Whether tasks of a backfill are at work, as Airflow sees them; asked by a task, through its supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowRuntimeError

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.store import Ledger

_AT_WORK = frozenset({"running", "restarting"})
"""One that is only queued, or waits to be tried again, asks the ledger before it writes anything."""


def nobody_is_at_work(context: Context, ledger: Ledger, backfill_id: str) -> bool:
    """Whether Airflow knows every run of the backfill, and takes no other task of them for running.

    A task whose worker died is taken for running until its heartbeat has been missing for as long as ``[scheduler]
    task_instance_heartbeat_timeout``.
    """
    return all(_is_idle(context["ti"], dag_id, run_id) for dag_id, run_id in sorted(ledger.runs(backfill_id)))


def _is_idle(ti: Any, dag_id: str, run_id: str) -> bool:
    try:
        states = ti.get_task_states(dag_id=dag_id, run_ids=[run_id]).get(run_id)
    except AirflowRuntimeError:
        return False  # another Airflow's, or deleted here
    own = ti.task_id if (ti.dag_id, ti.run_id) == (dag_id, run_id) else None
    return bool(states) and not any(
        getattr(state, "value", str(state)) in _AT_WORK for task, state in states.items() if task != own
    )
