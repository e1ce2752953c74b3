"""`safe-backfill stop` and `resume`: turn the kill switch, and say what that leaves running or waiting."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime

from airflow.models import DagModel, TaskInstance, Variable
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.cli.heartbeats import beat_line, running_tasks
from airflow_backfill_provider.connections import open_ledger
from airflow_backfill_provider.errors import LedgerError, RequestError, SwitchUnreadable
from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import ACTIVE, STOPPED, BackfillState
from airflow_backfill_provider.steps.way_on import once_lifted
from airflow_backfill_provider.switch import ALL, VARIABLE, lifting, stopped, stopping

_LOOK_EVERY_SECONDS = 1.0
_EACH_ENDS = "each ends before its next partition"
_PREFIX = "backfill__"
"""What the ids of the factory's DAGs begin with; a DAG by hand is known once it ran, by the ledger."""


def stop(args: Namespace) -> None:
    """Turn the switch on, print the tasks that still run, and wait for their end when asked to.

    Ends with status 1 when something still runs after ``--wait`` seconds, or that cannot be told. The switch is turned also
    where the ledger cannot be reached.
    """
    with plain_errors():
        name = _named(args)
        print(_turned(name, on=True))
        try:
            running = _print_running(name, _EACH_ENDS)
        except LedgerError as error:
            if args.wait is not None:
                raise
            print(f"What still runs cannot be told: {error}")
            return
        if args.wait is None or not running:
            return
        deadline = time.monotonic() + args.wait
        while running and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_SECONDS)
            running = _running(_backfills(name, ACTIVE | STOPPED))
        if running:
            _print_running(name, _EACH_ENDS)
            raise SystemExit(f"After {args.wait} s {len(running)} tasks still run.")
        print("Nothing runs any more.")


def resume(args: Namespace) -> None:
    """Turn the switch off, print the tasks that still run and how each backfill that was stopped goes on; starts nothing."""
    with plain_errors():
        name = _named(args)
        print(_turned(name, on=False))
        with create_session() as session:
            still = [each for each in stopped(_held(session)) if name == ALL or each in (ALL, name)]
        for each in still:
            print(
                f"Still stopped: {each}. Lift it with: airflow safe-backfill resume {'--all' if each == ALL else each}"
            )
        _print_running(name, "those that are not stopped go on")
        waiting = [backfill for backfill in _backfills(name, STOPPED) if not {ALL, backfill.name} & set(still)]
        with open_ledger() as ledger:
            for backfill in waiting:
                print(f"{backfill.backfill_id}  {backfill.name}  {backfill.state}. {once_lifted(ledger, backfill)}")
        if not waiting and not still:
            print("No backfill waits to go on.")


def _named(args: Namespace) -> str:
    """The switch that is meant.

    :raises RequestError: none or both were given, or no DAG and no backfill has that name.
    """
    if args.everything == (args.name is not None):
        raise RequestError("Say which backfill: the name of its spec, or --all.")
    if args.everything:
        return ALL
    with create_session() as session:
        dag_ids = session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.startswith(_PREFIX, autoescape=True)))
        known = {dag_id.removeprefix(_PREFIX) for dag_id in dag_ids}
    if args.name in known:
        return str(args.name)
    try:
        with open_ledger() as ledger:
            known |= ledger.names()
    except LedgerError as error:
        # A stop must not wait for the ledger: a name too many in the switch stops nothing.
        print(f"Whether there is a backfill named {args.name!r} cannot be told: {error}")
        return str(args.name)
    if args.name not in known:
        raise RequestError(
            f"There is no backfill named {args.name!r}; there are: {', '.join(sorted(known)) or 'none'}. "
            "Nothing was changed. To stop everything: airflow safe-backfill stop --all"
        )
    return str(args.name)


def _turned(name: str, *, on: bool) -> str:
    """Write the switch; the line to print.

    :raises SwitchUnreadable: it cannot be read and would have to be, or tasks read another Variable of that name.
    """
    with create_session() as session:
        # Two commands at once would each keep only their own change.
        session.scalar(select(Variable).where(Variable.key == VARIABLE).with_for_update())
        held = _held(session)
        in_force = Variable.get(VARIABLE, default_var=None)
        if in_force != held:
            raise SwitchUnreadable(
                f"Nothing was changed: the kill switch is {held!r} in Airflow's database, but tasks read {in_force!r}. The environment "
                f"variable AIRFLOW_VAR_{VARIABLE.upper()} or a secrets backend comes first. Set it there."
            )
        try:
            written = stopping(held, name) if on else lifting(held, name)
        except SwitchUnreadable as error:
            if not on:
                raise
            return f"Everything is stopped already: {error}"
        Variable.set(VARIABLE, written, description="true stops: all, or a backfill by name", session=session)
    return f"Kill switch {VARIABLE} is now {written}."


def _held(session: Session) -> str | None:
    row = session.scalar(select(Variable).where(Variable.key == VARIABLE))
    return None if row is None else row.get_val()


def _backfills(name: str, states: frozenset[BackfillState]) -> list[BackfillRecord]:
    with open_ledger() as ledger:
        return ledger.backfills(name=None if name == ALL else name, states=states, limit=None)


def _running(backfills: Sequence[BackfillRecord]) -> list[TaskInstance]:
    with open_ledger() as ledger:
        return running_tasks(ledger, backfills)


def _print_running(name: str, what_becomes_of_them: str) -> list[TaskInstance]:
    running = _running(_backfills(name, ACTIVE | STOPPED))
    now = datetime.now(UTC)
    for task in running:
        print(f"Still {beat_line(task, now)}")
    print(f"{len(running)} tasks run; {what_becomes_of_them}." if running else "Nothing is running.")
    return running
