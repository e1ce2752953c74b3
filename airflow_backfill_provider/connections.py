"""From Airflow connections to a warehouse and a ledger. Secrets stop here: nothing below sees a connection."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import Connection
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from sqlalchemy import URL

from airflow_backfill_provider.batches import MOST_TASKS
from airflow_backfill_provider.errors import LedgerError, SpecError
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Warehouse

SECTION = "safe_backfill"
DEFAULT_LEDGER_CONN_ID = "safe_backfill_ledger"
_GENERIC = "generic"
_KEPT_AS_GENERIC = (
    f"`airflow connections add` keeps a type that no installed provider registers as {_GENERIC}, with a warning."
)

_LEDGER_OPTIONS = frozenset(
    {
        "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslcrldir", "sslsni", "ssl_min_protocol_version",
        "ssl_max_protocol_version", "gssencmode", "channel_binding", "require_auth", "target_session_attrs", "application_name",
        "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
    }
)  # fmt: skip
"""What of a ledger connection's extra is meant for libpq; the rest is for Airflow's own hook."""
_LEDGER_PATIENCE = {"connect_timeout": "10", "tcp_user_timeout": "60000"}
"""Seconds to connect, and milliseconds for the network to answer, unless the extra says otherwise."""

log = logging.getLogger(__name__)


def warehouse_for(spec: BackfillSpec, *, sharers: int = 1) -> Warehouse:
    """Open the warehouse behind ``spec.compute.conn_id``; the caller closes it.

    :param sharers: how many tasks may work at once, for an engine that computes on the worker itself.

    :raises SpecError: there is no such connection, or its type has no warehouse.
    """
    compute = spec.compute
    if compute.live_conn_id is not None and not compute.allow_shared_compute:
        _refuse_shared(compute.conn_id, compute.live_conn_id)
    return warehouse_at(
        compute.conn_id,
        sharers=sharers,
        lock_timeout=spec.publish.lock_timeout,
        statement_timeout=compute.statement_timeout,
    )


def warehouse_to_end(planned: BackfillSpec, conn_id: str | None = None) -> Warehouse:
    """Open the warehouse in which a backfill is rolled back, given up or accepted, with the timeouts of the spec that its plan
    froze; the caller closes it.

    Whether the compute is the live pipeline's is not asked again: that is about what a backfill computes, and a
    ``live_conn_id`` that is gone since must not keep it from its end.

    :param conn_id: the connection; the plan's when left out.
    :raises SpecError: as :func:`warehouse_at`.
    """
    return warehouse_at(
        conn_id or planned.compute.conn_id,
        lock_timeout=planned.publish.lock_timeout,
        statement_timeout=planned.compute.statement_timeout,
    )


def is_connection(conn_id: str) -> bool:
    """Whether Airflow knows a connection of that name."""
    return _connection(conn_id) is not None


def warehouse_at(conn_id: str, *, sharers: int = 1, **timeouts: timedelta) -> Warehouse:
    """Open the warehouse behind a connection; the caller closes it.

    :param timeouts: ``lock_timeout`` and ``statement_timeout``; the warehouse's own when left out.
    :raises SpecError: as :func:`warehouse_for`.
    """
    connection = _connection(conn_id)
    if connection is None:
        raise SpecError(
            f"compute.conn_id {conn_id!r}: there is no such Airflow connection. Create it with "
            f"`airflow connections add {conn_id} --conn-type duckdb --conn-host /path/to/warehouse.duckdb`, or with "
            "--conn-type postgres and host, login, password and the database as schema."
        )
    kind = connection.conn_type or ""
    settings = _SETTINGS.get(kind)
    if settings is None:
        again = f"Delete it with `airflow connections delete {conn_id}`, run pip install 'airflow-backfill-provider[…]', and add it again."
        raise SpecError(
            f"compute.conn_id {conn_id!r} is a connection of type {kind!r}, which has no warehouse; "
            f"supported: {', '.join(sorted(_SETTINGS))}." + (f" {_KEPT_AS_GENERIC} {again}" if kind == _GENERIC else "")
        )
    return open_warehouse(kind, **settings(conn_id, connection, sharers), **timeouts)


def _refuse_shared(conn_id: str, live_conn_id: str) -> None:
    """:raises SpecError: both connections lead to one SQL warehouse, or that cannot be told."""
    connection, live = _connection(conn_id), _connection(live_conn_id)
    if connection is None:
        return  # which is refused for itself
    if live is None:
        raise SpecError(
            f"compute.live_conn_id {live_conn_id!r}: there is no such Airflow connection, so nobody can tell whether the "
            "backfill would take the live pipeline's compute. Name the connection that the scheduled DAG runs on."
        )
    if connection.conn_type != "databricks":
        raise SpecError(
            f"compute.live_conn_id is for Databricks, and compute.conn_id {conn_id!r} is a connection of type "
            f"{connection.conn_type!r}. Leave it out."
        )
    ours, theirs = _compute(connection), _compute(live)
    for name, found in ((f"compute.conn_id {conn_id!r}", ours), (f"compute.live_conn_id {live_conn_id!r}", theirs)):
        if found is None:
            raise SpecError(
                f"{name} does not say which SQL warehouse it leads to, so nobody can tell whether the backfill would take the live "
                "pipeline's compute. It must be of type databricks with a host, and http_path in its extra. Where the live "
                "pipeline runs on no SQL warehouse, leave compute.live_conn_id out."
            )
    if ours == theirs:
        path = connection.extra_dejson["http_path"]
        raise SpecError(
            f"compute.conn_id {conn_id!r} and compute.live_conn_id {live_conn_id!r} lead to one SQL warehouse ({path}), where "
            "the backfill would slow the live pipeline down. Give it a warehouse of its own, or set compute.allow_shared_compute: true."
        )


def _compute(connection: Connection) -> tuple[str, str] | None:
    """Which workspace and which compute of it the connection leads to, however it spells them; None when it does not say."""
    extra = connection.extra_dejson
    host, path = (
        str(one or "").strip().strip("/") for one in (extra.get("host") or connection.host, extra.get("http_path"))
    )
    if connection.conn_type != "databricks" or not host or not path:
        return None
    known = _WAREHOUSE_PATH.match(path)
    return urlsplit(host if "://" in host else f"//{host}").hostname or host, known[1] if known else path


def _duckdb(conn_id: str, connection: Connection, sharers: int) -> dict[str, Any]:
    from airflow.providers.duckdb.hooks.duckdb import DuckDBHook

    hook = DuckDBHook(duckdb_conn_id=conn_id)
    database = hook.get_database()
    if database.startswith((":memory:", "md:", "motherduck:")) or "?" in database:
        # The value may hold a token, so it is not repeated.
        raise SpecError(
            f"compute.conn_id {conn_id!r} opens MotherDuck or an in-memory database; a backfill needs a DuckDB file: give its "
            "path as the connection's host."
        )
    return {
        "path": database,
        "config": hook.get_connect_config(),
        "staging_dir": connection.extra_dejson.get("backfill_staging_dir"),
        "sharers": sharers,
    }


def _postgres(conn_id: str, connection: Connection, sharers: int) -> dict[str, Any]:
    from airflow.providers.postgres.hooks import postgres

    if not postgres.USE_PSYCOPG3:
        raise SpecError(
            f"compute.conn_id {conn_id!r} needs psycopg 3, which is not installed. "
            "Run: pip install 'airflow-backfill-provider[postgres]'"
        )
    hook = postgres.PostgresHook(postgres_conn_id=conn_id)
    hook.ignored_extra_options = {*hook.ignored_extra_options, _STAGING_SCHEMA, "cursor"}
    schema = connection.extra_dejson.get(_STAGING_SCHEMA)
    # The hook knows the ways to log in (IAM, Azure, certificates); the connection it opens is used as it comes.
    return {"connect": hook.get_conn, "sharers": sharers} | ({"staging_schema": schema} if schema else {})


def _delta(conn_id: str, connection: Connection, sharers: int) -> dict[str, Any]:
    if not connection.host:
        raise SpecError(
            f"compute.conn_id {conn_id!r} names no folder of Delta tables: give one as the connection's host, such as "
            "/data/warehouse or s3://bucket/warehouse."
        )
    options = connection.extra_dejson.get("storage_options") or {}
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        # The values may be secrets, so they are not repeated.
        raise SpecError(
            f"compute.conn_id {conn_id!r}: storage_options in its extra must be a mapping from text to text, with the names "
            'that delta-rs uses, such as {"AWS_REGION": "eu-west-1"}.'
        )
    return {"root": connection.host, "storage_options": options, "sharers": sharers}


def _databricks(conn_id: str, connection: Connection, sharers: int) -> dict[str, Any]:
    from airflow.providers.databricks.hooks.databricks_sql import DatabricksSqlHook

    extra = connection.extra_dejson
    if not extra.get("http_path"):
        raise SpecError(
            f"compute.conn_id {conn_id!r} names no SQL warehouse: give its path as http_path in the connection's extra, such "
            "as /sql/1.0/warehouses/0123456789abcdef."
        )
    others = extra.get("session_configuration") or {}

    def connect(settings: Mapping[str, str]) -> Any:
        # The hook knows the ways to log in (OAuth, Azure, AWS); each connection of ours has parameters of its own.
        hook = DatabricksSqlHook(conn_id, session_configuration={**others, **settings})
        hook.extra_parameters = [*hook.extra_parameters, _STAGING_SCHEMA, _STATEMENT_API]
        with _databricks_errors():
            return hook.get_conn()

    schema = extra.get(_STAGING_SCHEMA)
    return {
        "connect": connect,
        "statement_api": None if others else _statement_api(conn_id, extra),
        "sharers": sharers,
    } | ({"staging_schema": schema} if schema else {})


def _statement_api(conn_id: str, extra: Mapping[str, Any]) -> Any:
    """The API of the connection's SQL warehouse; None where it is no SQL warehouse, or where it is not wanted."""
    path = _WAREHOUSE_PATH.match(extra["http_path"])
    wanted = extra.get(_STATEMENT_API, True)
    if not isinstance(wanted, bool):
        raise SpecError(
            f"compute.conn_id {conn_id!r}: {_STATEMENT_API} in its extra is {wanted!r}; it must be true or false."
        )
    if path is None or not wanted:
        return None
    from airflow.providers.databricks.exceptions import DatabricksApiError
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    from airflow_backfill_provider.warehouses.databricks.statements import UNKNOWN, StatementApi

    # Trying a submission again could run the statement twice.
    submitting, looking = DatabricksHook(conn_id, retry_limit=1), DatabricksHook(conn_id)
    request = {"warehouse_id": path[1], "wait_timeout": "0s"} | {
        name: extra[name] for name in ("catalog", "schema") if extra.get(name)
    }

    def submit(sql: str) -> str:
        with _databricks_errors():
            return str(submitting.post_sql_statement(request | {"statement": sql}))

    def look(statement: str) -> tuple[str, str]:
        with _databricks_errors():
            try:
                found = looking.get_sql_statement_state(statement)
            except DatabricksApiError as error:
                if error.http_status_code != HTTPStatus.NOT_FOUND:
                    raise
                return UNKNOWN, ""
            return str(found.state), str(found.error_message)

    def cancel(statement: str) -> None:
        with _databricks_errors():
            looking.cancel_sql_statement(statement)

    return StatementApi(submit, look, cancel)


