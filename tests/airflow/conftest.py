"""One real Airflow for every scheduler test: started once, in a folder of its own, on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_backfill_provider.demo.local_airflow import LocalAirflow, running

AddDags = Callable[[Path], None]


@pytest.fixture(scope="session")
def airflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """All four processes, healthy, with an empty DAG folder and users ``admin``, ``viewer`` and ``ben``."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    server = LocalAirflow(
        folder / "home",
        folder / "dags",
        users={"admin": "admin", "viewer": "viewer", "ben": "user"},
        env={
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
            "AIRFLOW__SAFE_BACKFILL__POOL_PATIENCE": "10",
            # A scheduler without a heartbeat for this long is dead, and its running tasks are scheduled again.
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
        },
    )
    server.migrate()
    with running(server):
        yield server


@pytest.fixture
def all_running(airflow_server: LocalAirflow) -> Iterator[LocalAirflow]:
    """The server, with whatever the test killed or stopped started again afterwards."""
    yield airflow_server
    airflow_server.start()
    airflow_server.wait_healthy()


@pytest.fixture(scope="session")
def add_dags(airflow_server: LocalAirflow) -> AddDags:
    """Put a DAG file, or a folder of DAG files, into the server's DAG folder."""

    def add(source: Path) -> None:
        wanted = airflow_server.dags_folder / source.name
        if source.is_dir():
            shutil.copytree(source, wanted, dirs_exist_ok=True)
        else:
            shutil.copy(source, wanted)

    return add
