"""Errors of the connector and of Delta become ours here, once, with the engine's message kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from databricks.sql.exc import Error, RequestError
from urllib3.exceptions import HTTPError

from airflow_backfill_provider.errors import ConnectionLost, PublishRefused, SpecError, WarehouseError

_CONFLICT = re.compile(
    r"DELTA_(CONCURRENT_(APPEND|DELETE_READ|DELETE_DELETE|TRANSACTION|WRITE)|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|(Concurrent\w+|MetadataChanged|ProtocolChanged)Exception"
)
_BROKEN = re.compile(r"DELTA_(VIOLATE_CONSTRAINT|NOT_NULL_CONSTRAINT_VIOLATED)|CHECK_CONSTRAINT_VIOLATION")
_ABSENT = re.compile(r"\[(TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND|NO_SUCH_CATALOG_EXCEPTION|CATALOG_NOT_FOUND)")
_FORBIDDEN = re.compile(r"INSUFFICIENT_PERMISSIONS|PERMISSION_DENIED|UNAUTHORIZED_ACCESS")
_ASIDE = re.compile(r"\b(stage|backup)__")
_VEILED = re.compile(r"(ROW_LEVEL_SECURITY|COLUMN_MASKS?)_\w*NOT_SUPPORTED")
_SESSION_ENDED = re.compile(r"Invalid (Session|Operation)Handle|INVALID_HANDLE")
_NAME_MISMATCH = re.compile(r"\[(UNRESOLVED_COLUMN|NUM_COLUMNS_MISMATCH|AMBIGUOUS_REFERENCE)")
_AFTER_THE_MESSAGE = re.compile(r"\n(== SQL|JVM stacktrace|\s*at (org|java|scala)\.|'?(Project|Insert|Overwrite|\+-))")

_VALUES = re.compile(
    r"(?<=violated by row with values:).*|(?<=[Tt]he value )('.*?'|\S+)(?= (of the type|cannot be|is out))|(?<=Text )'.*?'(?= could not)",
    re.DOTALL,
)
"""Where Spark and Delta quote what a row holds."""
_NOT_LET_IN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def is_conflict(error: Exception) -> bool:
    """Whether another commit came between what a statement read and its own commit; nothing of it was written."""
    return _CONFLICT.search(str(error)) is not None


def is_absent(error: Exception) -> bool:
    """Whether a statement named a table, schema or catalog that does not exist."""
    return _ABSENT.search(str(error)) is not None


def is_forbidden(error: Exception) -> bool:
    """Whether a statement needs a right that the login has not. By Databricks' documentation of its error classes; a local
    Spark has no rights to refuse."""
    return _FORBIDDEN.search(str(error)) is not None


def is_about_the_statement(error: Exception) -> bool:
    """Whether an error says something of the statement that ended in it: a connection that was lost does not, nor does a right
    that the login has not, nor a row filter or a column mask of a table."""
    return not (isinstance(error, RequestError) or is_forbidden(error) or _VEILED.search(str(error)))


def is_name_mismatch(error: Exception) -> bool:
    """Whether a statement named a column that a query does not return, or counted on another number of them."""
    return _NAME_MISMATCH.search(str(error)) is not None


def message(error: Exception) -> str:
    """What the engine said, without the plans and frames below it, and without values of rows."""
    text = str(error)
    cut = _AFTER_THE_MESSAGE.search(text)
    return _VALUES.sub(" …", text[: cut.start()] if cut else text).strip()


def _cause(error: Exception) -> Exception | None:
    """The error to raise ours from; None where a traceback would print values of rows."""
    return None if _VALUES.search(str(error)) else error


@contextmanager
def reaching() -> Iterator[None]:
    """Raise the connector's ``RequestError`` also for what it lets by: its HTTP library's errors, of a connection that breaks
    while an answer is read, and the warehouse's own of a session that it has ended."""
    try:
        yield
    except Error as exc:
        if isinstance(exc, RequestError) or not _SESSION_ENDED.search(str(exc)):
            raise
        raise RequestError(str(exc)) from exc
    except (HTTPError, OSError) as exc:
        raise RequestError(str(exc)) from exc


def require_let_in(error: RequestError) -> None:
    """:raises WarehouseError: a connection could not be opened because its login is refused, which no retry mends."""
    if (error.context or {}).get("http-code") in _NOT_LET_IN:
        raise WarehouseError(
            f"Databricks does not let compute.conn_id in: {message(error)} Look at the connection's login, and whether it may "
            "use the SQL warehouse."
        ) from error


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise ours for theirs; ``what`` was being done, as the start of a sentence (``Staging 2024-01-01``).

    :raises PublishRefused: rows break a constraint of the table that they were to land in.
    :raises SpecError: a table has a row filter or a column mask, which what was asked does not go with.
    :raises ConnectionLost: the warehouse was not reached, or a login's time was over; may work later, with a new connection.
    :raises WarehouseError: everything else.
    """
    try:
        yield
    except RequestError as exc:
        raise ConnectionLost(f"{what} lost the connection to Databricks: {message(exc)} Try again.") from exc
    except Error as exc:
        if _BROKEN.search(str(exc)):
            raise PublishRefused(
                f"{what} failed: rows break a constraint of the table; nothing was written: {message(exc)}"
            ) from _cause(exc)
        if _VEILED.search(str(exc)):
            raise SpecError(
                f"{what} failed: a table has a row filter or a column mask, with which Databricks refuses time travel and the "
                f"table's history. Nothing was written. {message(exc)} Take them off the table, or read it through a view, which "
                "has no version and is read as it is."
            ) from _cause(exc)
        gone = " It was dropped: stage again." if is_absent(exc) and _ASIDE.search(str(exc)) else ""
        raise WarehouseError(f"{what} failed: {message(exc)}{gone}") from _cause(exc)
