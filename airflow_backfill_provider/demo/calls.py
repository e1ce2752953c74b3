"""What the reader types to start each part of the demo, so that its messages name commands that work here."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

HOME = Path(".demo")
"""Where the demo puts everything unless told otherwise."""


@dataclass(frozen=True)
class Calls:
    """A command line for each action."""

    run: str
    rollback: str
    up: str
    down: str


MAKE = Calls("make demo", "make demo-rollback", "make up", "make down")


def airflow_calls(home: Path) -> Calls:
    """Those of ``airflow safe-backfill demo``, naming the folder when it is not the usual one."""
    where = "" if home == HOME else f" --home {shlex.quote(str(home))}"
    return Calls(*(f"airflow safe-backfill demo {action}{where}" for action in ("run", "rollback", "up", "down")))
