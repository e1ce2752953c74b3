"""``transform.python``: the team's own function gets the same staging, checks, trial and publish, and is watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from contract_faults import InterruptedDuckDB, InterruptedPostgres
from killed_step import Place
from killing import survives
from pydantic import ValidationError
from steps_world import DAYS, PER_DAY, World, make_spec
from team_code import RIGHT

from airflow_backfill_provider.errors import (
    CodeFailed,
    IntentChanged,
    SpecError,
    StrayWrite,
    TransformRefused,
    TrialFailed,
    WarehouseError,
)
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.spec.load import load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.stage import stage_batch

RIGS: list[Any] = [InterruptedDuckDB]
if postgres_server.is_installed():
    RIGS.append(InterruptedPostgres)
ONE = {"start_date": DAYS[0], "end_date": DAYS[0]}
FOUR = {"start_date": DAYS[0], "end_date": DAYS[3]}


@pytest.fixture(params=RIGS, ids=lambda rig: rig.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place.create(request.param(), tmp_path)
    yield place
    place.close()


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    world = place.open()
    yield world
    world.warehouse.close()
    world.ledger.close()


@pytest.fixture
def on_duckdb(tmp_path: Path) -> Iterator[World]:
    """For what no engine has a part in."""
    place = Place.create(InterruptedDuckDB(), tmp_path)
    world = place.open()
    yield world
    world.warehouse.close()
    world.ledger.close()
    place.close()


def code(function: str, **changes: Any) -> BackfillSpec:
    """The spec of the correction, by a function of ``team_code``."""
    return make_spec(transform={"python": f"team_code:{function}"} | changes)


def outside(world: World) -> dict[str, Any]:
    """How code reaches the warehouse by itself, as params."""
    if world.engine.name == "duckdb":
        return {"path": str(world.engine.path)}
    return {"address": world.engine.address | {"dbname": world.engine.database}}


def states(world: World) -> list[PartitionState]:
    return [record.state for record in world.ledger.partitions(world.id).values()]


@pytest.mark.parametrize("function", ["writes", "returns"])
def test_the_whole_life_of_a_backfill_by_a_function(world: World, function: str) -> None:
    old, world.spec = world.published(), code(function)
    scoped = world.scope(**FOUR)
    world.try_one()
    world.stage(scoped)
    world.validate(scoped)
    assert world.published() == old

    world.publish()

    refunded = [row for row in world.published() if row[2] is None]
    assert [row[1].isoformat() for row in refunded] == list(DAYS[:4])
    assert {item.kind for item in world.warehouse.storage()} == {"stage", "backup"}
    world.rollback()
    assert world.published() == old


def test_a_function_that_writes_the_published_table_stops_the_run_and_nothing_is_published(world: World) -> None:
    world.spec = code("publishes_by_itself", params=outside(world))
    scoped = world.scope(**FOUR)

    with pytest.raises(StrayWrite, match=rf"{DAYS[0]} had {PER_DAY} rows, has 0") as stray:
        stage_batch(world.work(), scoped.batches[0].keys)

    assert stray.value.moved == {DAYS[0]: (PER_DAY, 0)}
    assert states(world).count(PartitionState.STAGED) == 0
    assert [event.detail for event in world.ledger.events(world.id, "stray_write")] == [{"moved": {DAYS[0]: [6, 0]}}]
    assert len(world.published()) == len(DAYS) * PER_DAY + 3 - PER_DAY, "only the first call ran"
    with pytest.raises(StrayWrite, match=f"in an attempt before.*{DAYS[0]}"):
        stage_batch(world.work(), scoped.batches[0].keys)


def test_a_change_in_place_of_the_partition_before_is_noticed_too_and_in_the_trial_already(world: World) -> None:
    world.spec = code("mends_the_day_before", params=outside(world)).model_copy(
        update={"trial": make_spec(trial={"partition": DAYS[0]}).trial}
    )
    world.scope(**FOUR)
    with pytest.raises(StrayWrite, match="2024-02-29 had 1 rows, has 1"):
        world.try_one()
    assert set(states(world)) <= {PartitionState.PENDING, PartitionState.STAGING}


BEFORE = "2024-02-29"
"""The day beside the range; :data:`WAS` is its row's amount."""
WAS = {9001: 1}


def mend(world: World) -> None:
    """Put right what code did to the day before."""
    world.engine.execute(f"UPDATE analytics.orders SET amount = 1 WHERE order_date = DATE '{BEFORE}'")


