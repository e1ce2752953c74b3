"""Statements that the SQL warehouse works on by itself: submitted, looked at and cancelled by their ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

from databricks.sql.exc import Error, ServerOperationError

from airflow_backfill_provider.errors import WarehouseError

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.1, 5.0
_ENDED_WELL = frozenset({"SUCCEEDED", "CLOSED"})
_RUNNING = frozenset({"PENDING", "RUNNING"})
UNKNOWN = "UNKNOWN"
"""The state of a statement that the workspace knows nothing of, or no more."""


@dataclass(frozen=True)
class StatementApi:
    """The SQL Statement Execution API of one SQL warehouse.

    Each call raises the connector's ``RequestError`` when the workspace is not reached, and ``ServerOperationError`` when
    it refuses.
    """

    submit: Callable[[str], str]
    """Begins a statement, once; its id."""
    look: Callable[[str], tuple[str, str]]
    """The state of the statement of an id, as the API names it or :data:`UNKNOWN`, and its error."""
    cancel: Callable[[str], None]
    """Ends the statement of an id; silent when it is over."""


class Statements:
    """Runs statements to their end by that API, one after the other; any thread may :meth:`cancel` the one that runs."""

    def __init__(self, api: StatementApi, timeout: timedelta | None) -> None:
        """:param timeout: how long a statement may take; it is cancelled then."""
        self._api = api
        self._timeout = timeout
        self._is_cancelled = Event()

    def run(self, sql: str, tell: Callable[[str], None]) -> None:
        """Run it; its id is told as soon as it has one. See :meth:`wait`."""
        if self._is_cancelled.is_set():
            raise _cancelled()
        statement = self._api.submit(sql)
        try:
            tell(statement)
        except BaseException:
            self._end(statement)
            raise
        self.wait(statement)

    def wait(self, statement: str) -> None:
        """Wait until it ended well.

        :raises ServerOperationError: it failed, somebody else cancelled it, or nobody knows how it ended.
        :raises WarehouseError: it took too long, or was cancelled here.
        """
        deadline = None if self._timeout is None else time.monotonic() + self._timeout.total_seconds()
        pause = _FIRST_PAUSE_SECONDS
        while (found := self._api.look(statement))[0] in _RUNNING:
            if deadline is not None and time.monotonic() > deadline:
                self._end(statement)
                raise WarehouseError(
                    f"The statement {statement} took longer than compute.statement_timeout, {self._timeout}, and was cancelled. "
                    "Nothing of it is kept. Raise the timeout, or recompute less at once."
                )
            if self._is_cancelled.wait(pause):
                self._end(statement)
                raise _cancelled()
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        state, error = found
        if state not in _ENDED_WELL:
            raise ServerOperationError(error or f"The statement {statement} ended as {state}.")

    def cancel(self) -> None:
        """End the statement that runs, and let none begin."""
        self._is_cancelled.set()

    def _end(self, statement: str) -> None:
        """Cancel it while another error is on its way, which is the one that matters."""
        with suppress(Error):
            self._api.cancel(statement)


def _cancelled() -> WarehouseError:
    return WarehouseError("The statement was cancelled; nothing of it was kept.")
