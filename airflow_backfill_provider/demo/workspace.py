"""The demo's folder: a warehouse file, a ledger file, and an Airflow home, and how they are made ready."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import airflow_backfill_provider
from airflow_backfill_provider.demo.calls import Calls
from airflow_backfill_provider.demo.engines import demo_engine
from airflow_backfill_provider.demo.local_airflow import COMPONENTS, LocalAirflow

CONN_ID = "warehouse_backfill"
BACKFILL_DAG = "backfill__fct_flights"
ROLLBACK_DAG = "rollback__fct_flights"
DEFAULT_ENGINE = "duckdb"


def example_dags() -> Path:
    """The folder of the example DAGs: within the package when it was installed, beside it in a clone."""
    package = Path(airflow_backfill_provider.__file__).parent
    installed = package / "example_dags"
    return installed if installed.is_dir() else package.parent / "dags"


class Workspace:
    """Everything the demo writes, under one folder that it made itself."""

    def __init__(
        self,
        home: Path,
        calls: Calls,
        *,
        engine: str | None = None,
        dags: Path | None = None,
        port: int | None = None,
        triggerer: bool = True,
    ) -> None:
        self.home = home
        self.calls = calls
        self.dags = dags or example_dags()
        self._mark = home / "this-folder-belongs-to-the-demo"
        self.engine_name = engine or self._engine_there() or DEFAULT_ENGINE
        self.engine = demo_engine(self.engine_name, home)
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
        return self._engine_there() == self.engine_name and self.engine.is_built

    def clear(self) -> None:
        """Stop its Airflow and remove everything the demo made.

        :raises FileExistsError: the folder holds something and was not made by the demo.
        """
        if not self.home.exists():
            return
        if (there := self._engine_there()) is None:
            if any(self.home.iterdir()):
                raise FileExistsError(
                    f"{self.home} was not made by the demo, so it is left alone. Give another folder with --home."
                )
            return
        self.airflow.stop()
        demo_engine(there, self.home).stop()
        shutil.rmtree(self.home)

    def make(self) -> None:
        """Load the data and create Airflow's database, both at once; replaces earlier data."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._mark.write_text(self.engine_name)
        with ThreadPoolExecutor(max_workers=1) as pool:
            migrated = pool.submit(self.airflow.migrate)
            self.engine.build()
            migrated.result()

    def start(self) -> None:
        """Start Airflow with pool, kill switch, ledger and warehouse connection in place, and both DAGs known."""
        self.engine.start()
        self.airflow.start()
        with ThreadPoolExecutor(max_workers=1) as pool:
            ready = pool.submit(self.airflow.cli, "safe-backfill", "init", "--ledger", str(self.ledger.resolve()))
            self.airflow.wait_healthy()
            ready.result()
        self.airflow.api.set_connection(CONN_ID, **self.engine.connection)
        for dag_id in (BACKFILL_DAG, ROLLBACK_DAG):
            self.airflow.api.wait_for_dag(dag_id)

    def stop(self) -> None:
        """Stop Airflow and the engine's server."""
        self.airflow.stop()
        self.engine.stop()

    def _engine_there(self) -> str | None:
        """The engine that the folder was made for; None when the demo did not make it."""
        return (self._mark.read_text() or DEFAULT_ENGINE) if self._mark.exists() else None
