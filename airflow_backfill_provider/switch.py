"""The kill switch: one Airflow Variable that stops every backfill, or one of them. Pure; reading and writing it is the caller's.

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

from airflow_backfill_provider.errors import SwitchUnreadable

VARIABLE = "safe_backfill_kill_switch"
ALL = "all"
"""The switch of every backfill."""
MEND = f"""Set it with: airflow variables set {VARIABLE} '{{"all": false}}' (or in the UI under Admin, Variables)."""


@dataclass(frozen=True)
class Verdict:
    """Whether to go on, and why not."""

    go: bool
    reason: str = ""


def decide(value: str | None, name: str) -> Verdict:
    """What the Variable's text means for the backfill ``name``; ``None`` means that it could not be read."""
    try:
        switches = _read(value)
    except SwitchUnreadable as error:
        return Verdict(False, f"{error}")
    for switch in (ALL, name):
        if switches.get(switch, False):
            lift = f"airflow safe-backfill resume {'--all' if switch == ALL else name}"
            return Verdict(False, f"the kill switch {VARIABLE} stops {switch!r}. Lift it with: {lift}")
    return Verdict(True)


def stopping(value: str | None, name: str) -> str:
    """The Variable's text that stops ``name`` (or :data:`ALL`) as well; it lets nothing go on that is stopped.

    :raises SwitchUnreadable: what it holds cannot be read; everything is stopped already.
    """
    return json.dumps(_read(value) | {name: True})


def lifting(value: str | None, name: str) -> str:
    """The Variable's text that does not stop ``name`` (or :data:`ALL`) by that name; the other switches stay.

    :raises SwitchUnreadable: what it holds cannot be read, so nobody can say which stops would be lifted.
    """
    return json.dumps(_read(value) | {name: False})


def stopped(value: str | None) -> tuple[str, ...]:
    """What the Variable's text stops, by name, :data:`ALL` first.

    :raises SwitchUnreadable: it cannot be read; it stops everything.
    """
    return tuple(sorted((name for name, stop in _read(value).items() if stop), key=lambda name: (name != ALL, name)))


def _read(value: str | None) -> dict[str, bool]:
    if value is None:
        raise SwitchUnreadable(f"the kill switch {VARIABLE} is missing or cannot be read, which means stop. {MEND}")
    word = value.strip().lower()
    if word in ("run", "stop"):
        return {ALL: word == "stop"}
    try:
        switches = json.loads(value, object_pairs_hook=_without_repeats)
    except ValueError:
        switches = None
    if not isinstance(switches, dict) or not all(isinstance(switch, bool) for switch in switches.values()):
        raise SwitchUnreadable(
            f"the kill switch {VARIABLE} holds {value[:80]!r}, which cannot be read and so means stop. "
            f'It takes run, stop, or an object of true and false such as {{"all": false, "fct_orders": true}}. {MEND}'
        )
    return switches


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a switch stands in it twice")
    return dict(pairs)
