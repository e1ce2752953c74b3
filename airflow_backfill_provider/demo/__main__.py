"""``python -m airflow_backfill_provider.demo run|rollback|up|down``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from airflow_backfill_provider.demo.local_airflow import is_free
from airflow_backfill_provider.demo.rollback import rollback
from airflow_backfill_provider.demo.run import run, step
from airflow_backfill_provider.demo.workspace import Workspace

_UI_PORT = 8080


def main() -> int:
    """Do what the command line says; 0 when it came out well."""
    parser = argparse.ArgumentParser(prog="python -m airflow_backfill_provider.demo", description=__doc__)
    parser.add_argument("action", choices=("run", "rollback", "up", "down"))
    parser.add_argument("--home", type=Path, default=Path(".demo"), help="where everything goes (default: .demo)")
    parser.add_argument("--dags", type=Path, default=Path("dags"), help="the DAG folder (default: dags)")
    parser.add_argument("--port", type=int, help="port of the web UI (default: up takes 8080 when free)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminate)
    console = Console(soft_wrap=True)
    port = options.port or (_UI_PORT if options.action == "up" and is_free(_UI_PORT) else None)
    # Nothing here defers, so only an Airflow that stays needs a triggerer; without one the others start sooner.
    workspace = Workspace(options.home, options.dags, port=port, triggerer=options.action == "up")
    try:
        match options.action:
            case "run":
                return run(workspace, console)
            case "rollback":
                return rollback(workspace, console)
            case "up":
                return up(workspace, console)
            case _:
                return down(workspace, console)
    except (FileExistsError, TimeoutError, RuntimeError) as error:
        console.print(f"[bold red]{type(error).__name__}[/bold red]", end=": ")
        console.print(str(error), highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; Airflow is stopped.")
        return 130


def up(workspace: Workspace, console: Console) -> int:
    """Start Airflow on the demo's data and leave it running."""
    if not workspace.exists:
        with step(console, "Loading the data"):
            workspace.clear()
            workspace.make()
    airflow = workspace.airflow
    try:
        with step(console, "Starting Airflow"):
            workspace.start()
    except BaseException:
        airflow.stop()
        raise
    console.print(f"Airflow is at [bold]{airflow.url}[/bold]", highlight=False)
    console.print(f"  user admin, password {airflow.passwords['admin']}", highlight=False)
    console.print("  stop it with: make down", highlight=False)
    return 0


def down(workspace: Workspace, console: Console) -> int:
    """Stop the Airflow that ``up`` started."""
    running = workspace.airflow.running()
    workspace.airflow.stop()
    console.print("Airflow is stopped." if running else "Airflow was not running.")
    return 0


def _terminate(number: int, frame: object) -> NoReturn:
    """Turn SIGTERM into an exit that lets Airflow's processes be stopped."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
