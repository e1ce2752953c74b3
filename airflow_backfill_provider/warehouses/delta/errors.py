"""The errors of DuckDB, delta-rs and Arrow become ours here, once, with the engine's message kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow
from deltalake.exceptions import DeltaError, TableNotFoundError

from airflow_backfill_provider.errors import PublishRefused, WarehouseError
from airflow_backfill_provider.warehouses.duckdb import errors as of_duckdb

_INTERRUPTED = "INTERRUPT Error"
_BROKEN_CONSTRAINT = "rows failed validation check"


def interrupted(error: DeltaError) -> bool:
    """Whether a write failed because the statement that gave its rows was ended."""
    return _INTERRUPTED in str(error)


def message(error: BaseException) -> str:
    """The message without the frames of a library that has no names for them, and without values of rows."""
    lines = [line for line in str(error).splitlines() if "<unknown>" not in line]
    return of_duckdb.without_values("\n".join(lines).strip())


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise ours for theirs; ``what`` was being done, as the start of a sentence (``Staging 2024-01-01``).

    :raises PublishRefused: rows break a constraint of the table that they were to land in.
    :raises WarehouseError: everything else.
    """
    try:
        with of_duckdb.translated(what):
            yield
    except DeltaError as exc:
        if _BROKEN_CONSTRAINT in str(exc):
            raise PublishRefused(
                f"{what} failed: rows break a constraint of the table, or are outside the range; nothing was written: "
                f"{message(exc)}"
            ) from of_duckdb.cause(exc)
        raise WarehouseError(f"{what} failed: {message(exc)}") from of_duckdb.cause(exc)
    except (TableNotFoundError, pyarrow.ArrowException, OSError) as exc:
        raise WarehouseError(f"{what} failed: {message(exc)}") from exc
