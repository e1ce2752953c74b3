"""Ended at any step, in any way, a call has happened or has not; what is left is listed; calling again converges."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest
from contract_faults import RIGS, SLOW_RIGS, Broken, Fault, Rig
from contract_world import COLUMNS, RANGE, ROWS, World, days
from killing import die, survives
from stage_writing import write_one

from airflow_backfill_provider.errors import BackfillError, TargetMoved, WarehouseError
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Column,
    Fill,
    Fingerprint,
    Publication,
    Published,
    Recompute,
    SampleOf,
    Staged,
    Target,
    Warehouse,
)

EVERYTHING = "BACKFILL_EVERY_FAULT" in os.environ
"""Every fault at every step, which takes many minutes. Otherwise :data:`AT_MOST` of an operation, the same ones each time."""
AT_MOST = 24
FEWER = {"replace_partitions with a new column": 8, "keep_sample": 8}
"""As :data:`AT_MOST`, of an operation most of whose steps are another one's."""
SLOW = {"databricks": 8}
"""As :data:`AT_MOST`, on an engine whose every statement is a job."""
KILL = Fault("SIGKILL", lambda *_: die(), ())
pytestmark = pytest.mark.timeout(3600)


@dataclass(frozen=True)
class Scene:
    """A published table with a stage and a backup of its range; new amounts are old amounts plus one."""

    target: Target
    staged: Staged
    backup: Backup
    before: dict[str, Fingerprint]

    def publication(self) -> Publication:
        return Publication("b1", Action.PUBLISH, "p1", days(*RANGE), self.staged, self.before, self._after)

    def undo(self) -> Publication:
        return Publication("b1", Action.ROLLBACK, "p1", days(*RANGE), self.backup, self._after, self.before)

    @property
    def _after(self) -> dict[str, Fingerprint]:
        return {entry.partition.key: entry.fingerprint for entry in self.staged.partitions}


def _stage(warehouse: Warehouse, scene: Scene) -> Staged:
    world = World(None, warehouse, scene.target)  # type: ignore[arg-type]
    with warehouse.open_stage(scene.target, "b1", "again") as writer:
        return Staged(tuple(write_one(writer, day, world.select(day.key, RAISED)) for day in days(*RANGE[:2])))


def _stage_code(warehouse: Warehouse, scene: Scene) -> Staged:
    def filled(key: str) -> Fill:
        return lambda landing: landing.add(_raised(key))

    with warehouse.open_stage(scene.target, "b1", "again") as writer:
        return Staged(writer.write(*(Recompute((day,), fill=filled(day.key)) for day in days(*RANGE[:2]))))


def _raised(key: str) -> list[dict[str, Any]]:
    """The rows of a day as the staged ones are."""
    return [
        {
            "order_id": number,
            "order_date": date.fromisoformat(key),
            "Status": status,
            "amount": None if amount is None else Decimal(amount) + 1,
            "note": note,
            "seen_at": datetime.fromisoformat(seen_at),
        }
        for number, day, status, amount, note, seen_at in ROWS
        if day == key
    ]


def _back_up(warehouse: Warehouse, scene: Scene) -> Any:
    return warehouse.back_up(scene.target, "b1", days(*RANGE), label="again")


def _keep_sample(warehouse: Warehouse, scene: Scene) -> Any:
    what = SampleOf(2, scene.target.column_names)
    return warehouse.keep_sample(scene.target, "b1", Published(), scene.staged, days(*RANGE), what)


RAISED = "CAST(amount + 1 AS DECIMAL(12,2))"
OPERATIONS: dict[str, Callable[[Warehouse, Scene], Any]] = {
    "stage": _stage,
    "stage of code": _stage_code,
    "back_up": _back_up,
    "keep_sample": _keep_sample,
    "replace_partitions": lambda warehouse, scene: warehouse.replace_partitions(scene.target, scene.publication()),
    "replace_partitions with a new column": lambda warehouse, scene: warehouse.replace_partitions(
        scene.target, scene.publication()
    ),
    "merge": lambda warehouse, scene: warehouse.merge(scene.target, scene.publication()),
    "view_swap": lambda warehouse, scene: warehouse.swap_view(scene.target, scene.publication()),
    "rollback": lambda warehouse, scene: warehouse.replace_partitions(scene.target, scene.undo()),
    "rollback of a view_swap": lambda warehouse, scene: warehouse.swap_view(scene.target, scene.undo()),
}
"""What is interrupted, by name; beside stages, ``back_up`` and ``keep_sample``, each replaces the range and writes one receipt."""


