"""PostgreSQL's errors become ours here, once, with the engine's message kept."""

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
        raise LockTimeout(f"{what} met another transaction and was undone: {_text(exc)} Try again.") from exc
    except errors.QueryCanceled as exc:
        if "statement timeout" in str(exc):
            raise WarehouseError(
                f"{what}: a statement ran longer than statement_timeout and was ended; nothing of it was kept. Raise "
                "compute.statement_timeout, or make the transform cheaper."
            ) from exc
        raise WarehouseError(f"{what} was cancelled; nothing of it was kept.") from exc
    except errors.InsufficientPrivilege as exc:
        raise WarehouseError(
            f"{what} is not allowed: {_text(exc)} Grant the right to the role of the connection."
        ) from exc
    except _GONE as exc:
        raise ConnectionLost(f"{what} lost the server: {_text(exc)}") from exc
    except psycopg.OperationalError as exc:
        if exc.sqlstate is None and _REFUSED.search(str(exc)):
            raise WarehouseError(
                f"{what}: the server answers and does not let us in, so trying again is of no use. {_text(exc)} Correct user, "
                "password or database in the Airflow connection, or the server's pg_hba.conf."
            ) from exc
        # Errors that the server itself reports have a code; without one, there was nobody to report.
        if exc.sqlstate is None or exc.sqlstate.startswith("08"):
            raise ConnectionLost(f"{what} lost the connection: {_text(exc)}") from exc
        raise WarehouseError(f"{what} failed: {_text(exc)}") from exc
    except psycopg.Error as exc:
        raise WarehouseError(f"{what} failed: {_text(exc)}") from exc


def _text(error: psycopg.Error) -> str:
    """The engine's message on one line, with its detail and hint."""
    diag = error.diag
    parts = [diag.message_primary or str(error), diag.message_detail, diag.message_hint]
    return " ".join(" ".join(part.split()).rstrip(".") + "." for part in parts if part)
