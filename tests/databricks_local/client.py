"""Connections to the local warehouse by the real client, as Airflow's hook opens them."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_backfill_provider.demo.local_databricks.server import LocalDatabricks, missing
from databricks_local.bounds import BoundedConnection, require_bounded, require_settings
from databricks_local.tables import Tables

if TYPE_CHECKING:
    from airflow_backfill_provider.warehouses.databricks.statements import StatementApi

__all__ = ["bounded", "connect", "connection", "forget", "missing", "shared", "statement_api", "tables"]
_T = TypeVar("_T")
_CONN_ID = "local_databricks_of_tests"


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
def statement_api() -> StatementApi:
    """Its Statement Execution API through Airflow's own hook, as a connection of the product has it; bounded likewise."""
    from airflow_backfill_provider.connections import warehouse_at
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse
    from airflow_backfill_provider.warehouses.databricks.statements import StatementApi

    os.environ[f"AIRFLOW_CONN_{_CONN_ID.upper()}"] = json.dumps(connection())
    with _without_warnings():
        warehouse = warehouse_at(_CONN_ID)
    assert isinstance(warehouse, DatabricksWarehouse)
    api = warehouse._statement_api
    assert api is not None

    def submit(sql: str) -> str:
        require_bounded(sql)
        return _quiet(api.submit)(sql)

    return StatementApi(submit, _quiet(api.look), _quiet(api.cancel))


def _quiet(call: Callable[[str], _T]) -> Callable[[str], _T]:
    def called(text: str) -> _T:
        with _without_warnings():
            return call(text)

    return called


@contextmanager
def _without_warnings() -> Iterator[None]:
    """The provider itself uses what Airflow deprecates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ProvidersManager.hooks is deprecated")
        yield


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
