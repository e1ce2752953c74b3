"""What the factory makes of a folder of specs, looked at without running it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Connection, Variable
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from airflow_backfill_provider.dag_factory import backfill_dags
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.windows import Grain, parse_end, parse_start

SPEC = """
name: {name}
target: {{table: analytics.{name}, partition_by: day, key: [id]}}
transform: {{sql: ../rows.sql}}
compute: {{conn_id: nowhere, max_concurrency: 3, pool: side}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    specs = tmp_path / "backfills"
    specs.mkdir()
    (tmp_path / "rows.sql").write_text("SELECT id, day FROM raw.rows WHERE day = DATE '{{ data_interval_start | ds }}'")
    return specs


def make(folder: Path, *names: str) -> dict[str, DAG]:
    for name in names:
        (folder / f"{name}.yaml").write_text(SPEC.format(name=name))
    return backfill_dags(folder)


def test_a_spec_makes_two_dags_that_are_not_paused_upon_creation(folder: Path) -> None:
    dags = make(folder, "orders")
    assert sorted(dags) == ["backfill__orders", "rollback__orders"]
    assert all(dag.is_paused_upon_creation is False and dag.schedule is None for dag in dags.values())


def test_everything_that_computes_runs_in_the_pool_and_what_must_always_run_does_not(folder: Path) -> None:
    tasks = make(folder, "orders")["backfill__orders"].task_dict
    pools = {task_id: task.pool for task_id, task in tasks.items()}
    in_pool = {task_id for task_id, pool in pools.items() if pool == "side"}
    assert in_pool == {
        "pool_ready",
        "trial",
        "partitions.stage_recompute",
        "partitions.validate_partition",
        "validate_range",
        "atomic_publish",
    }
    assert pools["scope_partitions"] == pools["report"] == "default_pool"


def test_a_queue_and_a_weight_reach_every_task_and_are_airflows_own_when_left_out(folder: Path) -> None:
    chosen = SPEC.replace("pool: side", "pool: side, queue: heavy, priority_weight: 7")
    (folder / "chosen.yaml").write_text(chosen.format(name="chosen"))
    dags = make(folder, "orders")
    for dag_id in ("backfill__chosen", "rollback__chosen"):
        tasks: dict[str, Any] = dags[dag_id].task_dict
        assert {task.queue for task in tasks.values()} == {"heavy"}
        weights = {task_id: task.priority_weight for task_id, task in tasks.items() if task_id != "pool_ready"}
        assert set(weights.values()) == {7}
    assert {(task.queue, task.priority_weight) for task in dags["rollback__orders"].task_dict.values()} == {
        ("default", 1)
    }


def test_the_probe_of_the_pool_comes_before_whatever_waits_for_it(folder: Path) -> None:
    chosen = SPEC.replace("pool: side", "pool: side, priority_weight: 1000")
    (folder / "chosen.yaml").write_text(chosen.format(name="chosen"))
    tasks: dict[str, Any] = make(folder)["backfill__chosen"].task_dict
    assert all(
        tasks["pool_ready"].priority_weight > task.priority_weight
        for task_id, task in tasks.items()
        if task_id != "pool_ready"
    )


def test_evidence_comes_early_and_the_cap_of_a_run_counts_stages_and_validations_together(folder: Path) -> None:
    (folder / "one.yaml").write_text(SPEC.format(name="one").replace("max_concurrency: 3", "max_concurrency: 1"))
    dags = make(folder, "orders")
    assert dags["backfill__orders"].max_active_tasks == 3
    assert dags["backfill__one"].max_active_tasks == 2, "the scope, and the probe that it waits for"
    one: dict[str, Any] = dags["backfill__one"].task_dict
    assert one["partitions.stage_recompute"].max_active_tis_per_dagrun == 1
    tasks: dict[str, Any] = dags["backfill__orders"].task_dict
    for task_id in ("partitions.stage_recompute", "partitions.validate_partition"):
        assert "upstream" in str(tasks[task_id].weight_rule).lower()
        assert tasks[task_id].max_active_tis_per_dagrun == 3


def test_the_trial_comes_before_the_mapped_tasks_and_is_left_out_when_it_is_switched_off(folder: Path) -> None:
    untried = "trial: {enabled: false}\n"
    (folder / "untried.yaml").write_text(SPEC.format(name="untried") + untried)
    (folder / "held.yaml").write_text(
        SPEC.format(name="held") + untried + "control_period: {partitions: ['2024-02-01']}\n"
    )
    dags = make(folder, "orders")
    tried = dags["backfill__orders"].task_dict
    assert tried["trial"].upstream_task_ids == {"scope_partitions"}
    assert "trial" in tried["partitions.stage_recompute"].upstream_task_ids
    assert "trial" not in dags["backfill__untried"].task_dict
    assert dags["backfill__held"].task_dict["trial"].upstream_task_ids == {"scope_partitions"}


def test_people_are_asked_where_the_spec_wants_it_and_nowhere_else(folder: Path) -> None:
    wants = "approval: {required: {over_partitions: 31}, before_publish: true}\n"
    (folder / "asked.yaml").write_text(SPEC.format(name="asked") + wants)
    dags = make(folder, "orders")
    tasks = dags["backfill__asked"].task_dict
    assert tasks["approve_plan"].upstream_task_ids == {"scope_partitions"}
    assert tasks["trial"].upstream_task_ids == {"approve_plan"}
    assert tasks["review_trial"].upstream_task_ids == {"trial"}
    assert tasks["partitions.stage_recompute"].upstream_task_ids == {"review_trial", "scope_partitions"}
    assert tasks["atomic_publish"].upstream_task_ids == {"approve_publish"}
    assert tasks["approve_publish"].upstream_task_ids == {"validate_range"}
    assert {tasks[gate].pool for gate in ("approve_plan", "review_trial", "approve_publish")} == {"default_pool"}
    unasked = dags["backfill__orders"].task_dict
    assert not {"approve_plan", "review_trial", "approve_publish"} & set(unasked)
    DagSerialization.from_dict(DagSerialization.to_dict(dags["backfill__asked"]))


def test_the_report_waits_for_no_pool_and_no_asset_event_and_runs_whatever_happened(folder: Path) -> None:
    dag = make(folder, "orders")["backfill__orders"]
    assert sorted(task.task_id for task in dag.leaves) == ["announce", "pool_ready", "report"]
    assert dag.task_dict["report"].upstream_task_ids == {"atomic_publish"}
    assert dag.task_dict["announce"].upstream_task_ids == {"atomic_publish", "scope_partitions"}
    for task_id in ("announce", "report"):
        assert dag.task_dict[task_id].trigger_rule == "all_done", "a leaf that did not run would fail a drill's run"


def test_clearing_the_scope_clears_the_probe_of_the_pool_which_starts_without_waiting_for_it(folder: Path) -> None:
    probe = make(folder, "orders")["backfill__orders"].task_dict["pool_ready"]
    assert probe.upstream_task_ids == {"scope_partitions"}
    assert probe.trigger_rule == "always"


def test_the_probe_of_the_pool_is_tried_again_as_every_task_is(folder: Path) -> None:
    tasks: dict[str, Any] = make(folder, "orders")["backfill__orders"].task_dict
    assert tasks["pool_ready"].retries == tasks["scope_partitions"].retries == 2


def test_parsing_reads_no_connection_and_no_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("read while parsing")

    monkeypatch.setattr(Variable, "get", forbidden)
    monkeypatch.setattr(Connection, "get", forbidden)
    assert len(make(folder, "orders", "customers")) == 4


def test_one_malformed_spec_of_fifty_takes_no_other_down_and_fails_in_its_own_words(folder: Path) -> None:
    names = [f"t{number}" for number in range(49)]
    (folder / "broken.yaml").write_text(SPEC.format(name="broken").replace("partition_by", "partition_bye"))
    dags = make(folder, *names)
    broken = [dag for dag_id, dag in dags.items() if dag_id.startswith("malformed__")]
    assert len(dags) == 2 * 49 + 1
    (stand_in,) = broken
    with pytest.raises(SpecError, match=r"(?s)broken\.yaml.*partition_bye"):
        stand_in.get_serialized_fields()


def test_two_specs_of_one_name_are_an_error_and_the_first_stays(folder: Path) -> None:
    make(folder, "orders")
    (folder / "z_again.yaml").write_text(SPEC.format(name="orders"))
    dags = backfill_dags(folder)
    assert "backfill__orders" in dags
    (stand_in,) = [dag for dag_id, dag in dags.items() if dag_id.startswith("malformed__")]
    with pytest.raises(SpecError, match="names must differ"):
        stand_in.get_serialized_fields()


def test_the_trigger_form_has_every_field_of_a_request(folder: Path) -> None:
    from airflow_backfill_provider.spec.request import Request

    dag = make(folder, "orders")["backfill__orders"]
    assert set(dag.params) == set(Request.model_fields)


BOUNDS = [
    "2024-02-29", "2024-02", "2024", "2024-03-11 (W11)", "2024-02-29T00:00", "2024-02-29 00:00:00+00:00", "today",
    "yesterday", "now", "-30d", "-12h", "-2w", "-3mo", "-1y",
]  # fmt: skip
HOSTILE = [
    "2024-02-29'; DROP TABLE x; --", "{{ ds }}", "today'", "-30d; x", "--30d", "-1d-1d", "now()", "20240229", "2024-02-29Tx",
    "2024-02-29 OR 1=1", "-999999d", "(W11)", "$(rm)", "../..",
]  # fmt: skip


@pytest.mark.parametrize("field", ["start_date", "end_date"])
def test_the_form_takes_every_way_to_write_a_bound_and_no_hostile_text(folder: Path, field: str) -> None:
    param = make(folder, "orders")["backfill__orders"].params.get_param(field)
    assert [param.resolve(bound) for bound in BOUNDS] == BOUNDS
    assert param.resolve(None) is None
    for text in HOSTILE:
        with pytest.raises(ParamValidationError):
            param.resolve(text)


def test_whatever_the_form_takes_as_a_bound_the_request_can_read_too() -> None:
    now = datetime(2024, 3, 15, tzinfo=UTC)
    grains = {"2024-02": Grain.MONTH, "2024": Grain.YEAR, "2024-03-11 (W11)": Grain.WEEK}
    for bound in BOUNDS:
        grain = grains.get(bound, Grain.DAY)
        assert parse_start(bound, grain, "UTC", now) <= parse_end(bound, grain, "UTC", now)