@contextmanager
def _databricks_errors() -> Iterator[None]:
    """Raise the connector's errors for those of Airflow's hooks, whose login may not be had for the moment."""
    from airflow.providers.databricks.exceptions import DatabricksApiError
    from databricks.sql.exc import RequestError, ServerOperationError

    try:
        yield
    except DatabricksApiError as error:
        raise ServerOperationError(str(error)) from error
    except (AirflowException, OSError) as error:
        raise RequestError(str(error)) from error


_WAREHOUSE_PATH = re.compile(r"\A/?sql/1\.0/(?:warehouses|endpoints)/([^/?]+)\Z")
_STATEMENT_API = "backfill_statement_api"
_STAGING_SCHEMA = "backfill_staging_schema"
_SETTINGS: Mapping[str, Callable[[str, Connection, int], dict[str, Any]]] = {
    "databricks": _databricks,
    "delta": _delta,
    "duckdb": _duckdb,
    "postgres": _postgres,
}


def executor_spanning_hosts() -> str:
    """The name of the executor that tasks go to when they name none, if it may run each on another host; empty otherwise."""
    default = str(conf.get("core", "executor")).partition(",")[0].strip()
    return "" if "LocalExecutor" in default or "SequentialExecutor" in default else default


def most_mapped_tasks() -> int:
    """How many mapped tasks Airflow makes of one list, ``core.max_map_length``.

    :raises SpecError: it allows none, or is no number.
    """
    found = str(conf.get("core", "max_map_length", fallback=MOST_TASKS))
    if not found.isdecimal() or not int(found):
        raise SpecError(
            f"[core] max_map_length is {found!r}, so Airflow would fail every mapped task of the backfill. Set it to 1 or more; "
            f"Airflow's own default is {MOST_TASKS:,}."
        )
    return int(found)


