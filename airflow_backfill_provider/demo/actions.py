"""The demo's four actions: run, rollback, up and down."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from airflow_backfill_provider.demo.calls import Calls
from airflow_backfill_provider.demo.local_airflow import is_free
from airflow_backfill_provider.demo.rollback import rollback
from airflow_backfill_provider.demo.run import run, step
from airflow_backfill_provider.demo.workspace import Workspace

_UI_PORT = 8080


def act(
    action: str,
    home: Path,
    calls: Calls,
    *,
    engine: str | None = None,
    dags: Path | None = None,
    port: int | None = None,
) -> int:
    """Do one action in the folder ``home``; 0 when it came out well, else its error is printed.

    :param action: run, rollback, up or down.
    :param engine: one of :data:`ENGINES`; without one, that of the folder, else DuckDB.
    :param dags: the DAG folder; without one, the example DAGs that come with the provider.
    :param port: port of the web server on loopback; without one, up takes 8080 when it is free, else a free one.
    """
    signal.signal(signal.SIGTERM, _terminate)
    console = Console(soft_wrap=True)
    stays = action == "up"
    if port is None and stays and is_free(_UI_PORT):
        port = _UI_PORT
    # Nothing here defers, so only an Airflow that stays needs a triggerer; without one the others start sooner.
    workspace = Workspace(home, calls, engine=engine, dags=dags, port=port, triggerer=stays)
    try:
        return _ACTIONS[action](workspace, console)
    except (FileExistsError, TimeoutError, RuntimeError) as error:
        console.print(f"[bold red]{type(error).__name__}[/bold red]", end=": ")
        console.print(str(error), highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; Airflow is stopped.")
        return 130


def up(workspace: Workspace, console: Console) -> int:
    """Start Airflow on the demo's data and leave it running."""
    airflow = workspace.airflow
    try:
        if not workspace.exists:
            with step(console, "Loading the data"):
                workspace.clear()
                workspace.make()
        with step(console, "Starting Airflow"):
            workspace.start()
    except BaseException:
        workspace.stop()
        raise
    console.print(f"Airflow is at [bold]{airflow.url}[/bold]", highlight=False)
    console.print(f"  user admin, password {airflow.passwords['admin']}", highlight=False)
    console.print(f"  stop it with: {workspace.calls.down}", highlight=False)
    return 0


def down(workspace: Workspace, console: Console) -> int:
    """Stop the Airflow that ``up`` started."""
    running = workspace.airflow.running()
    workspace.stop()
    console.print("Airflow is stopped." if running else "Airflow was not running.")
    return 0


_ACTIONS: Mapping[str, Callable[[Workspace, Console], int]] = {
    "run": run,
    "rollback": rollback,
    "up": up,
    "down": down,
}


def _terminate(number: int, frame: object) -> NoReturn:
    """Turn SIGTERM into an exit that lets Airflow's processes be stopped."""
    sys.exit(128 + number)
