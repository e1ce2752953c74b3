"""A PostgreSQL server of our own on loopback, without Docker: for the demo and for tests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_PROGRAMS = Path("/usr/lib/postgresql")
NEEDED = (
    "PostgreSQL's server programs are needed and were not found in /usr/lib/postgresql or on PATH. "
    "Install the system package postgresql (Debian: apt-get install postgresql)."
)


def find_programs() -> Path | None:
    """The folder of initdb and pg_ctl, of the newest version there is; None when there is none."""
    versions = sorted(_PROGRAMS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("pg_ctl")
    return Path(found).parent if found else None


_RUNUSER = shutil.which("runuser") or "/usr/sbin/runuser"
"""Which a PATH that was not made for root may leave out."""


class LocalPostgres:
    """One server, found again from another Python by its record, a file that only its owner can read.

    The data is in a folder of its own among the temporary ones, because a server that root starts runs as ``postgres``,
    who may not enter root's folders.
    """

    def __init__(
        self,
        record: Path,
        *,
        password: str = "",
        login: str = "scram-sha-256",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is started.

        :param password: of the superuser; made up when left out.
        :param login: how everybody logs in, as ``pg_hba.conf`` calls it.
        :param settings: of the server, beside those it needs to be reached.
        """
        self._record = record
        self._password = password
        self._login = login
        self._settings = settings or {}
        self.user = "postgres"

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1."""
        return int(self._known()["port"])

    @property
    def pid(self) -> int:
        """The server's first process, which started all others; for a server that runs."""
        return int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    @property
    def password(self) -> str:
        """The password of :attr:`user`, the server's superuser."""
        return str(self._known()["password"])

    def create(self) -> None:
        """Make a new, empty server; an earlier one is stopped and removed.

        :raises RuntimeError: PostgreSQL's programs are not there; the message names the package.
        """
        programs = find_programs()
        if programs is None:
            raise RuntimeError(NEEDED)
        self.remove()
        folder = Path(tempfile.mkdtemp(prefix="safe-backfill-postgres-"))
        password = self._password or secrets.token_urlsafe(12)
        with tempfile.NamedTemporaryFile("w", prefix="safe-backfill-", suffix=".pw") as given:
            given.write(password)
            given.flush()
            if _is_root():
                shutil.chown(folder, "postgres")
                shutil.chown(given.name, "postgres")
            self._run(
                folder, str(programs / "initdb"), "-D", str(folder / "data"), "-U", self.user, "-A", self._login,
                "--encoding", "UTF8", "--pwfile", given.name,
            )  # fmt: skip
        known = {"folder": str(folder), "programs": str(programs), "port": _free_port(), "password": password}
        self._record.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(known, file)

    def start(self) -> None:
        """Start it and wait until it answers; silent when it runs."""
        folder = self._folder
        if self.is_running:
            return
        needed = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": str(folder)}
        options = " ".join(f"-c {name}={value}" for name, value in {**self._settings, **needed}.items())
        self._pg_ctl("-l", str(folder / "log"), "-o", options, "start")

    @property
    def is_running(self) -> bool:
        """Whether a server runs on its data."""
        return self._record.exists() and self._pg_ctl("status", check=False) == 0

    def stop(self) -> None:
        """Stop it, ending every session; silent when it does not run."""
        if self.is_running:
            self._pg_ctl("-m", "fast", "stop")

    def remove(self) -> None:
        """Stop it and remove its data and its record; silent when there is none."""
        if self._record.exists():
            self.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._record.unlink()

    def connect(self, database: str, **settings: Any) -> psycopg.Connection[Any]:
        """A new connection to one of its databases."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password, dbname=database, **settings
        )

    @property
    def _folder(self) -> Path:
        return Path(self._known()["folder"])

    def _known(self) -> dict[str, Any]:
        return dict(json.loads(self._record.read_text()))

    def _pg_ctl(self, *arguments: str, check: bool = True) -> int:
        program = Path(self._known()["programs"]) / "pg_ctl"
        return self._run(self._folder, str(program), "-w", "-D", str(self._folder / "data"), *arguments, check=check)

    def _run(self, folder: Path, *command: str, check: bool = True) -> int:
        """Run one of PostgreSQL's programs, which refuse to run as root."""
        as_postgres = [_RUNUSER, "-u", "postgres", "--"] if _is_root() else []
        done = subprocess.run(
            [*as_postgres, *command],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{Path(command[0]).name} failed:\n{done.stderr}")
        return done.returncode


def _is_root() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
