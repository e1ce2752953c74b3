"""A PostgreSQL of the tests' own, on loopback, started once per process and stopped when the process ends."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import URL

NEEDS = "needs PostgreSQL's programs in /usr/lib/postgresql and psycopg"


def _programs() -> list[Path]:
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))


def is_installed() -> bool:
    return bool(_programs()) and find_spec("psycopg") is not None


@cache
def start() -> URL:
    """The address of the server's first database; the login is its superuser."""
    initdb = _programs()[-1]
    as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    user = "postgres" if as_postgres else os.environ.get("USER", "postgres")
    folder = Path(tempfile.mkdtemp(prefix="backfill-pg-"))
    if as_postgres:
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    pg_ctl = [*as_postgres, str(initdb.with_name("pg_ctl")), "-w", "-D", str(data)]
    options = (
        f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} -c fsync=off "
        "-c max_connections=200 -c max_prepared_transactions=2"
    )

    def run(*command: str) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    def stop() -> None:
        if (data / "postmaster.pid").exists():
            run(*pg_ctl, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    run(*as_postgres, str(initdb), "-D", str(data), "-U", user, "-A", "trust")
    run(*pg_ctl, "-l", str(folder / "log"), "-o", options, "start")
    return URL.create("postgresql+psycopg", user, "hunter2", "127.0.0.1", port, "postgres")
