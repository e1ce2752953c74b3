"""A real Airflow on this machine: SQLite metadata, LocalExecutor, loopback only, everything under one folder."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import psutil

from airflow_backfill_provider.demo.airflow_api import AirflowApi
from airflow_backfill_provider.demo.started import Started, is_alive, send

COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server", "--host", "127.0.0.1", "--workers", "1"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_HEALTH_NAMES = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
_STOP_SECONDS = 8.0


class AirflowDied(RuntimeError):
    """A process of the local Airflow ended, or a command failed; the message holds the end of its log."""


class LocalAirflow:
    """One Airflow under ``home``; processes are found again from another Python by the file ``processes.json``.

    Nothing of the caller's environment that starts with ``AIRFLOW`` or ``_AIRFLOW`` reaches it. ``env`` is added last.
    ``users`` maps a name to its role; passwords are made here and kept in a file only the owner can read.
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        *,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        components: Sequence[str] = tuple(COMPONENTS),
    ) -> None:
        self.home = home.resolve()
        self.dags_folder = dags_folder.resolve()
        self.components = tuple(components)
        self._users = dict(users or {"admin": "admin"})
        self._wanted_port = port
        self._extra_env = dict(env or {})
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def logs(self) -> Path:
        """The folder with one log file per process; task logs are in ``logs/`` below it, as Airflow lays them out."""
        return self.home / "logs"

    @cached_property
    def port(self) -> int:
        """The port of the web server: the running one's, else the wanted one, else a free one."""
        recorded = self._state().get("port")
        if self._recorded() and isinstance(recorded, int):
            return recorded
        return self._wanted_port or free_port()

    @property
    def url(self) -> str:
        """The address of the web UI."""
        return f"http://127.0.0.1:{self.port}"

    @cached_property
    def passwords(self) -> dict[str, str]:
        """User name to password; made on first use."""
        path = self.home / "passwords.json"
        kept: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        missing = [user for user in self._users if user not in kept]
        if missing:
            self.home.mkdir(parents=True, exist_ok=True)
            kept |= {user: secrets.token_urlsafe(12) for user in missing}
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(kept, file)
        return kept

    @cached_property
    def env(self) -> dict[str, str]:
        """The environment of every process and command."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.upper().startswith(("AIRFLOW", "_AIRFLOW"))
        }
        settings = {
            "CORE__DAGS_FOLDER": str(self.dags_folder),
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "8",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in self._users.items()),
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "API__BASE_URL": self.url,
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        }
        return (
            inherited
            | {f"AIRFLOW__{name}": value for name, value in settings.items()}
            | {"AIRFLOW_HOME": str(self.home), "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1,localhost"}
            | self._extra_env
        )

    @cached_property
    def api(self) -> AirflowApi:
        """A REST client logged in as the first user."""
        user = next(iter(self._users))
        return AirflowApi(self.url, user, self.passwords[user])

    def cli(self, *arguments: str, timeout: float = 120) -> str:
        """Run one ``airflow`` command to its end and return what it printed.

        :raises AirflowDied: it failed.
        """
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise AirflowDied(
                f"airflow {' '.join(arguments)} ended with {done.returncode}:\n{_tail(done.stdout + done.stderr)}"
            )
        return done.stdout

    def migrate(self) -> None:
        """Create or upgrade the metadata database, and make the passwords; safe to run again."""
        self.logs.mkdir(parents=True, exist_ok=True)
        assert self.passwords
        self.cli("db", "migrate")

    def start(self, *names: str) -> None:
        """Start the named processes (all when none is named) that are not running; does not wait for them."""
        processes = self._recorded()
        for name in names or self.components:
            if name in processes and processes[name].leader() is not None:
                continue
            if name in self._children:
                self._children.pop(name).wait()  # ended by itself or by another Python; a zombie until now
            with (self.logs / f"{name}.log").open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "airflow", *COMPONENTS[name]],
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._children[name] = child
            processes[name] = Started.of(child.pid)
            self._record(processes)

    def wait_healthy(self, timeout: float = 240) -> None:
        """Wait until the web server answers, tasks included, and every started process reports itself healthy.

        :raises AirflowDied: one of them ended.
        :raises TimeoutError: naming what is not healthy.
        """
        deadline = time.monotonic() + timeout
        warm = "api-server" not in self._recorded()
        while True:
            names = self._recorded()
            for name, process in names.items():
                if process.leader() is None:
                    raise AirflowDied(f"The {name} ended:\n{self.log_tail(name)}")
            health = self.api.health()
            if health and not warm:
                warm = self.api.warm_up()
            wanted = {"metadatabase", *(_HEALTH_NAMES[name] for name in names if name in _HEALTH_NAMES)}
            unhealthy = sorted(name for name in wanted if health.get(name) != "healthy")
            if warm and not unhealthy:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"Not healthy after {timeout:.0f} s: {', '.join(unhealthy)}. The logs are in {self.logs}."
                )
            time.sleep(0.25)

    def running(self) -> tuple[str, ...]:
        """Names of the processes that are alive."""
        return tuple(name for name, process in self._recorded().items() if process.leader() is not None)

    def processes(self, *names: str) -> list[psutil.Process]:
        """Every live process of the named ones (all when none is named), those that they started included."""
        recorded = self._recorded()
        return [member for name in names or recorded if name in recorded for member in recorded[name].session()]

    def stop(self, *names: str) -> None:
        """End the named processes (all when none is named) and everything they started; silent when gone already."""
        self._end(names, patience=_STOP_SECONDS)

    def kill(self, *names: str) -> None:
        """End them at once with SIGKILL, as a crash of the machine would."""
        self._end(names, patience=0)

    def kill_task(self, pid: int) -> None:
        """SIGKILL one task process of the scheduler, by the id that the task instance shows.

        :raises ProcessLookupError: the process is not one of this scheduler's.
        """
        scheduler = self._recorded().get("scheduler")
        for process in scheduler.session() if scheduler else ():
            if process.pid == pid:
                send(process, signal.SIGKILL)
                return
        raise ProcessLookupError(f"{pid} is not a process of this Airflow's scheduler.")

    def log_tail(self, name: str, lines: int = 40) -> str:
        """The end of one process's log."""
        path = self.logs / f"{name}.log"
        return _tail(path.read_text(errors="replace"), lines) if path.exists() else "(no log)"

    def _end(self, names: Sequence[str], *, patience: float) -> None:
        processes = self._recorded()
        chosen = {name: process for name, process in processes.items() if not names or name in names}
        members = [member for process in chosen.values() for member in process.session()]
        if patience:
            for leader in filter(None, [process.leader() for process in chosen.values()]):
                send(leader, signal.SIGTERM)
            self._wait_gone(members, patience)
        members += [member for process in chosen.values() for member in process.session()]
        for member in members:
            send(member, signal.SIGKILL)
        for name in list(self._children):
            # One that was ended from another Python is no longer recorded, and still ours to reap.
            if name in chosen or self._children[name].poll() is not None:
                self._children.pop(name).wait()
        self._wait_gone(members, _STOP_SECONDS)
        remaining = {name: process for name, process in processes.items() if name not in chosen}
        if chosen:
            self._record(remaining)
        if not remaining and "api" in self.__dict__:
            self.api.close()
            del self.__dict__["api"]

    def _wait_gone(self, members: Sequence[psutil.Process], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for child in self._children.values():
                child.poll()
            if not any(is_alive(member) for member in members):
                return
            time.sleep(0.05)

    def _state(self) -> dict[str, object]:
        path = self.home / "processes.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _recorded(self) -> dict[str, Started]:
        recorded = self._state().get("processes")
        return {name: Started(**entry) for name, entry in recorded.items()} if isinstance(recorded, dict) else {}

    def _record(self, processes: Mapping[str, Started]) -> None:
        entries = {name: process.entry() for name, process in processes.items()}
        path = self.home / "processes.json"
        path.with_suffix(".new").write_text(json.dumps({"port": self.port, "processes": entries}))
        path.with_suffix(".new").replace(path)


@contextmanager
def running(airflow: LocalAirflow, *, timeout: float = 240) -> Iterator[LocalAirflow]:
    """Start everything, wait until it is healthy, and end it all on the way out, whatever happened."""
    try:
        airflow.start()
        airflow.wait_healthy(timeout)
        yield airflow
    finally:
        airflow.stop()


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether nothing listens on the port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])