def installation() -> str:
    """The name of this Airflow installation, by which its runs are told from those of another that shares the ledger."""
    return str(conf.get(SECTION, "installation", fallback="")).strip()


def open_ledger(*, may_create: bool = False) -> Ledger:
    """Open the ledger behind the connection ``[safe_backfill] ledger_conn_id``, its schema up to date.

    There is no fallback: a ledger that cannot be found would let two backfills own one range. So would a new, empty one, such as
    a lost SQLite file or another host would get.

    :param may_create: whether a SQLite file that is not there is made.
    :raises LedgerError: no such connection or file, or the database cannot be used.
    """
    conn_id = conf.get(SECTION, "ledger_conn_id", fallback=DEFAULT_LEDGER_CONN_ID)
    connection = _connection(conn_id)
    if connection is None:
        raise LedgerError(
            f"There is no Airflow connection {conn_id!r}, or it cannot be read, so there is no ledger and nothing may run. "
            f"{_ledger_created(conn_id)}"
        )
    url = ledger_url(connection)
    if url.get_backend_name() == "sqlite" and (executor := executor_spanning_hosts()):
        log.warning("The ledger is a SQLite file, but %s may run tasks on other hosts; use PostgreSQL.", executor)
    ledger = Ledger(url)
    if not (may_create or ledger.exists()):
        raise LedgerError(
            f"The ledger {ledger.address} does not exist on this host, {gethostname()}. A new one would not know which backfills hold which "
            "ranges, so nothing may run. Bring the file back; before the very first backfill, `airflow safe-backfill init` makes it. Tasks on "
            "several hosts need a ledger in PostgreSQL."
        )
    ledger.upgrade()
    return ledger


