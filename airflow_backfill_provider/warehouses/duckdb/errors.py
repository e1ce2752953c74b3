"""DuckDB's errors become ours here, once, with the engine's message kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from airflow_backfill_provider.errors import LockTimeout, WarehouseError

_HELD_BY_ANOTHER = ("Could not set lock on file", "Conflicting lock is held")
_OPEN_IN_THIS_PROCESS = "Unique file handle conflict"
_NONE_OPEN = "no transaction is active"
_UNWRITABLE = "Could not write file"
"""Of a commit that a full disk ended, which DuckDB reports as it reports a conflict."""


def held_by_another_process(error: duckdb.Error) -> bool:
    """Whether the file could not be opened only because another process has it open."""
    return isinstance(error, duckdb.IOException) and any(words in str(error) for words in _HELD_BY_ANOTHER)


def open_in_this_process(error: duckdb.Error) -> bool:
    """Whether the file could not be opened because another DuckDB instance of this process has it open."""
    return _OPEN_IN_THIS_PROCESS in str(error)


def no_transaction(error: duckdb.TransactionException) -> bool:
    """Whether a COMMIT failed only because there was nothing to commit."""
    return _NONE_OPEN in str(error)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise ours for DuckDB's; ``what`` was being done, as the start of a sentence (``Staging 2024-01-01``).

    :raises LockTimeout: another process has the file, or another transaction the same rows; may work later.
    :raises WarehouseError: everything else.
    """
    try:
        yield
    except duckdb.TransactionException as exc:
        if _UNWRITABLE in str(exc):
            raise WarehouseError(
                f"{what} could not be written; nothing of it was kept: {exc} Free disk space first."
            ) from exc
        raise LockTimeout(f"{what} met another transaction on the same table and was undone: {exc} Try again.") from exc
    except duckdb.InterruptException as exc:
        raise WarehouseError(f"{what} was cancelled; nothing of it was kept.") from exc
    except duckdb.OutOfMemoryException as exc:
        raise WarehouseError(
            f"{what} ran out of memory: {exc} Raise memory_limit, lower threads, or free disk for spilling."
        ) from exc
    except duckdb.Error as exc:
        if held_by_another_process(exc):
            raise LockTimeout(f"{what} needs the DuckDB file, which another process has open: {exc}") from exc
        raise WarehouseError(f"{what} failed: {exc}") from exc