def test_a_stray_write_beside_the_range_is_not_forgotten_by_the_next_attempt(on_duckdb: World) -> None:
    world, world.spec = on_duckdb, code("mends_the_day_before", params=outside(on_duckdb))
    first = world.scope(**ONE).batches[0].keys
    for _ in range(3):  # from the second on it writes what is there already
        with pytest.raises(StrayWrite, match=f"{BEFORE} had 1 rows, has 1"):
            stage_batch(world.work(), first)
    world.scope(**ONE)
    with pytest.raises(StrayWrite):
        stage_batch(world.work(), first)
    assert PartitionState.STAGED not in states(world)

    mend(world)
    world.spec = code("returns")
    world.run_id, of = "run 2", world.id
    stage = world.scope(backfill_id=of, restage=True)
    assert world.stage(stage)[0].staged == 1
    assert world.amounts(BEFORE) == WAS


def test_a_clear_of_a_run_that_asked_for_rebase_does_not_take_its_own_stray_write_for_right(on_duckdb: World) -> None:
    world, world.spec = on_duckdb, code("mends_the_day_before", params=outside(on_duckdb))
    first, of = world.scope(**ONE).batches[0].keys, world.id
    again = {"backfill_id": of, "rebase": True}
    world.run_id = "run 2"
    world.scope(**again)
    for _ in range(2):
        with pytest.raises(StrayWrite):
            stage_batch(world.work(of), first)
        world.scope(**again)

    world.run_id = "run 3"
    world.scope(**again)
    assert stage_batch(world.work(of), first).staged == 1, "a person said that another process wrote"


def test_what_a_call_left_that_was_ended_by_a_timeout_is_told(on_duckdb: World) -> None:
    import team_code

    world = on_duckdb
    world.spec = code("mends_the_day_before_until_it_is_ended", params=outside(world))
    first = world.scope(**ONE).batches[0].keys
    with pytest.raises(StrayWrite, match=BEFORE) as stray:
        stage_batch(world.work(), first)
    assert isinstance(stray.value.__cause__, team_code.TimedOut)

    mend(world)
    with pytest.raises(StrayWrite, match=BEFORE):
        stage_batch(world.work(), first)