def ledger_url(connection: Connection) -> URL:
    """The SQLAlchemy URL of a ledger connection.

    :raises LedgerError: its type is neither sqlite nor postgres, or the file's path is missing or relative.
    """
    match connection.conn_type:
        case "sqlite":
            path = connection.host or connection.schema or ""
            if not Path(path).is_absolute():
                raise LedgerError(
                    f"The ledger connection {connection.conn_id!r} names the file {path!r}; give an absolute path as host."
                )
            return URL.create("sqlite", database=path)
        case "postgres" | "postgresql":
            return URL.create(
                "postgresql+psycopg",
                username=connection.login,
                password=connection.password,
                host=connection.host,
                port=connection.port,
                database=connection.schema,
                query=_LEDGER_PATIENCE | {name: str(value) for name, value in _told_libpq(connection).items()},
            )
        case other:
            kept = f" {_KEPT_AS_GENERIC}" if other == _GENERIC else ""
            raise LedgerError(
                f"The ledger connection {connection.conn_id!r} has type {other!r}; it must be sqlite or postgres.{kept} Delete it with "
                f"`airflow connections delete {connection.conn_id}`. {_ledger_created(connection.conn_id)}"
            )


def _told_libpq(connection: Connection) -> dict[str, Any]:
    return {name: value for name, value in connection.extra_dejson.items() if name in _LEDGER_OPTIONS}


def _ledger_created(conn_id: str) -> str:
    """The commands that make the ledger's connection; Airflow's own takes the type sqlite only where its provider is installed."""
    return (
        f"`airflow safe-backfill init` creates it, with a SQLite file (--ledger says where). For PostgreSQL: `airflow connections add {conn_id} "
        "--conn-uri postgresql://user:password@host/database`."
    )


def _connection(conn_id: str) -> Connection | None:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    except AirflowException as error:
        raise LedgerError(f"The Airflow connection {conn_id!r} cannot be read: {type(error).__name__}.") from error
