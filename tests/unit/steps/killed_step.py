"""Run one step in a process of its own and SIGKILL it before its Nth statement on either database.

A statement is one that the warehouse's session runs or one write transaction of the ledger. Processes are forked from a
server that has imported everything and has never opened a database, so that a kill costs no Python start.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from steps_world import World, make_spec

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.warehouses.duckdb_session import Session

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["killed_step"])


def kill(folder: Path, step: str, survived: int) -> bool:
    """Run ``stage``, ``publish`` or ``rollback`` and kill it; whether it ended by itself instead."""
    process = FORKS.Process(target=_run, args=(folder, step, survived))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"{step} broke instead of being killed: {process.exitcode}"
    return process.exitcode == 0


def _run(folder: Path, step: str, survived: int) -> None:
    warehouse = DuckDBWarehouse(folder / "warehouse.duckdb", staging_dir=folder / "staging")
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        world = World(None, warehouse, ledger, make_spec())  # type: ignore[arg-type]
        countdown = [survived]
        Session.run = _dying(Session.run, countdown)  # type: ignore[method-assign]
        Ledger._write = _dying(Ledger._write, countdown)  # type: ignore[method-assign]
        match step:
            case "stage":
                stage_batch(world.work(), world.scope().batches[0].keys)
            case "publish":
                world.publish()
                conclude(world.work())
            case "rollback":
                world.rollback()
    warehouse.close()


def _dying(function: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    """The function, which kills its own process instead of running for the Nth time."""

    def call(*args: Any, **kwargs: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call
