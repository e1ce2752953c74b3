"""The questions about a backfill that Airflow still puts before people."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.models import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from airflow_backfill_provider.ledger.store import Ledger


def open_questions(ledger: Ledger, backfill_id: str) -> list[str]:
    """A line for each task that still asks about a backfill that is over, and how its run is ended."""
    unanswered = {one.question.run_id for one in ledger.approvals(backfill_id) if one.decision is None}
    runs = sorted(run for run in ledger.runs(backfill_id) if run[1] in unanswered)
    if not runs:
        return []
    query = select(TaskInstance).where(
        tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(runs),
        TaskInstance.state == TaskInstanceState.AWAITING_INPUT,
    )
    try:
        with create_session() as session:
            return asking_lines(session.scalars(query.order_by(TaskInstance.dag_id, TaskInstance.run_id)))
    except SQLAlchemyError as error:
        named = ", ".join(f"{dag_id} {run_id}" for dag_id, run_id in runs)
        return [f"Whether {named} still asks is unknown: Airflow's database cannot be read ({type(error).__name__})."]


def asking_lines(tasks: Iterable[TaskInstance]) -> list[str]:
    """What is said of each of these tasks."""
    return [
        f"Still asks: {task.dag_id} {task.run_id} {task.task_id}. No answer counts any more. To end the run, reject it under "
        "Required Actions, or mark the run as failed; else it fails by itself when approval.timeout is over."
        for task in tasks
    ]
