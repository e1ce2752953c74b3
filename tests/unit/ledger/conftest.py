"""Every ledger test runs on a real SQLite file, and on a real PostgreSQL where its programs and psycopg are there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import URL, NullPool, create_engine, text

from airflow_backfill_provider.ledger.store import Ledger


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[URL]:
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs or find_spec("psycopg") is None:
        pytest.skip("needs PostgreSQL's programs in /usr/lib/postgresql and psycopg")
    as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    user = "postgres" if as_postgres else os.environ.get("USER", "postgres")
    folder = Path(tempfile.mkdtemp(prefix="ledger-pg-"))
    if as_postgres:
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    pg_ctl = [*as_postgres, str(programs[-1].with_name("pg_ctl")), "-w", "-D", str(data)]
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder} -c fsync=off"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder}
    try:
        subprocess.run([*as_postgres, str(programs[-1]), "-D", str(data), "-U", user, "-A", "trust"], **quiet)
        subprocess.run([*pg_ctl, "-l", str(folder / "log"), "-o", options, "start"], **quiet)
        try:
            yield URL.create("postgresql+psycopg", user, "hunter2", "127.0.0.1", port, "postgres")
        finally:
            subprocess.run([*pg_ctl, "-m", "immediate", "stop"], **quiet)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that holds nothing yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: URL = request.getfixturevalue("postgresql_server")
    engine = create_engine(server, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return server.render_as_string(hide_password=False)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """An empty ledger with its schema."""
    with Ledger(ledger_url) as opened:
        opened.upgrade()
        yield opened
