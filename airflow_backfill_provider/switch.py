"""The kill switch: one Airflow Variable that stops every backfill, or one of them. Pure; reading it is the caller's.

=========================  =====================================
value                      meaning for the backfill ``fct_orders``
=========================  =====================================
``run`` / ``stop``         run / stop, for all (any case)
``{"all": true}``          stop
``{"fct_orders": true}``   stop
``{"all": false}``, ``{}`` run
anything else, or nothing  stop: it cannot be read
=========================  =====================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass

VARIABLE = "safe_backfill_kill_switch"
MEND = f"""Set it with: airflow variables set {VARIABLE} '{{"all": false}}' (or in the UI under Admin, Variables)."""


@dataclass(frozen=True)
class Verdict:
    """Whether to go on, and why not."""

    go: bool
    reason: str = ""


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a switch stands in it twice")
    return dict(pairs)


def decide(value: str | None, name: str) -> Verdict:
    """What the Variable's text means for the backfill ``name``; ``None`` means that it could not be read."""
    if value is None:
        return Verdict(False, f"the kill switch {VARIABLE} is missing or cannot be read, which means stop. {MEND}")
    word = value.strip().lower()
    if word == "run":
        return Verdict(True)
    if word == "stop":
        return Verdict(False, f"the kill switch {VARIABLE} says stop, for every backfill. {MEND}")
    try:
        switches = json.loads(value, object_pairs_hook=_without_repeats)
    except ValueError:
        switches = None
    if not isinstance(switches, dict) or not all(isinstance(switch, bool) for switch in switches.values()):
        return Verdict(
            False,
            f"the kill switch {VARIABLE} holds {value[:80]!r}, which cannot be read and so means stop. "
            f'It takes run, stop, or an object of true and false such as {{"all": false, "{name}": true}}. {MEND}',
        )
    for switch in ("all", name):
        if switches.get(switch, False):
            return Verdict(False, f"the kill switch {VARIABLE} stops {switch!r}. {MEND}")
    return Verdict(True)