@pytest.fixture(params=[*RIGS, *SLOW_RIGS], ids=lambda rig: rig.name)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = request.param()
    rig.create(tmp_path / "prepared").close()
    yield rig
    rig.close()


def prepare(rig: Rig, operation: str) -> Scene:
    """Everything up to the operation."""
    warehouse = rig.open()
    if operation == "stage of code" and warehouse.capabilities.takes_no_code:
        pytest.skip(warehouse.capabilities.takes_no_code)
    if operation == "replace_partitions with a new column" and rig.name == "databricks":
        pytest.skip("a column is added in a commit of its own there, which a publish could not take back")
    if "view_swap" in operation:
        if "view_swap" not in warehouse.capabilities.mechanisms:
            pytest.skip("the engine does not swap views")
        world = World.behind_view(rig, warehouse, "order_date")
    elif operation == "merge" and "merge" not in warehouse.capabilities.mechanisms:
        pytest.skip("the engine does not merge")
    else:
        world = World.by_date(rig, warehouse)
        if "constraint" not in rig.lacks:
            rig.execute("CREATE UNIQUE INDEX one_row_each ON analytics.orders (order_id)")
    if operation == "replace_partitions with a new column":
        selects = {key: f"SELECT t.*, order_id AS tax FROM ({world.select(key, RAISED)}) AS t" for key in RANGE}
        (*_, tax) = warehouse.select_columns(selects[RANGE[0]])
        added = Column("tax", tax.type, added="NULL: nobody knows it")
        world.target = replace(world.target, columns=(*world.target.columns, added))
        staged = world.stage(selects)
    else:
        staged = world.stage_corrected(*RANGE)
    backup, before = warehouse.back_up(world.target, "b1", days(*RANGE), label="publish")
    scene = Scene(world.target, staged, backup, before)
    if operation == "rollback":
        OPERATIONS["replace_partitions"](warehouse, scene)
    if operation == "rollback of a view_swap":
        OPERATIONS["view_swap"](warehouse, scene)
    warehouse.close()
    return scene


@dataclass
class Seen:
    """What a reader sees who knows nothing of us."""

    range: list[Any]
    outside: list[Any]

    @classmethod
    def of(cls, rig: Rig) -> Seen:
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        rows = rig.rows(f"SELECT {names} FROM analytics.orders ORDER BY order_id, note, amount")
        inside = [row for row in rows if str(row[1]) in RANGE]
        return cls(inside, [row for row in rows if row not in inside])


def interrupted(rig: Rig, operation: str, scene: Scene, number: int, fault: Fault) -> BackfillError | Broken | None:
    """Run the operation, and let the fault strike once, at the step of that number."""
    warehouse = rig.open()
    try:
        with rig.steps(striking(warehouse, number, fault)):
            OPERATIONS[operation](warehouse, scene)
    except (BackfillError, Broken) as error:
        return error
    finally:
        fault.over()
        warehouse.close()
    return None


def striking(warehouse: Warehouse, number: int, fault: Fault) -> Callable[[str, Any, Callable[[], Any]], Any]:
    left = iter(range(number))

    def around(step: str, runner: Any, run: Callable[[], Any]) -> Any:
        strikes = next(left, None) is None and not struck
        if strikes:
            struck.append(step)
            if fault.answered:
                fault.strike(warehouse, runner)
        result = run()
        if strikes and not fault.answered:
            fault.strike(warehouse, runner)
        return result

    struck: list[str] = []
    return around


def killed(rig: Rig, operation: str, scene: Scene, number: int) -> None:
    interrupted(rig, operation, scene, number, KILL)


def steps_of(rig: Rig, operation: str, scene: Scene) -> list[str]:
    """The steps that the operation takes when nothing strikes."""
    steps: list[str] = []

    def around(step: str, runner: Any, run: Callable[[], Any]) -> Any:
        steps.append(step)
        return run()

    warehouse = rig.open()
    with rig.steps(around):
        OPERATIONS[operation](warehouse, scene)
    warehouse.close()
    return steps


