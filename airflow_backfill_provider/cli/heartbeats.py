"""Which tasks of a backfill Airflow takes for running, and which of those have fallen silent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from airflow.configuration import conf
from airflow.models import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.way_on import clear_command

_RUNNING = (TaskInstanceState.RUNNING, TaskInstanceState.DEFERRED)
_A_MISSED_BEAT = timedelta(seconds=60)
"""A running task beats every few seconds; one that has not for so long has most likely lost its worker."""


def running_tasks(ledger: Ledger, backfills: Iterable[BackfillRecord]) -> list[TaskInstance]:
    """Every task of their runs that Airflow takes for running, or for waiting in the triggerer."""
    runs = sorted(run for backfill in backfills for run in ledger.runs(backfill.backfill_id))
    query = select(TaskInstance).where(
        tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(runs), TaskInstance.state.in_(_RUNNING)
    )
    with create_session() as session:
        return list(session.scalars(query.order_by(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.start_date)))


def task_lines(ledger: Ledger, backfill: BackfillRecord, now: datetime) -> list[str]:
    """What a person is shown of the backfill's running tasks; without Airflow's database, that it cannot be told."""
    try:
        return silent_lines(running_tasks(ledger, [backfill]), backfill, now)
    except SQLAlchemyError as error:
        return [f"  task        unknown: Airflow's database cannot be read ({type(error).__name__})"]


def beat_line(task: TaskInstance, now: datetime) -> str:
    """One task with its last heartbeat, in words."""
    mapped = f"[{task.rendered_map_index or task.map_index}]" if task.map_index >= 0 else ""
    seen = "never" if task.last_heartbeat_at is None else f"{(now - task.last_heartbeat_at).total_seconds():.0f} s ago"
    return f"{task.state}: {task.dag_id} {task.run_id} {task.task_id}{mapped}, last heartbeat {seen}"


def silent_lines(tasks: Iterable[TaskInstance], backfill: BackfillRecord, now: datetime) -> list[str]:
    """A line for each running task, and how the partitions of those that have fallen silent are taken over."""
    found = list(tasks)
    lines = [f"  task        {beat_line(task, now)}" for task in found]
    beats = [task.last_heartbeat_at for task in found if task.state == TaskInstanceState.RUNNING]
    silent = [beat.astimezone(UTC) for beat in beats if beat is not None and now - beat > _A_MISSED_BEAT]
    if silent:
        limit = conf.getint("scheduler", "task_instance_heartbeat_timeout")
        lines.append(
            f"  silent      no heartbeat since {min(silent):%Y-%m-%dT%H:%M:%SZ}: the worker is most likely gone. Airflow fails such a "
            f"task after {limit} s; then its partitions are taken over by {clear_command(backfill)}, and what its late worker "
            "still writes is fenced off."
        )
    return lines
