"""The errors of DuckDB, delta-rs and Arrow become ours here, once, with the engine's message kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow
from deltalake.exceptions import DeltaError, TableNotFoundError

from airflow_backfill_provider.errors import PublishRefused, WarehouseError
from airflow_backfill_provider.warehouses.duckdb import errors as of_duckdb

_INTERRUPTED = "INTERRUPT Error"
_BROKEN_CONSTRAINT = "rows failed validation check"
_PREVIEW = re.compile(r"\s*Preview of invalid data:.*", re.DOTALL)
_VALUE = re.compile(
    r"(?P<of>cast string |parse string: |cast value |(Integer|Float|Decimal) value )('.*'|\S+)(?= (to|as|not|was) )",
    re.DOTALL,
)
"""How delta-rs and Arrow quote a value that does not fit a type."""


def interrupted(error: DeltaError) -> bool:
    """Whether a write failed because the statement that gave its rows was ended."""
    return _INTERRUPTED in str(error)


def message(error: BaseException) -> str:
    """The message without the frames of a library that has no names for them, and without values of rows."""
    lines = [line for line in str(error).splitlines() if "<unknown>" not in line]
    return _without_values("\n".join(lines).strip())


def _without_values(text: str) -> str:
    return of_duckdb.without_values(_VALUE.sub(r"\g<of>…", _PREVIEW.sub("", text)))


def _cause(error: Exception) -> Exception | None:
    """The error to raise ours from; None where a traceback would print values of rows."""
    return error if _without_values(str(error)) == str(error) else None


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
            ) from _cause(exc)
        raise WarehouseError(f"{what} failed: {message(exc)}") from _cause(exc)
    except (TableNotFoundError, pyarrow.ArrowException, OSError) as exc:
        raise WarehouseError(f"{what} failed: {message(exc)}") from _cause(exc)
    except Exception as exc:
        if type(exc) is not Exception:  # as which delta-rs raises what Arrow says of a cast
            raise
        raise WarehouseError(f"{what} failed: {message(exc)}") from _cause(exc)
