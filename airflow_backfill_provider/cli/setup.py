"""`safe-backfill init`: what an Airflow needs before the first trigger."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME, conf
from airflow.models import Connection, Pool, Variable
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.connections import DEFAULT_LEDGER_CONN_ID, SECTION, open_ledger
from airflow_backfill_provider.switch import VARIABLE

POOL = "safe_backfill"


def init(args: Namespace) -> None:
    """Create pool, kill switch and ledger where they are missing; what is there stays as it is."""
    with plain_errors():
        print(_pool(args.slots))
        print(_switch())
        print(_ledger_connection(args.ledger))
        with open_ledger(may_create=True) as ledger:
            print(f"ledger: {ledger.address}, schema up to date")
        print("Next: put a spec and its DAG file into the DAGs folder, then trigger backfill__<name>.")


def _pool(slots: int) -> str:
    with create_session() as session:
        found = session.scalar(select(Pool).where(Pool.pool == POOL))
        if found is not None:
            return f"pool: {POOL} is there, with {found.slots} slots"
        session.add(
            Pool(pool=POOL, slots=slots, description="backfills: the cap on their compute", include_deferred=True)
        )
    return f"pool: {POOL} created, with {slots} slots"


def _switch() -> str:
    with create_session() as session:
        found = session.scalar(select(Variable).where(Variable.key == VARIABLE))
        if found is not None:
            return f"kill switch: Variable {VARIABLE} is there"
        Variable.set(VARIABLE, '{"all": false}', description="true stops: all, or a backfill by name", session=session)
    return f'kill switch: Variable {VARIABLE} created, {{"all": false}}'


def _ledger_connection(path: str | None) -> str:
    conn_id = conf.get(SECTION, "ledger_conn_id", fallback=DEFAULT_LEDGER_CONN_ID)
    with create_session() as session:
        found = session.scalar(select(Connection).where(Connection.conn_id == conn_id))
        if found is not None:
            return f"ledger connection: {conn_id} is there, of type {found.conn_type}"
        file = Path(path or Path(AIRFLOW_HOME) / "safe_backfill_ledger.db").absolute()
        session.add(Connection(conn_id=conn_id, conn_type="sqlite", host=str(file), description="the backfill ledger"))
    return (
        f"ledger connection: {conn_id} created, SQLite at {file}. "
        "Workers on other hosts need PostgreSQL: change the connection before the first backfill."
    )
