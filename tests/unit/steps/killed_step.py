"""Run one step in a process of its own and SIGKILL it before its Nth statement on either database.

A statement is one that the warehouse's session runs or one write transaction of the ledger. Processes are forked from a
server that has imported everything and has never opened a database, so that a kill costs no Python start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import pytest
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.warehouses.duckdb.session import Session

BY_WEEK: dict[str, Any] = {"publish": {"unit": "week", "lock_timeout": "2s"}}
SWAPPED: dict[str, Any] = {"publish": {"mechanism": "view_swap", "lock_timeout": "2s"}}
SPECS = {"publish by week": BY_WEEK, "publish behind a view": SWAPPED}
THREE_DAYS = {"start_date": DAYS[0], "end_date": DAYS[2]}
_SPARED = {
    "publish behind a view": ("SELECT",),
    "trial": ("SELECT", "ATTACH", "SET", "RESET", "USE", "DETACH", "BEGIN"),
}
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["killed_step"])


@cache
def _start_server() -> None:
    """Start it with this process's import path, which it only takes over after having preloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        ensure_running()


def kill(folder: Path, step: str, survived: int) -> bool:
    """Run ``trial``, ``stage``, ``publish`` (``by week``, ``behind a view``) or ``rollback`` and kill it; whether it ended by itself
    instead."""
    _start_server()
    process = FORKS.Process(target=_run, args=(folder, step, survived))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"{step} broke instead of being killed: {process.exitcode}"
    return process.exitcode == 0


def _run(folder: Path, step: str, survived: int) -> None:
    warehouse = DuckDBWarehouse(folder / "warehouse.duckdb", staging_dir=folder / "staging")
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        spec = make_spec(**SPECS.get(step, {}))
        world = World(None, warehouse, ledger, spec)  # type: ignore[arg-type]
        countdown = [survived]
        # What a statement that only reads finds is what the next write finds: behind a view there are many of them.
        spared = _SPARED.get(step)
        Session.run = _dying(Session.run, countdown, spared)  # type: ignore[method-assign]
        Ledger._write = _dying(Ledger._write, countdown)  # type: ignore[method-assign]
        match step:
            case "stage":
                stage_batch(world.work(), world.scope(**THREE_DAYS).batches[0].keys)
            case "trial":
                world.scope(**THREE_DAYS)
                world.try_one()
            case "publish" | "publish by week" | "publish behind a view":
                world.publish()
                conclude(world.work())
            case "rollback":
                world.rollback()
    warehouse.close()


def _dying(
    function: Callable[..., Any], countdown: list[int], spared: tuple[str, ...] | None = None
) -> Callable[..., Any]:
    """The function, which kills its own process instead of running for the Nth time; statements that start so do not count."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if spared is None or not str(args[-1]).startswith(spared):
            countdown[0] -= 1
        if countdown[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call
