"""``transform.dbt``: what a backfill runs of a model, what it refuses, and that the plan's SQL is the one that runs."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from contract_faults import InterruptedDuckDB
from killed_step import Place
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import BackfillError, CodeFailed, IntentChanged, SpecError, TransformRefused
from airflow_backfill_provider.recompute import dbt_model
from airflow_backfill_provider.recompute.dbt_command import compile_manifest, end_compiling
from airflow_backfill_provider.recompute.dbt_model import compiled_model
from airflow_backfill_provider.spec.dbt import DbtModel
from airflow_backfill_provider.spec.load import load_spec, load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec, TargetSpec
from airflow_backfill_provider.steps.stage import stage_batch

PROJECT = Path(__file__).parents[3] / "dags" / "dbt_flights"
TARGET = TargetSpec(table="analytics.delays", partition_by="day", key=("day",))
COMPILED = 'select day from "w"."raw"."flights" as f'
LONG = timedelta(minutes=5)
FLIGHTS = "source.p.raw.flights"


def manifest() -> dict[str, Any]:
    """What dbt 1.11 writes of a microbatch model of one source, as far as it is read."""
    model = {
        "resource_type": "model",
        "name": "delays",
        "package_name": "p",
        "language": "sql",
        "original_file_path": "models/delays.sql",
        "raw_code": "select day from {{ source('raw', 'flights') }} as f",
        "compiled_code": COMPILED,
        "depends_on": {"nodes": [FLIGHTS]},
        "database": "w",
        "schema": "analytics",
        "alias": "delays",
        "config": {
            "materialized": "incremental",
            "incremental_strategy": "microbatch",
            "event_time": "day",
            "batch_size": "day",
            "pre-hook": [],
            "post-hook": [],
        },
    }
    flights = {
        "resource_type": "source",
        "source_name": "raw",
        "name": "flights",
        "relation_name": '"w"."raw"."flights"',
        "columns": {},
        "config": {"event_time": "flight_date"},
    }
    return {
        "metadata": {"adapter_type": "duckdb", "dbt_version": "1.11.16"},
        "nodes": {"model.p.delays": model},
        "sources": {FLIGHTS: flights},
        "disabled": {},
    }


Edit = Callable[[dict[str, Any], dict[str, Any]], object]


def edited(edit: Edit) -> dict[str, Any]:
    """The manifest after ``edit(manifest, the model's node)``."""
    changed = copy.deepcopy(manifest())
    edit(changed, changed["nodes"]["model.p.delays"])
    return changed


def test_the_reads_that_dbt_bounds_are_bounded_and_nothing_is_to_be_wary_of() -> None:
    found = compiled_model(manifest(), "delays", TARGET, "duckdb")
    assert found.sql.startswith('select day from (select * from "w"."raw"."flights" where flight_date >= \'{{ data_in')
    assert (found.kind, found.bounded, found.cautions) == ("microbatch", ('"w"."raw"."flights"',), ())


def test_a_read_that_the_model_renders_itself_is_not_bounded() -> None:
    raw = "select day from {{ source('raw', 'flights').render() }} as f"
    found = compiled_model(edited(lambda _, node: node.update(raw_code=raw)), "p.delays", TARGET, "duckdb")
    assert found.sql == COMPILED
    assert "reads nothing that has an event_time" in found.cautions[0]


def test_a_table_is_cut_by_the_column_of_the_target() -> None:
    found = compiled_model(
        edited(lambda _, node: node["config"].update(materialized="table")), "delays", TARGET, "duckdb"
    )
    assert found.sql.startswith(f'select * from (\n{COMPILED}\n) as built where "day" >= \'{{{{ data_interval_start')
    assert "a full build" in found.cautions[0]


def test_a_quoted_event_time_is_quoted() -> None:
    def quoted(whole: dict[str, Any], _: object) -> None:
        whole["sources"][FLIGHTS]["columns"] = {"flight_date": {"name": "flight_date", "quote": True}}

    assert '"flight_date" >= ' in compiled_model(edited(quoted), "delays", TARGET, "duckdb").sql


BOTH = "select 1 from {{ source('raw', 'flights') }}, {{ source('raw', 'flights').render() }}"
REFUSED: list[tuple[Edit, type[BackfillError], str]] = [
    (lambda whole, _: whole["nodes"].clear(), SpecError, "none is called so"),
    (lambda _, node: node.update(name="delay"), SpecError, "Did you mean delay?"),
    (lambda whole, node: whole.update(nodes={}, disabled={"m": [node]}), SpecError, "is disabled"),
    (lambda whole, node: whole["nodes"].update(m=node | {"package_name": "q"}), SpecError, "names 2 models"),
    (lambda whole, _: whole["metadata"].update(adapter_type="snowflake"), SpecError, "compiled for snowflake"),
    (lambda _, node: node["config"].update(materialized="view"), TransformRefused, "materialized as view"),
    (lambda _, node: node.update(language="python"), TransformRefused, "transform.python"),
    (lambda _, node: node["config"].update(batch_size="month"), TransformRefused, "Set target.grain: month"),
    (lambda _, node: node["config"].update(sql_header="SET x = 1"), TransformRefused, "sql_header"),
    (lambda _, node: node.update(raw_code="{{ model.batch.id }}"), TransformRefused, "model.batch"),
    (lambda _, node: node.update(raw_code=BOTH), TransformRefused, "does not tell the two apart"),
    (lambda _, node: node.update(raw_code="{{ this.render() }}"), TransformRefused, "something else than ref"),
    (
        lambda _, node: node["config"].update({"post-hook": [{"sql": "delete from {{ this }} where late"}]}),
        TransformRefused,
        "post-hook that writes: delete from",
    ),
    (
        lambda _, node: node["config"].update({"pre-hook": [{"sql": "insert into audit values ({{ x }})"}]}),
        TransformRefused,
        "pre-hook that writes: insert into audit",
    ),
]


@pytest.mark.parametrize(("edit", "error", "told"), REFUSED, ids=[told for _, _, told in REFUSED])
def test_what_a_backfill_cannot_run_is_refused(edit: Edit, error: type[BackfillError], told: str) -> None:
    with pytest.raises(error, match=told.replace("?", r"\?")):
        compiled_model(edited(edit), "delays", TARGET, "duckdb")


def test_what_a_backfill_leaves_out_is_said() -> None:
    def edit(_: object, node: dict[str, Any]) -> None:
        node["config"]["post-hook"] = [{"sql": "grant select on {{ this }} to reporters"}]
        node["raw_code"] += " -- {{ run_started_at }}"
        node["schema"] = "dev_ann"

    told = "\n".join(compiled_model(edited(edit), "delays", TARGET, "duckdb").cautions)
    assert "post-hook, which a backfill does not run: grant select" in told
    assert "run_started_at" in told
    assert "builds w.dev_ann.delays, and the backfill publishes to analytics.delays" in told


def test_folders_are_relative_to_the_spec_and_do_not_change_what_it_means() -> None:
    dbt = load_spec(PROJECT.parent / "backfills" / "daily_delays.yaml").transform.dbt  # type: ignore[union-attr]
    assert Path(dbt.project_dir).resolve() == PROJECT.resolve()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("target: {table: a.b, partition_by: day, key: [day], timezone: Asia/Tokyo}", "UTC"),
        ("target: {table: a.b, partition_by: day, key: [day], column_format: yyyymmdd}", "column_format"),
        ("transform: {dbt: {project_dir: p, model: +delays}}", "model"),
        ("transform: {dbt: {project_dir: p, model: delays}, params: {a: 1}}", "transform.dbt.vars"),
        ("transform: {dbt: {project_dir: p, model: delays}, compiled: {sql: a}}", "found by itself"),
        ("transform: {dbt: {project_dir: p, model: delays}, sql: a.sql}", "keep one of"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(changes: str, told: str) -> None:
    written = {
        "name": "name: delays",
        "target": "target: {table: a.b, partition_by: day, key: [day]}",
        "transform": "transform: {dbt: {project_dir: p, model: delays}}",
        "compute": "compute: {conn_id: w}",
    }
    written[changes.partition(":")[0]] = changes
    with pytest.raises(SpecError, match=told):
        load_spec_text("\n".join(written.values()), "spec.yaml", lambda path: "SELECT 1")


def test_a_dbt_that_is_not_there_is_named() -> None:
    model = DbtModel(project_dir=str(PROJECT), model="daily_delays", executable="/nowhere/bin/dbt")
    with pytest.raises(SpecError, match="/nowhere/bin/dbt' was not found"):
        compile_manifest(model, LONG)
    with pytest.raises(SpecError, match=r"no dbt_project\.yml"):
        compile_manifest(model.model_copy(update={"executable": "true", "project_dir": str(PROJECT.parent)}), LONG)


def test_a_compile_that_fails_is_quoted(tmp_path: Path) -> None:
    dbt = tmp_path / "dbt"
    dbt.write_text(
        "#!/bin/sh\nprintf 'Encountered an error:\n\033[31mNo such macro\033[0m\n' >&2; exit 2\n", encoding="utf-8"
    )
    dbt.chmod(0o755)
    model = DbtModel(project_dir=str(PROJECT), model="daily_delays", executable=str(dbt))
    with pytest.raises(CodeFailed, match=r"ended with 2(.|\n)*    Encountered an error:\n    No such macro$"):
        compile_manifest(model, LONG)


def endless(tmp_path: Path) -> DbtModel:
    """A dbt that reads its standard input to the end, and then waits in a process of its own."""
    dbt = tmp_path / "dbt"
    dbt.write_text(
        f"#!/bin/sh\ncat\nsleep 600 & echo $! > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nwait\n",
        encoding="utf-8",
    )
    dbt.chmod(0o755)
    return DbtModel(project_dir=str(PROJECT), model="daily_delays", executable=str(dbt))


def is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_compile_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with pytest.raises(CodeFailed, match=r"took longer than compute\.statement_timeout, 0:00:02"):
        compile_manifest(endless(tmp_path), timedelta(seconds=2))
    if (pid := tmp_path / "pid").exists():
        wait_until(lambda: is_gone(int(pid.read_text())))


def test_a_task_that_is_ended_ends_its_compile(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def end() -> None:
        wait_until(pid.exists)
        end_compiling()

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(CodeFailed, match="ended with -9"):
        compile_manifest(endless(tmp_path), LONG)
    ending.join()
    wait_until(lambda: is_gone(int(pid.read_text())))


def test_an_incremental_model_that_cannot_be_built_as_a_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_whole(_: object, node: dict[str, Any]) -> None:
        node["config"].update(incremental_strategy="merge", full_refresh=False)
        node["raw_code"] = "select day from flights where {{ only_new('day') }}"

    monkeypatch.setattr(dbt_model, "compile_manifest", lambda *_, **__: edited(never_whole))
    spec = make_spec(transform={"dbt": {"project_dir": "p", "model": "delays"}})
    with pytest.raises(TransformRefused, match="full_refresh: false"):
        dbt_model.with_compiled_model(spec, "duckdb")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    place = Place.create(InterruptedDuckDB(), tmp_path)
    world = place.open()
    yield world
    world.warehouse.close()
    world.ledger.close()
    place.close()


def by_dbt(amount: str | None) -> BackfillSpec:
    """The spec of the correction by a model whose compiled SQL gives this amount; None before it is compiled."""
    bounds = "order_date >= '{{ data_interval_start.strftime('%Y-%m-%d') }}'"
    bounds += " AND order_date < '{{ data_interval_end.strftime('%Y-%m-%d') }}'"
    sql = f"SELECT order_id, order_date, {amount} AS amount, note FROM raw.orders WHERE {bounds}"
    compiled = None if amount is None else {"sql": sql, "file": "models/orders.sql", "kind": "microbatch"}
    dbt = {"project_dir": "/nowhere", "model": "orders"}
    return make_spec(transform={"dbt": dbt, "compiled": compiled})


def test_later_tasks_run_what_the_plan_froze_and_a_model_that_changed_since_is_refused_with_both_hashes(
    world: World,
) -> None:
    world.spec = by_dbt("amount + 1")
    scoped = world.scope(start_date=DAYS[0], end_date=DAYS[1])
    world.spec = by_dbt(None)
    assert stage_batch(world.work(), scoped.batches[0].keys).staged == 2

    world.spec = by_dbt("amount + 2")
    with pytest.raises(IntentChanged, match=f"intent {scoped.plan.intent_hash[:12]} then, [0-9a-f]{{12}} now"):
        world.scope(start_date=DAYS[0], end_date=DAYS[1])
