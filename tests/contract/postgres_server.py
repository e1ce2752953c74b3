"""A PostgreSQL of the tests' own, on loopback, started once per process and stopped when the process ends."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import URL

from airflow_backfill_provider.demo.local_postgres import LocalPostgres, find_programs

NEEDS = "needs PostgreSQL's server programs and psycopg"


def is_installed() -> bool:
    return find_programs() is not None and find_spec("psycopg") is not None


@cache
def start() -> URL:
    """The address of the server's first database; the login is its superuser."""
    record = Path(tempfile.gettempdir()) / f"safe-backfill-tests-{os.getpid()}.json"
    settings = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "2", "wal_level": "logical"}
    server = LocalPostgres(record, password="hunter2", login="trust", settings=settings)
    atexit.register(server.remove)
    server.create()
    server.start()
    return URL.create("postgresql+psycopg", server.user, server.password, "127.0.0.1", server.port, "postgres")