def strikes(rig: Rig, operation: str, steps: list[str]) -> list[tuple[int, Fault]]:
    """Where which fault strikes: a SIGKILL and a lost answer at each commit, and each step has a fault, in turn."""
    faults = (KILL, *rig.faults)
    if EVERYTHING:
        return [(number, fault) for number in range(len(steps)) for fault in faults]
    chance = Random(crc32(f"{rig.name} {operation}".encode()))
    turn = chance.randrange(len(faults))
    commits = [number for number, step in enumerate(steps) if rig.is_commit(step)]
    chosen = [(number, fault) for number in commits for fault in faults if fault is KILL or not fault.answered]
    others = [(number, faults[(turn + number) % len(faults)]) for number in range(len(steps))]
    others = [strike for strike in others if strike not in chosen]
    most = min(FEWER.get(operation, AT_MOST), SLOW.get(rig.name, AT_MOST))
    return sorted(
        chosen + chance.sample(others, min(len(others), max(0, most - len(chosen)))),
        key=lambda strike: strike[0],
    )


@pytest.mark.parametrize("operation", OPERATIONS)
def test_ended_at_any_step_a_call_has_happened_or_has_not_and_works_when_repeated(
    rig: Rig, operation: str, tmp_path: Path
) -> None:
    scene = prepare(rig, operation)
    old = Seen.of(rig)
    rehearsal = rig.copied(tmp_path / "rehearsal")
    steps = steps_of(rehearsal, operation, scene)
    new = Seen.of(rehearsal)
    rehearsal.close()
    assert new.outside == old.outside
    assert (new.range == old.range) == (operation in ("stage", "stage of code", "back_up", "keep_sample"))
    assert len(steps) > 3

    happened = set()
    for number, fault in strikes(rig, operation, steps):
        copy = rig.copied(tmp_path / f"{number} {fault.name}")
        note = f"{fault.name} at step {number} of {operation}: {steps[number][:80]}"
        happened.add(_struck(copy, operation, scene, number, fault, old, new, note))
        copy.close()
    assert happened == ({False} if old == new else {False, True})


def _struck(rig: Rig, operation: str, scene: Scene, number: int, fault: Fault, old: Seen, new: Seen, note: str) -> bool:
    """Let it strike, look at what is left, and call again; whether the range was changed all the same."""
    check = rig.open()
    receipts, stored = check.receipts(scene.target), {item.location for item in check.storage()}
    check.close()
    if fault is KILL:
        assert not survives(killed, (rig, operation, scene, number)), note
        error = None
    else:
        error = interrupted(rig, operation, scene, number, fault)
        assert error is not None or fault.may_be_mended, note
        assert error is None or type(error) in fault.raises, f"{note}: {error!r}"

    warehouse = rig.open()
    assert rig.is_idle(), note
    happened = len(warehouse.receipts(scene.target)) > len(receipts)
    assert Seen.of(rig) == (new if happened else old), note
    if fault is not KILL and error is None and old != new:
        assert happened, note
    left = {item.location: item for item in warehouse.storage()}
    assert rig.stored() <= set(left), f"{note}: something is left that nobody lists"
    for location in left.keys() - stored:
        _require_whole(warehouse, scene, location, left[location].kind, note)
    if old == new:
        for location in left.keys() - stored:
            warehouse.drop(location)
        assert rig.stored() <= stored, note
    if happened:
        with pytest.raises(TargetMoved):
            OPERATIONS[operation](warehouse, scene)
    else:
        OPERATIONS[operation](warehouse, scene)
    assert Seen.of(rig) == new, note
    assert len(warehouse.receipts(scene.target)) == len(receipts) + (old != new), note
    warehouse.close()
    return happened


def _require_whole(warehouse: Warehouse, scene: Scene, location: str, kind: str, note: str) -> None:
    """What is left of a stage are whole partitions; what is left of a backup is all there. Either may have no table yet."""
    if kind == "backup":
        with suppress(WarehouseError):
            assert warehouse.fingerprint(scene.target, Backup(location), days(*RANGE)) == scene.before, note
    elif kind == "stage":
        entries = tuple(replace(entry, location=location) for entry in scene.staged.partitions)
        try:
            found = warehouse.fingerprint(scene.target, Staged(entries), days(*RANGE))
        except WarehouseError as error:
            if "does not exist" not in str(error):
                raise
            return
        for entry in entries:
            assert found[entry.partition.key].rows == 0 or found[entry.partition.key] == entry.fingerprint, note
