"""Starting the local warehouse, once per process, and the Airflow connection that leads to it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_SECONDS = 240
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safe-backfill" / "spark-jars"
"""Where `.ci/need-spark` puts Delta's jars."""


def missing() -> str:
    """What is not there, as a reason to skip; empty when all of it is."""
    if find_spec("pyspark") is None or not _jars():
        return "needs Spark with Delta Lake: run .ci/need-spark"
    if shutil.which("java") is None:
        return "needs Java 17"
    if find_spec("databricks") is None or find_spec("databricks.sql") is None:
        return "needs databricks-sql-connector"
    return ""


def _jars() -> list[Path]:
    return sorted(JARS.glob("*.jar"))


class LocalDatabricks:
    """The process and its port."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="safe-backfill-spark-"))
        self.tables = self._folder / "tables"
        log = (self._folder / "log").open("wb")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        # A process group of its own, so that Java ends with it.
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "databricks_local.serve", str(self._folder), *map(str, _jars())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=self._folder,
            env=environment,
            start_new_session=True,
        )
        log.close()
        atexit.register(self.stop)
        self.port = self._wait()

    def _wait(self) -> int:
        address, deadline = self._folder / "address", time.monotonic() + START_SECONDS
        while not address.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"The local Spark did not start within {START_SECONDS} s:\n{log[-4000:]}")
            time.sleep(0.1)
        return int(address.read_text())

    def connection(self, **extra: Any) -> dict[str, Any]:
        """The fields of an Airflow connection of type ``databricks`` that leads to it."""
        return {
            "conn_type": "databricks",
            "host": "127.0.0.1",
            "port": self.port,
            "schema": "http",
            "password": "x",
            "extra": {
                "http_path": "/sql/1.0/warehouses/abc",
                "_connection_uri": f"http://127.0.0.1:{self.port}/x",
                "enable_telemetry": False,
            }
            | extra,
        }

    def stop(self) -> None:
        """End the process and Java's by their group, and remove its folder; silent when it is over."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def start() -> LocalDatabricks:
    """The one of this process; it ends with the process."""
    return LocalDatabricks()
