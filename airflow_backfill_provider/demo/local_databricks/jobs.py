"""Jobs that really run: notebooks of the workspace, each in a session of its own, with their states and a way to cancel them.

A notebook is a file below the workspace's folder, in Databricks' own source format: ``.py``, which finds ``spark`` and
``dbutils.widgets``, or ``.sql``, whose parameters are written ``:name``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_COMMAND = re.compile(r"^-- COMMAND -+\n", re.MULTILINE)


class Refused(Exception):
    """What was asked is not possible; the message says why."""


class Widgets:
    """The parameters of a notebook, as ``dbutils.widgets`` has them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def get(self, name: str) -> str:
        """:raises KeyError: there is no such parameter."""
        return self._values[name]

    def text(self, name: str, default: str) -> None:
        """Declare one, with the value that it has when nobody gives another."""
        self._values.setdefault(name, default)


class Utilities:
    """What of ``dbutils`` a notebook finds."""

    def __init__(self, widgets: Widgets) -> None:
        self.widgets = widgets


class Run:
    """One run of some tasks, one after the other."""

    def __init__(self, run_id: int, spark: SparkSession, notebooks: list[tuple[Path, dict[str, str]]]) -> None:
        self.id = run_id
        self._spark = spark.newSession()
        self._group = f"run-{run_id}"
        self._notebooks = notebooks
        self._is_cancelled = threading.Event()
        self.state = {"life_cycle_state": "RUNNING", "state_message": ""}

    def run(self) -> None:
        """Run it to its end."""
        result, message = "SUCCESS", ""
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            for path, parameters in self._notebooks:
                self._run_one(path, parameters)
        except Exception as error:  # whatever it is, the client must hear of it
            result, message = "FAILED", f"{type(error).__name__}: {error}"
        if self._is_cancelled.is_set():
            result, message = "CANCELED", "Run cancelled."
        self.state = {"life_cycle_state": "TERMINATED", "result_state": result, "state_message": message}

    def _run_one(self, path: Path, parameters: dict[str, str]) -> None:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            names = {"spark": self._spark, "dbutils": Utilities(Widgets(parameters)), "__name__": "__main__"}
            exec(compile(text, str(path), "exec"), names)
            return
        # So that IDENTIFIER(:name) stands for a table beside parameters elsewhere in the statement.
        self._spark.conf.set("spark.sql.legacy.parameterSubstitution.constantsOnly", "true")
        for command in _COMMAND.split(text):
            if self._is_cancelled.is_set():
                return
            self._spark.sql(command.strip().removesuffix(";"), args=parameters).collect()

    def cancel(self) -> None:
        """End it; silent when it is over."""
        self._is_cancelled.set()
        self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group, "cancelled by the client")


class Jobs:
    """Every job and every run since the start."""

    def __init__(self, spark: SparkSession, workspace: Path) -> None:
        self._spark = spark
        self._workspace = workspace
        self._numbers = count(1)
        self._jobs: dict[int, list[dict[str, Any]]] = {}
        self._runs: dict[int, Run] = {}
        self._by_token: dict[str, Run] = {}
        self._lock = threading.Lock()

    def create(self, tasks: list[dict[str, Any]]) -> int:
        """A new job of these tasks; its number."""
        job_id = next(self._numbers)
        self._jobs[job_id] = tasks
        return job_id

    def run_now(self, job_id: int, parameters: Mapping[str, str], token: str | None) -> Run:
        """Run a job. A parameter of the job takes the place of the task's of that name.

        :raises Refused: there is no such job, or a notebook of it is not there.
        """
        if job_id not in self._jobs:
            raise Refused(f"Job {job_id} does not exist.")
        return self.submit(self._jobs[job_id], parameters, token)

    def submit(self, tasks: list[dict[str, Any]], parameters: Mapping[str, str], token: str | None) -> Run:
        """Run these tasks once; the run there is already, when one was begun with this token.

        :raises Refused: a notebook is not there.
        """
        with self._lock:
            if token in self._by_token:
                return self._by_token[token]
            notebooks = [self._notebook(task.get("notebook_task"), parameters) for task in tasks]
            run = Run(next(self._numbers), self._spark, notebooks)
            self._runs[run.id] = run
            if token:
                self._by_token[token] = run
        threading.Thread(target=run.run, daemon=True).start()
        return run

    def find(self, run_id: int) -> Run:
        """The run of that number.

        :raises Refused: there is none.
        """
        if run_id not in self._runs:
            raise Refused(f"Run {run_id} does not exist.")
        return self._runs[run_id]

    def _notebook(self, task: dict[str, Any] | None, parameters: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
        if task is None:
            raise Refused("Only tasks with a notebook are run here.")
        path = task["notebook_path"]
        for suffix in (".py", ".sql"):
            file = (self._workspace / f"{path.lstrip('/')}{suffix}").resolve()
            if file.is_file() and self._workspace in file.parents:
                return file, {**task.get("base_parameters", {}), **parameters}
        raise Refused(f"Unable to access the notebook {path!r}: it does not exist.")
