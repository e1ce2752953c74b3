"""Runs a call in a process of its own that may be killed: for tests of what is left behind.

Processes are forked from a server that has imported everything and has never opened a database, so that a kill costs no
Python start (0.1 s instead of 2), and so that no thread of an engine is forked.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from typing import Any

import pytest

_FORKS = get_context("forkserver")
_ADAPTERS = [f"airflow_backfill_provider.warehouses.{name}" for name in ("databricks", "delta", "duckdb", "postgres")]
_FORKS.set_forkserver_preload(["contract_faults", "killed_step", *_ADAPTERS])  # what is not installed is left out


@cache
def _start_server() -> None:
    """Start it with this process's import path, which it only takes over after having preloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        ensure_running()


def forks() -> Any:
    """The multiprocessing context of such processes, with its server running."""
    _start_server()
    return _FORKS


def survives(
    call: Callable[..., Any], arguments: Sequence[Any], started: Callable[[int], None] = lambda _: None
) -> bool:
    """Run the call elsewhere; False when it was killed. All of it must be picklable.

    :param started: is told the process's number as soon as it has one.
    :raises AssertionError: it ended in any other way.
    """
    process = forks().Process(target=call, args=tuple(arguments))
    process.start()
    started(process.pid or 0)
    process.join(600)
    assert process.exitcode in (0, -signal.SIGKILL), (
        f"{call.__name__} broke instead of being killed: {process.exitcode}"
    )
    return process.exitcode == 0


def die() -> None:
    """End this process as a host that loses its power would."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Lets so many steps pass, and acts on the next one, once."""

    def __init__(self, passing: int, act: Callable[[], None] = die) -> None:
        self._left = passing
        self._act = act

    def step(self) -> None:
        """One step is about to happen."""
        self._left -= 1
        if self._left == -1:
            self._act()
