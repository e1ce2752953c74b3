"""One backfill on two Celery workers that share no disk: each has a home, a working directory and DAG files of its own.

Where that is allowed, each worker also runs under a host name of its own and sees nothing of the other's folder, nor of the
scheduler's. Run it with ``make test-celery``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cryptography.fernet import Fernet

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import LocalAirflow, free_port, running
from airflow_backfill_provider.demo.local_postgres import LocalPostgres
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger

pytest.importorskip("celery", reason="make test-celery installs it")
pytestmark = [pytest.mark.scheduler, pytest.mark.timeout(1800)]

WORKERS, DAYS = ("one", "two"), 6
RANGE = {"start_date": "2024-03-01", "end_date": f"2024-03-0{DAYS}"}
PATIENCE = 600


class Installation:
    """Airflow with its data in PostgreSQL, Redis between it and the workers, and a warehouse that all of them reach."""

    def __init__(self, folder: Path, server: LocalPostgres, redis: int) -> None:
        self.folder, self.server = folder, server
        login = f"{server.user}:{server.password}@127.0.0.1:{server.port}"
        self.ledger_url = f"postgresql+psycopg://{login}/ledger"
        self.shared = {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
            "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{login}/airflow",
            "AIRFLOW__CELERY__BROKER_URL": f"redis://127.0.0.1:{redis}/0",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"redis://127.0.0.1:{redis}/1",
            "AIRFLOW_CONN_SAFE_BACKFILL_LEDGER": f"postgres://{login}/ledger",
            "AIRFLOW_CONN_WAREHOUSE": f"postgres://{login}/shop",
        }
        (folder / "airflow").mkdir()
        self.airflow = LocalAirflow(
            folder / "airflow" / "home",
            self.dag_files("airflow"),
            env=self.shared,
            components=("api-server", "scheduler", "dag-processor"),
        )
        self.api: AirflowApi = self.airflow.api

    def dag_files(self, owner: str) -> Path:
        """A copy of the DAG files that nobody else reads."""
        return Path(shutil.copytree(Path(__file__).parent / "dags", self.folder / owner / "dags"))

    @contextmanager
    def worker(self, name: str) -> Iterator[None]:
        """A Celery worker for one task at a time, with nothing of another's."""
        own = self.folder / name
        own.mkdir(exist_ok=True)
        env = self.airflow.env | {
            "AIRFLOW_HOME": str(own / "home"),
            "HOME": str(own),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dag_files(name)),
            "PGAPPNAME": name,
        }
        command = [
            sys.executable, "-m", "airflow", "celery", "worker", "--concurrency", "1", "--skip-serve-logs",
            "--celery-hostname", name,
        ]  # fmt: skip
        others = [str(self.folder / other) for other in ("airflow", *WORKERS) if other != name]
        if _may_hide_folders():
            hidden = " && ".join(f"mkdir -p {other} && mount -t tmpfs none {other}" for other in others)
            command = [
                "unshare",
                "--mount",
                "--uts",
                "sh",
                "-c",
                f'hostname {name} && {hidden} && exec "$@"',
                "-",
                *command,
            ]
        with (own / "worker.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=own, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def rows(self, sql: str, database: str = "shop") -> list[tuple[Any, ...]]:
        with self.server.connect(database, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def run(self, dag_id: str, conf: dict[str, Any]) -> tuple[str, str, str]:
        """Run id, backfill id and outcome."""
        run_id = self.api.trigger(dag_id, conf)
        return run_id, backfill_id(dag_id, run_id), self.api.wait_for_run(dag_id, run_id, timeout=PATIENCE)


def _may_hide_folders() -> bool:
    return shutil.which("unshare") is not None and (
        subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, check=False).returncode == 0
    )


@contextmanager
def _redis(folder: Path) -> Iterator[int]:
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("celery")
    server = LocalPostgres(folder / "postgres.json")
    server.create()
    with ExitStack() as stack:
        stack.callback(server.remove)
        server.start()
        found = Installation(folder, server, stack.enter_context(_redis(folder)))
        for database in ("airflow", "ledger", "shop"):
            found.rows(f"CREATE DATABASE {database}", "postgres")
        found.rows("CREATE SCHEMA raw")
        found.rows("CREATE SCHEMA analytics")
        found.rows(
            "CREATE TABLE raw.orders AS SELECT i AS order_id, DATE '2024-03-01' + i / 5 AS order_date, i AS amount "
            f"FROM generate_series(0, {DAYS * 5 - 1}) AS t (i)"
        )
        found.rows("CREATE TABLE analytics.orders AS SELECT *, 'nobody' AS computed_by FROM raw.orders")
        found.airflow.migrate()
        stack.enter_context(running(found.airflow, timeout=PATIENCE))
        found.airflow.cli("safe-backfill", "init", timeout=PATIENCE)
        for dag_id in ("backfill__orders", "backfill__file_orders"):
            found.api.wait_for_dag(dag_id, timeout=PATIENCE)
        for name in WORKERS:
            stack.enter_context(found.worker(name))
        wait_until(
            lambda: all((folder / name / "worker.log").read_text().find(" ready.") > 0 for name in WORKERS) or None,
            "both workers", timeout=PATIENCE,
        )  # fmt: skip
        yield found


def test_both_workers_compute_one_backfill_and_publish_it_in_one_commit(installation: Installation) -> None:
    run_id, found, outcome = installation.run("backfill__orders", RANGE | {"reason": "two workers"})

    assert outcome == "success", installation.api.failures("backfill__orders", run_id)
    by_worker = dict(
        installation.rows("SELECT computed_by, count(DISTINCT order_date) FROM analytics.orders GROUP BY 1")
    )
    assert set(by_worker) == set(WORKERS), by_worker
    assert sum(by_worker.values()) == DAYS
    assert installation.rows("SELECT count(*), sum(amount) FROM analytics.orders") == [
        (DAYS * 5, sum(range(1, DAYS * 5 + 1)))
    ]
    with Ledger(installation.ledger_url) as ledger:
        assert ledger.backfill(found).state is BackfillState.COMPLETED
        assert len(ledger.events(found, "receipt")) == 1
    if _may_hide_folders():
        hosts = {task["hostname"] for task in installation.api.task_instances("backfill__orders", run_id)}
        assert hosts == set(WORKERS)


def test_a_warehouse_in_a_file_is_refused_when_the_plan_is_made(installation: Installation, tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA analytics")
        connection.execute(
            "CREATE TABLE analytics.orders AS SELECT 1 AS order_id, DATE '2024-03-01' AS order_date, 1 AS amount"
        )
    installation.api.set_connection("file_warehouse", "duckdb", host=str(path))

    run_id, found, outcome = installation.run("backfill__file_orders", RANGE | {"reason": "a file"})

    assert outcome == "failed"
    said = installation.api.request(
        "GET", f"/dags/backfill__file_orders/dagRuns/{run_id}/taskInstances/scope_partitions"
    )
    assert said["state"] == "failed"
    with Ledger(installation.ledger_url) as ledger:
        assert ledger.find_backfill(found) is None
    logs = [text for name in WORKERS for text in _logs(installation.folder / name, run_id)]
    assert any("files of one host, and CeleryExecutor may run each task on another" in text for text in logs)


def _logs(own: Path, run_id: str) -> Iterator[str]:
    """What tasks of the run logged on that worker, which is the only place that has it."""
    for path in own.glob("home/logs/**/*.log"):
        if run_id in str(path):
            yield path.read_text(errors="replace")
