"""Processes of ours, told from later ones that got their ids, and ended with all that they started."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Started:
    """A process that was started as the leader of a session: the creation time tells it from a later one with its id."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> Started:
        """The process that has the id now."""
        return cls(pid, psutil.Process(pid).create_time())

    def entry(self) -> dict[str, float]:
        """What a record of it holds, which ``Started(**entry)`` reads."""
        return {"pid": self.pid, "created": self.created}

    def leader(self) -> psutil.Process | None:
        """The live process, or None when it is gone (a zombie counts as gone)."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < 1
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def session(self) -> list[psutil.Process]:
        """Every live process of the session it leads or led: those it starts may make process groups of their own."""
        members = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
            except (OSError, psutil.NoSuchProcess):
                continue
        reused = self.leader() is None and any(process.pid == self.pid for process in members)
        return [] if reused else members

    def kill(self, patience: float) -> None:
        """End its session with SIGKILL and wait until it is gone, that many seconds at most; silent when it is."""
        members = self.session()
        for member in members:
            send(member, signal.SIGKILL)
        deadline = time.monotonic() + patience
        while any(is_alive(member) for member in members) and time.monotonic() < deadline:
            time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Whether it has not ended (a zombie has)."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def send(process: psutil.Process, number: signal.Signals) -> None:
    """Send it a signal; silent when it is gone."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
