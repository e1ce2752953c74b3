"""Run one step in a process of its own and SIGKILL it before its Nth statement on either database.

A statement is a step of the warehouse's engine (see ``contract_faults``) or one write transaction of the ledger.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from contract_faults import Rig
from killing import Countdown, survives
from ledger_file import new_ledger
from steps_world import DAYS, World, fill, make_spec

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch

BY_WEEK: dict[str, Any] = {"publish": {"unit": "week", "lock_timeout": "2s"}}
SWAPPED: dict[str, Any] = {"publish": {"mechanism": "view_swap", "lock_timeout": "2s"}}
THREE_DAYS = {"start_date": DAYS[0], "end_date": DAYS[2]}
SAMPLED = 1 if "BACKFILL_EVERY_FAULT" in os.environ else 3
"""One of so many statements is enough where every one of the engine's own is met by the contract suite."""
READS = ("SELECT", "ATTACH", "SET", "RESET", "USE", "DETACH", "BEGIN")
"""How statements begin that write nothing: what these find is what the next write finds."""


@dataclass
class Place:
    """Where a world is kept between the processes that work on it: an engine, a ledger's file and what the spec changes."""

    rig: Rig
    ledger: Path
    changes: dict[str, Any]

    @classmethod
    def create(cls, rig: Rig, folder: Path, filled: Callable[[Rig], None] = fill, **changes: Any) -> Place:
        rig.create(folder / "prepared").close()
        filled(rig)
        place = cls(rig, folder / "ledger.db", changes)
        new_ledger(folder)
        return place

    def open(self) -> World:
        return World(self.rig, self.rig.open(), Ledger(self._url), make_spec(**self.changes))

    def close(self) -> None:
        self.rig.close()
        self.ledger.unlink()

    def copied(self, folder: Path) -> Place:
        ledger = folder.with_suffix(".db")
        shutil.copy(self.ledger, ledger)
        return Place(self.rig.copied(folder), ledger, self.changes)

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.ledger}"


def killed(place: Place, step: str, *, every: int = 1, spared: tuple[str, ...] = ()) -> Iterator[World]:
    """The world as each kill left it: before the first statement, and so on; at last as it is when nothing was killed.

    :param step: ``trial``, ``stage``, ``publish`` or ``rollback``.
    :param every: kill at one of so many statements only.
    :param spared: statements that begin so do not count.
    """
    for survived in count(0, every):
        copy = place.copied(place.ledger.with_name(f"killed after {survived}"))
        ended = survives(_run, (copy, step, survived, spared))
        world = copy.open()
        yield world
        world.warehouse.close()
        world.ledger.close()
        copy.close()
        if ended:
            break


def _run(place: Place, step: str, survived: int, spared: tuple[str, ...]) -> None:
    world = place.open()
    countdown = Countdown(survived)
    write = Ledger._write

    def dying(*given: Any, **named: Any) -> Any:
        countdown.step()
        return write(*given, **named)

    def around(statement: str, _: Any, run: Callable[[], Any]) -> Any:
        if not statement.startswith(spared):
            countdown.step()
        return run()

    Ledger._write = dying  # type: ignore[method-assign]
    with place.rig.steps(around):
        match step:
            case "stage":
                stage_batch(world.work(), world.scope(**THREE_DAYS).batches[0].keys)
            case "trial":
                world.scope(**THREE_DAYS)
                world.try_one()
            case "publish":
                world.publish()
                conclude(world.work())
            case "rollback":
                world.rollback()
    world.warehouse.close()
    world.ledger.close()
