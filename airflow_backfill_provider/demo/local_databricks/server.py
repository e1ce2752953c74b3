"""The local warehouse as a process: started, found again from another Python by its record, and stopped by its id."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow_backfill_provider.demo.started import Started

START_SECONDS = 240
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safe-backfill" / "spark-jars"
"""Where `.ci/need-spark` puts Delta's jars."""
ADDRESS = "address"
"""The file that the process writes its port to when it is ready."""
TOKEN = "token"
"""The file of the token that every call needs."""
WORKSPACE = "workspace"
"""The folder of its notebooks."""
TABLES = "tables"
"""The folder of its tables, each schema a folder in it."""
FOR_TESTS = "--for-tests"
_PATH = "/sql/1.0/warehouses/abc"
_STOP_SECONDS = 20.0


def missing() -> str:
    """What is not there, as a reason; empty when all of it is."""
    if find_spec("pyspark") is None or not _jars():
        return "needs Spark with Delta Lake: run .ci/need-spark in a clone"
    if shutil.which("java") is None:
        return "needs Java 17: run .ci/need-spark in a clone"
    if find_spec("databricks") is None or find_spec("databricks.sql") is None:
        return "needs databricks-sql-connector: pip install 'airflow-backfill-provider[databricks]'"
    return ""


def _jars() -> list[Path]:
    return sorted(JARS.glob("*.jar"))


class LocalDatabricks:
    """One server and its tables, all under one folder. The tables outlive the server: the next one finds them there."""

    def __init__(self, home: Path, *, for_tests: bool = False) -> None:
        """Nothing is started.

        :param for_tests: its tables have few rows, and it ends, and removes the folder, with the process that started it.
        """
        self.home = home.resolve()
        self._for_tests = for_tests
        self._record = self.home / "process.json"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def tables(self) -> Path:
        """The folder of the tables: ``schema.db/table``."""
        return self.home / TABLES

    @property
    def workspace(self) -> Path:
        """The folder of its notebooks: ``/Shared/a`` is ``Shared/a.py`` or ``Shared/a.sql`` in it."""
        return self.home / WORKSPACE

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1, of a server that runs."""
        return int((self.home / ADDRESS).read_text())

    @property
    def token(self) -> str:
        """The token that every call needs; once made, as long as the tables."""
        return (self.home / TOKEN).read_text()

    def _make_token(self) -> None:
        if not (self.home / TOKEN).exists():
            with open(os.open(self.home / TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"dapi{secrets.token_hex(16)}")

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        started = self._started()
        return started is not None and started.leader() is not None

    def start(self) -> None:
        """Start it and wait until it answers; silent when it runs.

        :raises RuntimeError: Spark or its jars are not there, or it did not start; the message has the end of its log.
        """
        if self.is_running:
            return
        if reason := missing():
            raise RuntimeError(f"The local Databricks SQL warehouse {reason}. Nothing was started.")
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / ADDRESS).unlink(missing_ok=True)
        self._make_token()
        root = str(Path(__file__).parents[3])
        mode = [FOR_TESTS] if self._for_tests else []
        with (self.home / "log").open("ab") as log:
            # A session of its own, so that Java is found, and ends, with it.
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "ignore",
                    "-m",
                    f"{__package__}.serve",
                    *mode,
                    str(self.home),
                    *map(str, _jars()),
                ],
                stdin=subprocess.PIPE if self._for_tests else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
                start_new_session=True,
            )
        self._record.write_text(json.dumps(Started.of(self._child.pid).entry()))
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not (self.home / ADDRESS).exists():
            if not self.is_running or time.monotonic() > deadline:
                log = (self.home / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"The local Spark did not start within {START_SECONDS} s:\n{log[-4000:]}")
            time.sleep(0.1)

    def connection(self, **extra: Any) -> dict[str, Any]:
        """The fields of an Airflow connection of type ``databricks`` that leads to it."""
        port = self.port
        found = {"http_path": _PATH, "_connection_uri": f"http://127.0.0.1:{port}/x", "enable_telemetry": False}
        return {
            "conn_type": "databricks",
            "host": "127.0.0.1",
            "port": port,
            "schema": "http",
            "password": self.token,
            "extra": found | extra,
        }

    def connect(self, settings: Mapping[str, str]) -> Any:
        """A connection of its own by the real client, with these parameters of the session."""
        from databricks import sql

        found = self.connection()
        extra = found["extra"]
        return sql.connect(
            found["host"],
            extra["http_path"],
            found["password"],
            session_configuration=dict(settings) or None,
            _connection_uri=extra["_connection_uri"],
            enable_telemetry=False,
        )

    def stop(self) -> None:
        """End it and Java; silent when it does not run. What was committed stays; a statement that runs is not committed."""
        if (started := self._started()) is not None:
            started.kill(_STOP_SECONDS)
            self._record.unlink(missing_ok=True)
        if self._child is not None:
            self._child.wait()
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child = None

    def remove(self) -> None:
        """Stop it and remove everything under its folder."""
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def _started(self) -> Started | None:
        return Started(**json.loads(self._record.read_text())) if self._record.exists() else None
