"""The demo's folder: a warehouse file, a ledger file, and an Airflow home, and how they are made ready."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import airflow_backfill_provider
from airflow_backfill_provider.demo.calls import Calls
from airflow_backfill_provider.demo.data import build_warehouse
from airflow_backfill_provider.demo.local_airflow import COMPONENTS, LocalAirflow

CONN_ID = "warehouse_backfill"
BACKFILL_DAG = "backfill__fct_flights"
ROLLBACK_DAG = "rollback__fct_flights"
_MARK = "this-folder-belongs-to-the-demo"


def example_dags() -> Path:
    """The folder of the example DAGs: within the package when it was installed, beside it in a clone."""
    package = Path(airflow_backfill_provider.__file__).parent
    installed = package / "example_dags"
    return installed if installed.is_dir() else package.parent / "dags"


class Workspace:
    """Everything the demo writes, under one folder that it made itself."""

    def __init__(
        self, home: Path, calls: Calls, *, dags: Path | None = None, port: int | None = None, triggerer: bool = True
    ) -> None:
        self.home = home
        self.calls = calls
        self.dags = dags or example_dags()
        self.warehouse = home / "warehouse.duckdb"
        self.ledger = home / "ledger.db"
        components = [name for name in COMPONENTS if triggerer or name != "triggerer"]
        self.airflow = LocalAirflow(home / "airflow", self.dags, port=port, components=components)

    @property
    def ledger_url(self) -> str:
        """The ledger as SQLAlchemy opens it."""
        return f"sqlite:///{self.ledger.resolve()}"

    @property
    def exists(self) -> bool:
        """Whether it was made ready before."""
        return (self.home / _MARK).exists() and self.warehouse.exists()

    def clear(self) -> None:
        """Stop its Airflow and remove everything the demo made.

        :raises FileExistsError: the folder holds something and was not made by the demo.
        """
        if not self.home.exists():
            return
        if not (self.home / _MARK).exists():
            if any(self.home.iterdir()):
                raise FileExistsError(
                    f"{self.home} was not made by the demo, so it is left alone. Give another folder with --home."
                )
            return
        self.airflow.stop()
        shutil.rmtree(self.home)

    def make(self) -> None:
        """Load the data and create Airflow's database, both at once; replaces an earlier warehouse."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / _MARK).touch()
        with ThreadPoolExecutor(max_workers=1) as pool:
            migrated = pool.submit(self.airflow.migrate)
            build_warehouse(self.warehouse)
            migrated.result()

    def start(self) -> None:
        """Start Airflow with pool, kill switch, ledger and warehouse connection in place, and both DAGs known."""
        self.airflow.start()
        with ThreadPoolExecutor(max_workers=1) as pool:
            ready = pool.submit(self.airflow.cli, "safe-backfill", "init", "--ledger", str(self.ledger.resolve()))
            self.airflow.wait_healthy()
            ready.result()
        self.airflow.api.set_connection(CONN_ID, "duckdb", host=str(self.warehouse.resolve()))
        for dag_id in (BACKFILL_DAG, ROLLBACK_DAG):
            self.airflow.api.wait_for_dag(dag_id)
