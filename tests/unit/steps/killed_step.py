"""Run one step in a process of its own and SIGKILL it before its Nth statement on either database.

    python killed_step.py FOLDER STEP N

A statement is one that the warehouse's session runs or one write transaction of the ledger. Exits with 0 when the step
ended before the Nth statement.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "contract")]

from steps_world import World, make_spec  # noqa: E402

from airflow_backfill_provider.ledger.store import Ledger  # noqa: E402
from airflow_backfill_provider.steps.report import conclude  # noqa: E402
from airflow_backfill_provider.steps.stage import stage_batch  # noqa: E402
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse  # noqa: E402
from airflow_backfill_provider.warehouses.duckdb_session import Session  # noqa: E402


def dying(function: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    """The function, which kills its own process instead of running for the Nth time."""

    def call(*args: Any, **kwargs: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call


def main() -> None:
    folder, step, survived = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    warehouse = DuckDBWarehouse(folder / "warehouse.duckdb", staging_dir=folder / "staging")
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        world = World(None, warehouse, ledger, make_spec())  # type: ignore[arg-type]
        countdown = [survived]
        Session.run = dying(Session.run, countdown)  # type: ignore[method-assign]
        Ledger._write = dying(Ledger._write, countdown)  # type: ignore[method-assign]
        match step:
            case "stage":
                stage_batch(world.work(), world.scope().batches[0].keys)
            case "publish":
                world.publish()
                conclude(world.work())
            case "rollback":
                world.rollback()
    warehouse.close()


if __name__ == "__main__":
    main()
