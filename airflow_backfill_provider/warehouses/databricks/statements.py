"""Statements that the SQL warehouse works on by itself: submitted, looked at and cancelled by their ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

from databricks.sql.exc import Error, ServerOperationError

from airflow_backfill_provider.errors import ConnectionLost, WarehouseError
from airflow_backfill_provider.warehouses.databricks.errors import message

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.1, 5.0
_END_SECONDS = 30.0
"""How long a cancelled statement is waited for."""
_PATIENCE_SECONDS = 300.0
"""How long looks at a statement may go unanswered, one after the other: it goes on meanwhile."""
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
        self._open: set[str] = set()

    @property
    def goes_on(self) -> bool:
        """Whether a statement that was told is not known to be over."""
        return bool(self._open)

    def run(self, sql: str, tell: Callable[[str], None]) -> None:
        """Run it until it ended well; its id is told as soon as it has one.

        :raises ServerOperationError: it failed, or somebody else cancelled it.
        :raises WarehouseError: it took too long, or was cancelled here.
        :raises ConnectionLost: it may still run; nothing else may be written where it writes.
        """
        if self._is_cancelled.is_set():
            raise _cancelled()
        statement = self._api.submit(sql)
        self._open.add(statement)
        try:
            tell(statement)
        except Exception as untold:
            if self._end(statement) == UNKNOWN:
                raise _lost(statement, str(untold)) from untold
            raise
        except BaseException:
            self._end(statement)
            raise
        state, error = self._last_state(statement)
        if state == UNKNOWN:
            raise _lost(statement, error)
        if state not in _ENDED_WELL:
            raise ServerOperationError(error or f"The statement {statement} ended as {state}.")

    def ended_well(self, statement: str) -> bool:
        """Wait until it is over; whether it is known to have ended well.

        :raises WarehouseError: it took too long, or was cancelled here.
        :raises ConnectionLost: the same, and it may still run.
        """
        self._open.add(statement)
        return self._last_state(statement)[0] in _ENDED_WELL

    def _last_state(self, statement: str) -> tuple[str, str]:
        """The state in which it is over, or :data:`UNKNOWN`, and its error."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout.total_seconds()
        pause = _FIRST_PAUSE_SECONDS
        while (found := self._answered(statement, pause))[0] in _RUNNING:
            is_late = deadline is not None and time.monotonic() > deadline
            if is_late or self._is_cancelled.wait(pause):
                state = self._end(statement)
                if state == UNKNOWN:
                    raise _lost(statement, "it was cancelled, and has not come to its end yet.")
                if not is_late:
                    raise _cancelled()
                if state in _ENDED_WELL:
                    return state, ""
                raise WarehouseError(
                    f"The statement {statement} took longer than compute.statement_timeout, {self._timeout}, and was cancelled. "
                    "Nothing of it is kept. Raise the timeout, or recompute less at once."
                )
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        return found

    def _answered(self, statement: str, pause: float) -> tuple[str, str]:
        """What a look finds, tried again while it is not answered or is refused; :data:`UNKNOWN` when that goes on too long.

        A statement that is cancelled meanwhile counts as one that runs.
        """
        given_up = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._look(statement)
            except Error as failed:
                if time.monotonic() > given_up:
                    return (
                        UNKNOWN,
                        f"it could not be looked at for {_PATIENCE_SECONDS / 60:g} minutes: {message(failed)}",
                    )
            if self._is_cancelled.wait(pause):
                return "RUNNING", ""
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    def _look(self, statement: str) -> tuple[str, str]:
        state, error = self._api.look(statement)
        if state != UNKNOWN and state not in _RUNNING:
            self._open.discard(statement)
        return state, error

    def cancel(self) -> None:
        """End the statement that runs, and let none begin."""
        self._is_cancelled.set()

    def _end(self, statement: str) -> str:
        """Cancel it, which the workspace does in its own time; the state in which it is over, or :data:`UNKNOWN`."""
        with suppress(Error):
            self._api.cancel(statement)
        deadline = time.monotonic() + _END_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while time.monotonic() < deadline:
            with suppress(Error):
                state, _ = self._look(statement)
                if state not in _RUNNING:
                    return state
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        return UNKNOWN


def _lost(statement: str, why: str) -> ConnectionLost:
    return ConnectionLost(
        f"Whether the statement {statement} is over is not known: {why or 'the workspace knows nothing of it.'} It may still write "
        "into its stage, so nothing else was written there. Try again: the next attempt takes it over, or has a stage of its own."
    )


def _cancelled() -> WarehouseError:
    return WarehouseError("The statement was cancelled; nothing of it was kept.")
