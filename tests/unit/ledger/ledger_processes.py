"""Real processes on one ledger: some begin at one moment, some are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any

from sqlalchemy import Engine, event

from airflow_backfill_provider.ledger.store import Ledger

_PROCESSES = get_context("fork")


def run_together(ledger_url: str, bodies: Sequence[Callable[[Ledger], Any]]) -> list[Any]:
    """Run each body in a process of its own, all beginning at one moment; what each returned."""
    begin = _PROCESSES.Barrier(len(bodies))
    pipes = [_PROCESSES.Pipe(duplex=False) for _ in bodies]

    def run(body: Callable[[Ledger], Any], answer: Any) -> None:
        with Ledger(ledger_url) as ledger:
            begin.wait(30)
            answer.send(body(ledger))

    processes = [
        _PROCESSES.Process(target=run, args=(body, answer)) for body, (_, answer) in zip(bodies, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(bodies)
    return [receive.recv() for receive, _ in pipes]


def kill_after_every_statement(ledger_url: str, body: Callable[[Ledger], Any]) -> Iterator[int]:
    """Run the body in a process that is killed after its first statement, then after its second, …

    Yields after each kill, and ends when the process lives. The last kill comes between the last statement and COMMIT.
    """

    def run(statements: int) -> None:
        done = 0

        def count(*_: object) -> None:
            nonlocal done
            done += 1
            if done == statements:
                os.kill(os.getpid(), signal.SIGKILL)

        with Ledger(ledger_url) as ledger:
            ledger.find_backfill("")
            event.listen(Engine, "after_cursor_execute", count)
            event.listen(Engine, "commit", count)
            body(ledger)

    for statements in range(1, 100):
        process = _PROCESSES.Process(target=run, args=(statements,))
        process.start()
        process.join(60)
        if process.exitcode != -signal.SIGKILL:
            assert process.exitcode == 0
            return
        yield statements