def test_what_a_call_left_that_was_ended_is_told_later_where_nobody_could_look(
    on_duckdb: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import team_code

    world = on_duckdb
    world.spec = code("mends_the_day_before_until_it_is_ended", params=outside(world))
    first = world.scope(**ONE).batches[0].keys
    fingerprint, looks = world.warehouse.fingerprint, []

    def once(*args: Any) -> Any:
        looks.append(args)
        if len(looks) > 1:
            raise WarehouseError("cancelled")
        return fingerprint(*args)

    monkeypatch.setattr(world.warehouse, "fingerprint", once)
    with pytest.raises(team_code.TimedOut):
        stage_batch(world.work(), first)
    monkeypatch.undo()
    with pytest.raises(StrayWrite, match=BEFORE):
        stage_batch(world.work(), first)


def test_what_a_killed_call_left_beside_the_range_is_told_by_the_next_attempt(tmp_path: Path) -> None:
    place = Place.create(InterruptedDuckDB(), tmp_path)
    world = place.open()
    params = outside(world) | {"spared": os.getpid()}
    world.warehouse.close()
    world.ledger.close()
    place.changes = {"transform": {"python": "team_code:mends_the_day_before_and_is_killed", "params": params}}

    assert not survives(_stage, (place,))

    world = place.open()
    assert world.amounts(BEFORE) == {9001: 0}
    with pytest.raises(StrayWrite, match=f"in an attempt before.*{BEFORE} had 1 rows, has 1"):
        stage_batch(world.work(), world.scope(**FOUR).batches[0].keys)
    world.warehouse.close()
    world.ledger.close()
    place.close()


def test_a_neighbour_that_another_process_writes_between_two_calls_is_nothing_to_stop_for(on_duckdb: World) -> None:
    world, world.spec = on_duckdb, code("returns")
    world.scope(**FOUR)
    world.try_one()
    world.engine.execute(f"UPDATE analytics.orders SET amount = 7 WHERE order_date = DATE '{BEFORE}'")
    world.scope(**FOUR)
    assert stage_batch(world.work(), DAYS[:4]).staged == 3


def test_what_a_failing_function_wrote_is_told_before_its_own_error(on_duckdb: World) -> None:
    on_duckdb.spec = code("publishes_by_itself_and_breaks", params=outside(on_duckdb))
    scoped = on_duckdb.scope(**FOUR)
    with pytest.raises(StrayWrite) as stray:
        stage_batch(on_duckdb.work(), scoped.batches[0].keys)
    assert "half done" in str(stray.value.__cause__)


def test_rows_of_another_partition_are_refused_and_nothing_is_staged(world: World) -> None:
    world.spec = code("stages_the_day_before_too")
    scoped = world.scope(**FOUR)
    with pytest.raises(WarehouseError, match=f"6 of its 12 rows lie outside .* from {'2024-02-29'} to {'2024-02-29'}"):
        stage_batch(world.work(), scoped.batches[0].keys)
    assert states(world).count(PartitionState.STAGED) == 0
    assert world.published()


def test_a_function_that_raises_midway_loses_its_own_partition_alone_and_may_be_tried_again(
    world: World, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    transform = {
        "python": "team_code:fails_once_in_the_middle",
        "params": {"marker": str(marker), "day": DAYS[1]},
    }
    compute = {"conn_id": "warehouse", "partitions_per_task": 4, "fail_fast": False}
    world.spec = make_spec(transform=transform, compute=compute)
    scoped = world.scope(**FOUR)

    with pytest.raises(
        CodeFailed, match=f"1 of 4 partitions.*{DAYS[1]}: team_code:fails_once.* raised ConnectionError"
    ):
        stage_batch(world.work(), scoped.batches[0].keys)

    assert states(world).count(PartitionState.STAGED) == 3
    marker.unlink()
    assert stage_batch(world.work(), scoped.batches[0].keys).staged == 1
    world.validate(scoped)
    world.publish()
    assert len(world.published()) == len(DAYS) * PER_DAY + 3


def _stage(place: Place) -> None:
    world = place.open()
    stage_batch(world.work(), world.scope(**FOUR).batches[0].keys)
    world.warehouse.close()
    world.ledger.close()


def test_a_function_whose_process_is_killed_midway_is_called_again_for_that_partition_alone(
    place: Place, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    params = {"marker": str(marker), "day": DAYS[2]}
    place.changes = {"transform": {"python": "team_code:is_killed_once_in_the_middle", "params": params}}

    assert not survives(_stage, (place,))
    assert not marker.exists()

    world = place.open()
    old = world.published()
    killed = states(world)
    assert killed[2] is PartitionState.STAGING
    kept = killed.count(PartitionState.STAGED)  # those beside it are kept or not by how fast they were
    scoped = world.scope(**FOUR)
    result = stage_batch(world.work(), scoped.batches[0].keys)
    assert (result.staged, result.reused, result.rows) == (4 - kept, kept, 4 * PER_DAY)
    assert world.published() == old
    world.validate(scoped)
    world.publish()
    assert len([row for row in world.published() if row[2] is None]) == 4
    world.warehouse.close()
    world.ledger.close()


def test_a_write_beside_a_killed_call_is_nothing_to_stop_for_once_the_next_attempt_has_looked(
    place: Place, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    params = {"marker": str(marker), "day": DAYS[0]}
    place.changes = {"transform": {"python": "team_code:is_killed_once_in_the_middle", "params": params}}
    assert not survives(_stage, (place,))

    world = place.open()
    scoped = world.scope(**FOUR)
    stage_batch(world.work(), scoped.batches[0].keys)
    world.engine.execute(f"UPDATE analytics.orders SET amount = 7 WHERE order_date = DATE '{BEFORE}'")
    world.ledger.move_partitions(world.id, [DAYS[0]], PartitionState.REJECTED, by="tester", reason="again")
    assert stage_batch(world.work(), scoped.batches[0].keys).staged == 1
    world.warehouse.close()
    world.ledger.close()


def test_a_late_result_does_not_land_in_the_stage_of_a_newer_attempt(on_duckdb: World, monkeypatch: Any) -> None:
    import team_code

    on_duckdb.spec = code("returns")
    scoped = on_duckdb.scope(start_date=DAYS[0], end_date=DAYS[0])
    returns, called = team_code.returns, []

    def overtaken(context: Any) -> list[dict[str, Any]]:
        called.append(context)
        if len(called) == 1:
            stage_batch(on_duckdb.work(), scoped.batches[0].keys)
            return [row | {"note": "late"} for row in newer[0]]
        newer.append(returns(context))
        return newer[-1]

    newer: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(team_code, "returns", overtaken)

    with pytest.raises(Exception, match="was overtaken: attempt 2"):
        stage_batch(on_duckdb.work(), scoped.batches[0].keys)

    on_duckdb.validate(scoped)
    on_duckdb.publish()
    assert "late" not in {row[3] for row in on_duckdb.published()}


def test_a_function_that_gives_other_rows_each_time_does_not_pass_the_trial(on_duckdb: World) -> None:
    on_duckdb.spec = code("clocked")
    on_duckdb.scope(**FOUR)
    with pytest.raises(TrialFailed, match="note in 6 of 6 rows"):
        on_duckdb.try_one()


def test_a_function_may_run_once_for_many_partitions_when_that_gives_the_same(on_duckdb: World) -> None:
    on_duckdb.spec = code("writes", scope="range")
    on_duckdb.stage(on_duckdb.scope(**FOUR))
    assert states(on_duckdb).count(PartitionState.STAGED) == 4

    on_duckdb.run_id, on_duckdb.spec = "run 2", code("across", scope="range")
    scoped = on_duckdb.scope(start_date=DAYS[5], end_date=DAYS[8])
    with pytest.raises(TransformRefused, match="Use scope: partition"):
        stage_batch(on_duckdb.work(), scoped.batches[0].keys)


def test_a_function_is_told_what_a_template_is_told(on_duckdb: World) -> None:
    on_duckdb.spec = code("told", params={"rate": 0.19}, logical_date="end")
    scoped = on_duckdb.scope(start_date=DAYS[0], end_date=DAYS[0])
    on_duckdb.stage(scoped)
    on_duckdb.validate(scoped)
    on_duckdb.publish()
    notes = {row[3] for row in on_duckdb.published() if row[1] and row[1].isoformat() == DAYS[0]}
    assert notes == {"2024-03-01 2024-03-02 0.19 2024-03-02T00:00:00+00:00"}


def test_a_name_that_the_partition_does_not_have_is_an_error_that_says_what_it_has(on_duckdb: World) -> None:
    on_duckdb.spec = code("hourless")
    scoped = on_duckdb.scope(start_date=DAYS[0], end_date=DAYS[0])
    with pytest.raises(
        WarehouseError, match=r"has no logical_date; it has .*partition_key.*Set transform.logical_date"
    ):
        on_duckdb.stage(scoped)


MODULE = "def rebuild(context):\n    return []\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the team's in a package, which nobody has imported."""
    package = tmp_path / "team_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('parsing a spec imports nothing')\n")
    (package / "rules.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return package / "rules.py"


def of_package(**changes: Any) -> BackfillSpec:
    return make_spec(transform={"python": "team_package.rules:rebuild"} | changes)


def test_the_text_of_the_module_is_part_of_the_intent_and_of_the_plan_and_nothing_is_imported_for_it(
    on_duckdb: World, module: Path
) -> None:
    on_duckdb.spec = of_package()
    plan = on_duckdb.scope(**FOUR).plan
    shown = preview(plan)
    assert "Code of team_package.rules:rebuild" in shown
    assert "    def rebuild(context):" in shown
    assert "the text of team_package.rules is part of the plan" in shown
    assert "recomputed from what the Python function team_package.rules:rebuild returns" in shown

    module.write_text(MODULE + "# another rule\n")
    on_duckdb.spec = of_package()

    with pytest.raises(IntentChanged, match="restage"):
        on_duckdb.work().plan()
    assert "team_package" not in sys.modules
    assert BackfillSpec.model_validate(plan.document()["spec"]) == plan.spec, (
        "a stored plan keeps what it was made with"
    )


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("team_package.rules", "with a colon between"),
        ("team_package.rules:", "with a colon between"),
        ("team_package.other:rebuild", "no module team_package.other in the package team_package"),
        ("no_such_package.rules:rebuild", "no module no_such_package on sys.path"),
        ("team_package.rules:rebiuld", "has no rebiuld; its functions: rebuild"),
        ("math:sqrt", "no Python source|no module math"),
    ],
)
def test_a_function_that_is_not_there_is_refused_when_the_spec_is_read(module: Path, reference: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        make_spec(transform={"python": reference})


def _load(transform: str) -> BackfillSpec:
    text = f"""\
name: fct
target: {{table: analytics.fct, partition_by: day, key: [id]}}
compute: {{conn_id: w}}
transform: {{{transform}}}
"""
    return load_spec_text(text, "fct.yaml", lambda path: RIGHT)


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("sql: a.sql, python: 'team_code:writes'", "in one way: keep one of sql, python"),
        ("python: 'team_code:writes', parms: {}", "did you mean 'params'"),
        ("python: 'team_code:writes', source: x", "found by itself"),
        ("python: 'team_code:writes', logical_date: begin", "transform.logical_date = 'begin'"),
        ("python: 'team_code:write'", "has no write; its functions: .*writes"),
    ],
)
def test_what_cannot_be_meant_is_told_in_the_file(transform: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        _load(transform)


def test_a_cutoff_cannot_be_written_into_code() -> None:
    source = {"table": "raw.orders", "partition_by": "order_date", "cutoff": {"column": "seen"}}
    with pytest.raises(ValidationError, match="this transform is code"):
        make_spec(transform={"python": "team_code:writes"}, source=source)


def test_an_engine_that_has_no_place_for_code_refuses_the_plan(
    on_duckdb: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(on_duckdb.warehouse.capabilities, takes_no_code="Write it as SQL.")
    monkeypatch.setattr(type(on_duckdb.warehouse), "capabilities", without)
    on_duckdb.spec = code("writes")
    with pytest.raises(TransformRefused, match=r"team_code:writes: Write it as SQL. Nothing was staged"):
        on_duckdb.scope(**FOUR)
