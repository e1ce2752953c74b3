"""A PgBouncer of the tests' own in front of their PostgreSQL: transaction mode, on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgres_server
import psycopg

NEEDS = "needs PostgreSQL's server programs, psycopg and pgbouncer (.ci/need-postgresql, .ci/need-pgbouncer)"

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user={user} password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
logfile = {folder}/log
auth_type = any
admin_users = {user}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
query_wait_timeout = {patience}
"""


def find_program() -> str | None:
    """The pooler's program, which Debian keeps where only root looks."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def is_installed() -> bool:
    return postgres_server.is_installed() and find_program() is not None


@contextmanager
def pooled(database: str, *, size: int, patience: int = 30) -> Iterator[dict[str, Any]]:
    """The address of the database through a pooler that has so many connections to the server, for all its clients.

    :param patience: seconds that a transaction waits for one of them.
    """
    url = postgres_server.start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder = Path(tempfile.mkdtemp(prefix="safe-backfill-pooler-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _SETTINGS.format(
            server=url.port,
            user=url.username,
            password=url.password,
            port=port,
            folder=folder,
            size=size,
            patience=patience,
        )
    )
    # It refuses to run as root, as PostgreSQL does.
    user: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": ()} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(folder, "postgres")
        shutil.chown(settings, "postgres")
    address = {"host": "127.0.0.1", "port": port, "user": url.username, "password": "", "dbname": database}
    with subprocess.Popen([str(find_program()), "-q", str(settings)], **user) as pooler:
        try:
            _wait_for(address, pooler)
            yield address
        finally:
            pooler.terminate()
            pooler.wait(30)
            shutil.rmtree(folder)


def _wait_for(address: dict[str, Any], pooler: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(**address).close()
            return
        except psycopg.OperationalError:
            assert pooler.poll() is None, "the pooler ended by itself"
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
