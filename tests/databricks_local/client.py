"""Connections to the local warehouse by the real client, as Airflow's hook opens them."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from airflow_backfill_provider.demo.local_databricks.server import LocalDatabricks, missing
from databricks_local.bounds import BoundedConnection, require_settings
from databricks_local.tables import Tables

__all__ = ["bounded", "connect", "connection", "forget", "missing", "shared", "tables"]


@cache
def start() -> LocalDatabricks:
    """The one of this process."""
    server = LocalDatabricks(Path(tempfile.mkdtemp(prefix="safe-backfill-spark-")), for_tests=True)
    atexit.register(server.remove)
    server.start()
    return server


def connection() -> dict[str, Any]:
    """The fields of an Airflow connection that leads to it."""
    return start().connection()


def connect(settings: Mapping[str, str]) -> Any:
    """A connection of its own with these parameters of the session."""
    return start().connect(settings)


def bounded(settings: Mapping[str, str]) -> BoundedConnection:
    """The same for the product, whose every statement must be readable and bounded."""
    require_settings(settings)
    return BoundedConnection(connect(settings))


@cache
def _shared() -> Any:
    return connect({})


@contextmanager
def shared() -> Iterator[Any]:
    """One connection that every statement from outside the product goes through."""
    yield _shared()


@cache
def _tables() -> Tables:
    return Tables(start().tables, run)


def tables() -> Tables:
    """The tables of the shared Spark, with none of a test before."""
    found = _tables()
    found.clear()
    return found


def forget() -> None:
    """A test moves tables about itself, so none is counted on any more."""
    _tables().forget()


def run(*statements: str) -> None:
    """Run statements from outside the product, one after the other."""
    with shared() as connection, connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
