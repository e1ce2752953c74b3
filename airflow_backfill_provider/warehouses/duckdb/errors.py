"""DuckDB's errors become ours here, once, with the engine's message kept, but for the values of rows in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from airflow_backfill_provider.errors import LockTimeout, WarehouseError

_HELD_BY_ANOTHER = ("Could not set lock on file", "Conflicting lock is held")
_OPEN_IN_THIS_PROCESS = "Unique file handle conflict"
_NONE_OPEN = "no transaction is active"
_UNWRITABLE = "Could not write file"
"""Of a commit that a full disk ended, which DuckDB reports as it reports a conflict."""
_QUOTES_ROWS = re.compile(
    r"(?P<kind>Constraint|Conversion|Out of Range|Invalid Input|TransactionContext) Error: (?P<said>.*)", re.DOTALL
)
_LINE = re.compile(
    r"(?<=Original Line: )(?:.*(?=\n(?:Error when converting column|Expected Number of Columns))|.*)", re.DOTALL
)
"""A line of a file of values, which stands in its error whole."""
_KEY = re.compile(r'key "(?P<column>[^":]+): .*"', re.DOTALL)
_VALUES = {
    "Conversion": re.compile(r"""['"].*['"]|(?<=value )\S+""", re.DOTALL),
    "Out of Range": re.compile(r"""['"].*['"]|(?<=\().+(?=\))""", re.DOTALL),
    "Invalid Input": re.compile(r"""['"].*""", re.DOTALL),
    "TransactionContext": re.compile(r"""(?<=duplicate key )".*\"""", re.DOTALL),
}
_OF_NO_ROW = re.compile(r"reading the stream registered as '\w+' failed: IOError: |Cannot execute statement of type ")
"""How errors begin that quote the name of a file or database, and no row."""
_EXCERPT = "\n\nLINE "
"""Before a piece of the SQL that an error is about."""


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
        raise LockTimeout(
            f"{what} met another transaction on the same table and was undone: {without_values(str(exc))} Try again."
        ) from cause(exc)
    except duckdb.InterruptException as exc:
        raise WarehouseError(f"{what} was cancelled; nothing of it was kept.") from exc
    except duckdb.OutOfMemoryException as exc:
        raise WarehouseError(
            f"{what} ran out of memory: {exc} Raise memory_limit, lower threads, or free disk for spilling."
        ) from exc
    except duckdb.Error as exc:
        if held_by_another_process(exc):
            raise LockTimeout(f"{what} needs the DuckDB file, which another process has open: {exc}") from exc
        raise WarehouseError(f"{what} failed: {without_values(str(exc))}") from cause(exc)


def without_values(message: str) -> str:
    """The message of an error, DuckDB's or one around it, without the values of rows that it quotes.

    The first column of a broken key stays, and so does the SQL; what ``error()`` said is its author's text.
    """
    return _QUOTES_ROWS.sub(lambda found: f"{found['kind']} Error: {_masked(found['kind'], found['said'])}", message)


def cause(error: Exception) -> Exception | None:
    """The error to raise ours from; None where a traceback would print values of rows."""
    return error if without_values(str(error)) == str(error) else None


def _masked(kind: str, said: str) -> str:
    if kind == "Constraint":
        return _KEY.sub(r'key "\g<column>: …"', said)
    if _OF_NO_ROW.match(said):
        return said
    said = _LINE.sub("…", said)
    message, excerpt, sql = said.rpartition(_EXCERPT) if _EXCERPT in said else (said, "", "")
    return _VALUES[kind].sub("…", message) + excerpt + sql
