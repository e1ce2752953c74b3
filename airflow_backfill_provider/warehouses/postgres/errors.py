"""PostgreSQL's errors become ours here, once, with the engine's message kept, but for the values of rows in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from airflow_backfill_provider.errors import ConnectionLost, LockTimeout, WarehouseError

_MET_ANOTHER = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)
_GONE = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleInTransactionSessionTimeout)
# Of a connection that was not made, libpq gives no code. Where the server speaks another language, it counts as lost.
_REFUSED = re.compile(
    r"FATAL:  (.+ authentication failed for user|no pg_hba.conf entry for|pg_hba.conf rejects connection for"
    r'|permission denied for database|(database|role) ".*" (does not exist|is not permitted to log in))'
    r"|no password supplied"
)

_QUOTES_ROWS = ("22", "23", "44", "P0")
"""The classes of errors that are about values, and so may quote them: what cannot be read, what breaks a constraint or the
condition of a view, what a function raised."""
_BROKEN_KEYS = (errors.UniqueViolation, errors.ForeignKeyViolation, errors.ExclusionViolation)
_KEY = re.compile(r"\((.+?)\)=\(")
"""In the detail of a broken key: its columns, before their values."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise ours for PostgreSQL's; ``what`` was being done, as the start of a sentence (``Staging 2024-01-01``).

    :raises LockTimeout: another transaction has what is needed; may work later.
    :raises ConnectionLost: the server or the network is gone; nothing that was not committed was kept.
    :raises WarehouseError: everything else.
    """
    try:
        yield
    except _MET_ANOTHER as exc:
        raise LockTimeout(f"{what} met another transaction and was undone: {told(exc)} Try again.") from exc
    except errors.QueryCanceled as exc:
        if "statement timeout" in str(exc):
            raise WarehouseError(
                f"{what}: a statement ran longer than statement_timeout and was ended; nothing of it was kept. Raise "
                "compute.statement_timeout, or make the transform cheaper."
            ) from exc
        raise WarehouseError(f"{what} was cancelled; nothing of it was kept.") from exc
    except errors.InsufficientPrivilege as exc:
        raise WarehouseError(
            f"{what} is not allowed: {told(exc)} Grant the right to the role of the connection."
        ) from exc
    except _GONE as exc:
        raise ConnectionLost(f"{what} lost the server: {told(exc)}") from exc
    except psycopg.OperationalError as exc:
        if exc.sqlstate is None and _REFUSED.search(str(exc)):
            raise WarehouseError(
                f"{what}: the server answers and does not let us in, so trying again is of no use. {told(exc)} Correct user, "
                "password or database in the Airflow connection, or the server's pg_hba.conf."
            ) from exc
        # Errors that the server itself reports have a code; without one, there was nobody to report.
        if exc.sqlstate is None or exc.sqlstate.startswith("08"):
            raise ConnectionLost(f"{what} lost the connection: {told(exc)}") from exc
        raise WarehouseError(f"{what} failed: {told(exc)}") from exc
    except psycopg.Error as exc:
        raise WarehouseError(f"{what} failed: {told(exc)}") from cause(exc)


def told(error: psycopg.Error) -> str:
    """The engine's message on one line, with its detail and hint; of an error that may quote rows, without their values.

    Which constraint and which columns it was stays in it. What a function of the team's own raised is its author's text.
    """
    diag = error.diag
    parts = [diag.message_primary or str(error), diag.message_detail, diag.message_hint]
    if _may_quote_rows(error):
        # How large a number may be is not a value of any row.
        limit = diag.message_detail if isinstance(error, errors.NumericValueOutOfRange) else None
        parts = [_masked(error), _columns(error), limit, diag.message_hint]
        if cause(error) is None:
            parts.append("The values are left out here; the server's own log has them")
    return " ".join(" ".join(part.split()).rstrip(".") + "." for part in parts if part)


def cause(error: psycopg.Error) -> psycopg.Error | None:
    """The error to raise ours from; None where a traceback would print values of rows."""
    quotes = _may_quote_rows(error) and " ".join(str(error).split()) != " ".join(_masked(error).split())
    return None if quotes else error


def _may_quote_rows(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(_QUOTES_ROWS)


def _masked(error: psycopg.Error) -> str:
    """The message; of a value that cannot be read, whatever it quotes is left out."""
    message = error.diag.message_primary or str(error)
    return re.sub(r'".*"', '"…"', message, flags=re.DOTALL) if (error.sqlstate or "").startswith("22") else message


def _columns(error: psycopg.Error) -> str:
    key = _KEY.search(error.diag.message_detail or "") if isinstance(error, _BROKEN_KEYS) else None
    return f"The columns are {key[1]}" if key else ""
