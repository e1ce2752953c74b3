"""Connections to the local warehouse by the real client, as Airflow's hook opens them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from databricks_local.start import missing, start
from databricks_local.tables import Tables

__all__ = ["connect", "connection", "missing", "shared", "tables"]


def connection() -> dict[str, Any]:
    """The fields of an Airflow connection that leads to it."""
    return start().connection()


def connect(settings: Mapping[str, str]) -> Any:
    """A connection of its own with these parameters of the session."""
    from databricks import sql

    found = connection()
    extra = found["extra"]
    return sql.connect(
        found["host"],
        extra["http_path"],
        found["password"],
        session_configuration=dict(settings) or None,
        _connection_uri=extra["_connection_uri"],
        enable_telemetry=False,
    )


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


def run(*statements: str) -> None:
    """Run statements from outside the product, one after the other."""
    with shared() as connection, connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
