"""Who may have the warehouse file open, among our own processes on one host.

DuckDB lets many processes read a file or one process write it, and nobody queues: whoever asks at a lucky moment
gets in. Left alone, a few readers in a loop keep a writer out for ever. So our readers hold the file for short
times, step back for a writer of ours that waits, and from time to time all leave it free for a moment, because a
writer that is not ours only retries.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from airflow_backfill_provider.errors import LockTimeout

BUSY_FOR = timedelta(seconds=2)
"""How long our readers together may keep the file in use before they leave a gap."""
GAP = timedelta(milliseconds=100)
"""How long nobody of ours holds the file then: a writer that retries every 50 ms gets two chances."""

_POLL_SECONDS = 0.005

# POSIX file locks belong to the process: when two DuckDB instances of one process hold a file and one lets go, the
# lock of both is gone and another process can write under the other's feet. So one at a time within a process.
_IN_PROCESS: dict[tuple[int, str], threading.Lock] = {}


class Gate:
    """An advisory lock on ``warehouse``, kept in ``folder``, for many readers or one writer; prefers the writer.

    A process that is killed lets go of it. ``pause`` sleeps, and may raise to end the waiting.
    """

    def __init__(self, warehouse: Path, folder: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._warehouse = str(warehouse.resolve())
        self._folder = folder
        self._pause = pause

    @contextmanager
    def shared(self, timeout: timedelta) -> Iterator[None]:
        """Hold the gate as one of many readers, after any writer that waits already.

        :raises LockTimeout: a writer of ours held it, or waited for it, all that time.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        with self._alone_in_process(deadline), ExitStack() as held:
            self._leave_gap(deadline)
            while True:
                with ExitStack() as turn:
                    turn.enter_context(self._locked("turn", fcntl.LOCK_SH, deadline))
                    if self._entered(held, "gate", fcntl.LOCK_SH):
                        break
                self._wait(deadline)
            try:
                yield
            finally:
                self._touch("left")

    @contextmanager
    def exclusive(self, timeout: timedelta) -> Iterator[None]:
        """Hold the gate alone; readers that come later wait.

        :raises LockTimeout: readers, or another writer of ours, held it all that time.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        with self._alone_in_process(deadline), self._alone(deadline):
            yield

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        with self._locked("turn", fcntl.LOCK_EX, deadline), self._locked("gate", fcntl.LOCK_EX, deadline):
            yield

    def _leave_gap(self, deadline: float) -> None:
        """Give everybody else a moment, when our readers have had the file in use for long enough."""
        if self._age("gap") < BUSY_FOR.total_seconds():
            return
        with ExitStack() as stack:
            if self._age("left") >= GAP.total_seconds() and self._entered(stack, "gate", fcntl.LOCK_EX):
                self._touch("gap")
                return
        with self._alone(deadline):
            if self._age("gap") >= BUSY_FOR.total_seconds():
                self._pause(GAP.total_seconds())
                self._touch("gap")

    @contextmanager
    def _locked(self, name: str, kind: int, deadline: float) -> Iterator[None]:
        with ExitStack() as stack:
            while not self._entered(stack, name, kind):
                self._wait(deadline)
            yield

    def _entered(self, stack: ExitStack, name: str, kind: int) -> bool:
        """Take the lock now or not at all; the stack lets go of it."""
        descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        stack.callback(os.close, descriptor)
        return True

    @contextmanager
    def _alone_in_process(self, deadline: float) -> Iterator[None]:
        lock = _IN_PROCESS.setdefault((os.getpid(), self._warehouse), threading.Lock())
        while not lock.acquire(blocking=False):
            self._wait(deadline)
        try:
            yield
        finally:
            lock.release()

    def _wait(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise LockTimeout(
                f"The warehouse was in use by other backfill tasks for too long (see {self._folder.name}/gate). "
                "Nothing was written. Try again, or raise publish.lock_timeout."
            )
        self._pause(_POLL_SECONDS)

    def _age(self, name: str) -> float:
        """Seconds since the mark was touched; for ever when it never was, or when the clock was set back."""
        try:
            age = time.time() - (self._folder / name).stat().st_mtime
        except FileNotFoundError:
            return float("inf")
        return age if age > -1 else float("inf")

    def _touch(self, name: str) -> None:
        (self._folder / name).touch(mode=0o600)
