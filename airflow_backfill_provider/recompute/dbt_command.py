"""Calling the team's own dbt: one model is compiled, nothing is built, and nothing is written into the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow_backfill_provider.errors import CodeFailed, SpecError
from airflow_backfill_provider.spec.dbt import DbtModel

_QUOTED_LINES = 15
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_running: set[subprocess.Popen[str]] = set()


def compile_manifest(model: DbtModel, timeout: timedelta, *, full_refresh: bool = False) -> Mapping[str, Any]:
    """What ``dbt compile`` writes to ``manifest.json``; with the model's compiled SQL, if the project has such a model.

    :param timeout: how long dbt may take; it is ended then.
    :param full_refresh: compile it as for its first build, in which ``is_incremental()`` is false.
    :raises SpecError: dbt, or the project, is not there.
    :raises CodeFailed: dbt says no, with its last lines; or takes too long.
    """
    command = _executable(model)
    project = Path(model.project_dir)
    if not (project / "dbt_project.yml").is_file():
        raise SpecError(
            f"transform.dbt.project_dir {model.project_dir}: there is no dbt_project.yml in it. Give the folder of the dbt project, "
            "relative to the spec's file. Nothing was staged."
        )
    with TemporaryDirectory(prefix="safe-backfill-dbt-") as scratch:
        arguments = [
            *(command, "--no-use-colors", "--log-path", scratch, "compile", "--target-path", f"{scratch}/target"),
            *("--select", model.model, "--project-dir", str(project.absolute())),
            *(("--profiles-dir", str(Path(model.profiles_dir).absolute())) if model.profiles_dir else ()),
            *(("--target", model.target) if model.target else ()),
            *(("--vars", json.dumps(model.vars)) if model.vars else ()),
            *(("--full-refresh",) if full_refresh else ()),
        ]
        # A model is the team's own: whether dbt sends statistics of it is for them to say, in the environment.
        environment = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false"} | os.environ
        try:
            done = _run(arguments, project, environment, timeout)
        except subprocess.TimeoutExpired as late:
            raise CodeFailed(
                f"dbt compile of the model {model.model} took longer than compute.statement_timeout, {timeout}, and was ended. Nothing "
                "was staged. See whether it waits for its database, or raise the timeout."
            ) from late
        manifest = Path(scratch, "target", "manifest.json")
        if done.returncode != 0 or not manifest.is_file():
            raise CodeFailed(
                f"dbt could not compile the model {model.model} (it ended with {done.returncode}). Nothing was staged. Its last "
                f"lines:\n{_last_lines(done.stdout + done.stderr)}"
            )
        found: Mapping[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        return found


def end_compiling() -> None:
    """End every dbt that runs for this process, with what it started; for a task that is to end."""
    for process in tuple(_running):
        _kill(process)


def _run(
    arguments: Sequence[str], project: Path, environment: Mapping[str, str], timeout: timedelta
) -> subprocess.CompletedProcess[str]:
    """Run it in a session of its own; it is gone when this returns or raises."""
    # The standard input of a task is its way to Airflow's supervisor.
    with subprocess.Popen(
        arguments,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        _running.add(process)
        try:
            output, errors = process.communicate(timeout=timeout.total_seconds())
        except BaseException:
            _kill(process)
            raise
        finally:
            _running.discard(process)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _executable(model: DbtModel) -> str:
    found = shutil.which(model.executable)
    if found is None:
        raise SpecError(
            f"transform.dbt.executable {model.executable!r} was not found on this worker. dbt is yours to install where the plan is "
            "made, best in a virtual environment of its own, since it rarely fits beside Airflow: write its path, such as "
            "/opt/dbt/bin/dbt. Nothing was staged."
        )
    return found


def _last_lines(output: str) -> str:
    lines = [line.rstrip() for line in _COLOURS.sub("", output).splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-_QUOTED_LINES:]) or "    (none)"
