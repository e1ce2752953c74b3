"""What ends a step before its time: a fault at a point, which is a statement of the warehouse or a write of the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from contract_faults import Broken, Fault, Rig
from killed_step import READS, Place
from killing import die
from lives import take

from airflow_backfill_provider.errors import BackfillError, LedgerError
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps import stage

KILL = Fault("SIGKILL", lambda *_: die(), ())
KILL_AFTER = Fault("SIGKILL after it", lambda *_: die(), (), answered=False)


def _lose_the_ledger(*_: Any) -> None:
    raise LedgerError("The connection to the ledger was lost.")


LEDGER_FAULTS = (
    Fault("ledger lost", _lose_the_ledger, (LedgerError,)),
    Fault("ledger's answer lost", _lose_the_ledger, (LedgerError,), answered=False),
)


@dataclass(frozen=True)
class Point:
    """Where a step can be struck."""

    ledger: bool
    text: str
    """The statement, or what is written to the ledger."""

    @property
    def writes(self) -> bool:
        """Whether something may have changed once it is passed."""
        return self.ledger or not self.text.lstrip().startswith(READS)

    def faults(self, rig: Rig) -> dict[str, Fault]:
        """What can happen there, by name."""
        return {fault.name: fault for fault in (KILL, KILL_AFTER, *(LEDGER_FAULTS if self.ledger else rig.faults))}

    def __str__(self) -> str:
        return f"the ledger's {self.text}" if self.ledger else repr(" ".join(self.text.split())[:70])


@dataclass(frozen=True)
class Strike:
    """A fault at the point of a number, counted through one step of a life."""

    step: str
    number: int
    point: Point
    fault: str
    """Its name, by which another process finds it."""

    def __str__(self) -> str:
        return f"{self.fault} at {self.point} (point {self.number} of {self.step})"


Passing = Callable[[Point, Any, Callable[[], Any]], Any]
"""Is told of a point, of what runs the statement, and how; it must run it and return what that returns."""


@contextmanager
def told(rig: Rig, passing: Passing) -> Iterator[None]:
    """Tell of each point that this thread passes inside, on either database."""
    write = Ledger._write

    def writing(ledger: Ledger) -> AbstractContextManager[Any]:
        what = sys._getframe(1).f_code.co_name
        return _around(what, lambda: write(ledger))

    @contextmanager
    def _around(what: str, begin: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        # The transaction is open in between, so that its end is a point of its own.
        with ExitStack() as transaction:
            yield transaction.enter_context(begin())
            passing(Point(True, what), None, transaction.close)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "_write", writing)
        patch.setattr(stage, "_GROUP_SECONDS", 1e9)  # a seed's points must not depend on the machine's pace
        with rig.steps(lambda text, runner, run: passing(Point(False, text), runner, run)):
            yield


def points_of(place: Place, step: str) -> list[Point]:
    """Take the step undisturbed, and say what it passes."""
    points: list[Point] = []

    def noting(point: Point, _: Any, run: Callable[[], Any]) -> Any:
        points.append(point)
        return run()

    world = place.open()
    with told(place.rig, noting):
        take(world, step)
    world.warehouse.close()
    world.ledger.close()
    return points


def struck(place: Place, step: str, strike: Strike, attempt: int, said: Path) -> None:
    """Take the step and let the strike strike it, in a process of its own; ``said`` gets what it met.

    Nothing is said when the step ends before that point. Any error but those the step may raise ends the process badly.
    """
    world = place.open()
    world.clears = attempt * 100
    left = iter(range(strike.number))
    happened: list[Fault] = []

    def passing(point: Point, runner: Any, run: Callable[[], Any]) -> Any:
        if happened or next(left, None) is not None:
            return run()
        # Another way through the step may come by another point: what cannot happen there is a kill then.
        fault = point.faults(place.rig).get(strike.fault, KILL)
        happened.append(fault)
        said.write_text(f"{fault.name} at {point}")
        if fault.answered:
            fault.strike(world.warehouse, runner)
        result = run()
        if not fault.answered:
            fault.strike(world.warehouse, runner)
        return result

    error: Exception | None = None
    try:
        with told(place.rig, passing):
            take(world, step)
    except (BackfillError, Broken) as raised:
        error = raised
    finally:
        for fault in happened:
            fault.over()
    if happened:
        came = f"{type(error).__name__}: {error}" if error else "the step went on by itself"
        said.write_text(f"{said.read_text()}: {came}")
    world.warehouse.close()
    world.ledger.close()
