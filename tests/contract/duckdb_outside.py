"""DuckDB as somebody else uses it, beside the code under test: one instance for the whole process.

Opening an instance costs 45 ms of processor time, attaching a file to one that is open costs 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

import duckdb

_one_at_a_time = RLock()


def run(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Run the statements on a database file, which is made when it is missing; returns the last one's rows."""
    name = '"' + path.stem.replace('"', '""') + '"'  # as DuckDB would call it, because views in it may say so
    with _one_at_a_time, _instance().cursor() as connection:
        try:
            connection.execute(f"ATTACH '{path}' AS {name}")
        except duckdb.Error:  # the test itself has it open, in an instance that can be shared
            with duckdb.connect(str(path)) as shared:
                return _rows(shared, statements)
        try:
            connection.execute(f"USE {name}")
            return _rows(connection, statements)
        finally:
            _let_go(connection, name)


@contextmanager
def empty() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an empty database in memory, which is gone at the end."""
    with _one_at_a_time, _instance().cursor() as connection:
        connection.execute("ATTACH ':memory:' AS empty; USE empty")
        try:
            yield connection
        finally:
            _let_go(connection, "empty")


def _rows(connection: duckdb.DuckDBPyConnection, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
    for sql in statements:
        connection.execute(sql)
    return connection.fetchall()


def _let_go(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    with suppress(duckdb.Error):  # mostly there is no transaction that a failed statement left open
        connection.execute("ROLLBACK")
    connection.execute(f"USE memory; DETACH {name}")


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
