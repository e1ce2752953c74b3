"""What keeps a run from starting, before somebody triggers it and waits."""

from __future__ import annotations

from collections.abc import Iterator

from airflow.models import DagModel
from airflow.models.pool import Pool
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from airflow_backfill_provider.spec.model import BackfillSpec


def obstacles(spec: BackfillSpec) -> list[str]:
    """What keeps a run of the spec's DAG from starting now, a sentence each, with the command that lifts it."""
    try:
        return list(_obstacles(spec))
    except SQLAlchemyError as error:
        return [f"Whether a run would start is unknown: Airflow's database cannot be read ({type(error).__name__})."]


def _obstacles(spec: BackfillSpec) -> Iterator[str]:
    dag_id, pool = f"backfill__{spec.name}", spec.compute.pool
    with create_session() as session:
        is_paused = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
        slots = session.scalar(select(Pool.slots).where(Pool.pool == pool))
    if is_paused:
        yield (
            f"The DAG {dag_id} is paused: a run that is triggered starts nothing until it is unpaused. "
            f"airflow dags unpause {dag_id} -y"
        )
    if slots is None:
        yield f"The pool {pool!r} does not exist, so nothing could start. airflow pools set {pool} 4 backfills"
    elif slots == 0:
        yield (
            f"The pool {pool!r} has 0 slots, which stops every backfill, and may be meant to. Whoever stopped them gives it its "
            f"slots again: airflow pools set {pool} <slots> backfills"
        )
