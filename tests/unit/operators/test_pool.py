"""A pool that starts nothing holds no run up for ever: the probe of it is skipped, and what to do is said."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.comms import SkipDownstreamTasks
from hand_run import HandRun
from operators_world import Shop

from airflow_backfill_provider.dag_factory import backfill_dag
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.operators.pool import PoolProbeOperator, wait_for_pool
from airflow_backfill_provider.operators.report import ReportOperator
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator
from airflow_backfill_provider.operators.trial import TrialOperator
from airflow_backfill_provider.steps.way_on import way_on

FOUND = backfill_id("backfill__orders", "one")
CLEAR = "airflow dags clear backfill__orders --run-id one -y"
ONLY_FAILED = "airflow dags clear backfill__orders --run-id one --only-failed -y"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SAFE_BACKFILL__POOL_PATIENCE", "0")


def run_of(shop: Shop, probe: str, **asked: Any) -> HandRun:
    days = {"start_date": "2024-03-02", "end_date": "2024-03-05"}
    return HandRun(backfill_dag(shop.spec), run_id="one", params=days | asked, states={"pool_ready": probe})


def next_step(shop: Shop) -> str:
    with shop.ledger() as ledger:
        return way_on(ledger, ledger.backfill(FOUND))


def skipped(sent: list[Any]) -> list[Any]:
    return [task for message in sent if isinstance(message, SkipDownstreamTasks) for task in message.tasks]


def test_a_run_whose_pool_starts_nothing_ends_with_its_report_and_the_way_on(shop: Shop, sent: list[Any]) -> None:
    run = run_of(shop, "scheduled")
    with pytest.raises(AirflowFailException, match=f"airflow pools set safe_backfill 4 .* the whole run: {CLEAR}"):
        run.execute("scope_partitions")
    assert skipped(sent) == ["pool_ready"]
    run.states |= {"pool_ready": "skipped", "scope_partitions": "failed"}
    with pytest.raises(AirflowFailException, match="did not reach its goal"):
        run.execute("report")
    with shop.ledger() as ledger:
        assert ledger.backfill(FOUND).state is BackfillState.FAILED
    assert (shop.folder / "reports" / FOUND / "report.html").is_file()


def test_a_scope_that_was_cleared_without_the_probe_says_so_and_goes_no_further(shop: Shop, sent: list[Any]) -> None:
    with pytest.raises(AirflowFailException, match=f"pool_ready was skipped by an earlier try.* Clear both: {CLEAR}"):
        run_of(shop, "skipped").execute("scope_partitions")
    assert skipped(sent) == []


def test_a_scope_that_was_cleared_without_the_probe_goes_on_where_another_backfill_works_in_the_pool(
    shop: Shop, sent: list[Any]
) -> None:
    run = run_of(shop, "skipped")
    wait_for_pool(run.context(run.dag.task_dict["scope_partitions"]), "side", "pool_ready", lambda: ["0123456789ab"])
    assert skipped(sent) == []


@pytest.mark.parametrize(
    ("theirs", "is_full"), [("running", True), ("queued", True), ("scheduled", False), (None, False)]
)
def test_a_pool_is_full_only_where_airflow_has_a_task_of_another_backfill_in_a_slot(
    shop: Shop, sent: list[Any], theirs: str | None, is_full: bool
) -> None:
    other = HandRun(
        backfill_dag(shop.spec),
        run_id="two",
        params={"start_date": "2024-03-07", "end_date": "2024-03-08"},
        states={"pool_ready": "success"},
    )
    for task_id in ("scope_partitions", "trial", "partitions.stage_recompute"):
        other.execute(task_id)
    with shop.ledger() as ledger:
        assert ledger.backfill(backfill_id("backfill__orders", "two")).state is BackfillState.RUNNING
    run = run_of(shop, "scheduled")
    run.other_runs = (
        {} if theirs is None else {"two": {"partitions.stage_recompute": theirs, "scope_partitions": "success"}}
    )
    if is_full:
        run.execute("scope_partitions")
    else:
        with pytest.raises(AirflowFailException, match="airflow pools set safe_backfill 4"):
            run.execute("scope_partitions")


def test_a_scope_that_fails_before_it_looks_at_the_pool_leaves_no_probe_waiting(
    shop: Shop, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", "stop")
    run = run_of(shop, "scheduled")
    with pytest.raises(AirflowFailException, match="safe_backfill_kill_switch"):
        run.execute("scope_partitions")
    run.states["scope_partitions"] = "failed"
    with pytest.raises(AirflowFailException, match="No plan was made; see scope_partitions"):
        run.execute("report")
    assert skipped(sent) == ["pool_ready"]


def test_no_ledger_leaves_no_probe_waiting(shop: Shop, sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER")
    run = run_of(shop, "scheduled")
    run.states["scope_partitions"] = "failed"
    with pytest.raises(AirflowException, match="safe_backfill_ledger"):
        run.execute("report")
    assert skipped(sent) == ["pool_ready"]


@pytest.mark.parametrize("asked", [{"mode": "plan"}, {"start_date": "2999-01-01", "end_date": "2999-01-02"}])
def test_a_run_that_computes_nothing_needs_no_pool(shop: Shop, sent: list[Any], asked: dict[str, str]) -> None:
    run = run_of(shop, "scheduled", **asked)
    assert run.execute("scope_partitions") == []
    assert skipped(sent) == ["trial"], "the report would wait for it"
    run.states |= {"scope_partitions": "success", "trial": "skipped"}
    with pytest.raises(AirflowSkipException, match="a preview"):
        run.execute("report")
    assert skipped(sent) == ["trial", "pool_ready"]


@pytest.mark.parametrize("state", ["queued", "running", "success", "failed", "up_for_retry", "skipped"])
def test_a_probe_that_started_is_left_alone_by_the_report(shop: Shop, sent: list[Any], state: str) -> None:
    run = run_of(shop, state)
    run.states["scope_partitions"] = "failed"
    with pytest.raises(AirflowFailException):
        run.execute("report")
    assert skipped(sent) == []


def test_the_way_on_clears_the_probe_too_while_it_is_skipped_and_only_what_failed_afterwards(
    shop: Shop, sent: list[Any]
) -> None:
    run = run_of(shop, "scheduled")
    for probe, command in (("scheduled", CLEAR), ("skipped", CLEAR), ("success", ONLY_FAILED)):
        run.states |= {"pool_ready": probe, "scope_partitions": "failed"}
        with suppress(AirflowFailException):
            run.execute("scope_partitions")
        with pytest.raises(AirflowFailException, match="did not reach its goal"):
            run.execute("report")
        assert next_step(shop) == f"Mend what made it fail, then: {command}"


def test_a_probe_that_failed_is_named_by_the_report_of_a_backfill_that_is_done(shop: Shop) -> None:
    run = run_of(shop, "success")
    for task_id in (
        "scope_partitions",
        "trial",
        "partitions.stage_recompute",
        "partitions.validate_partition",
        "validate_range",
        "atomic_publish",
    ):
        run.execute(task_id)
        run.states[task_id] = "success"
    run.states["pool_ready"] = "failed"
    with pytest.raises(AirflowFailException, match="The backfill is done, but pool_ready failed; clear it"):
        run.execute("report")


def test_a_dag_that_starts_one_task_at_a_time_can_have_no_probe(shop: Shop) -> None:
    def wired(at_once: int) -> DAG:
        with DAG("by_hand", schedule=None, max_active_tasks=at_once) as dag:
            probe = PoolProbeOperator(task_id="probe", pool="side", trigger_rule="always")
            scope = ScopePartitionsOperator(task_id="plan_it", spec=shop.spec_file, pool_probe=probe.task_id)
            scope >> [probe, ReportOperator(task_id="tell", spec=shop.spec_file)]
        return dag

    with pytest.raises(SpecError, match=r"max_active_tasks of by_hand is 1.*plan_it.*probe.*at least 2"):
        wired(1)
    assert len(wired(2).tasks) == 3


def test_a_preview_skips_the_trial_of_its_own_spec_however_far_downstream_and_that_of_no_other(
    shop: Shop, sent: list[Any]
) -> None:
    preview = {"start_date": "2024-03-02", "end_date": "2024-03-05", "mode": "plan"}
    with DAG("by_hand", schedule=None) as dag:
        scope = ScopePartitionsOperator(task_id="plan_it", spec=shop.spec, request=preview)
        own = TrialOperator(task_id="try_it", spec=shop.spec, pool="side")
        other = TrialOperator(task_id="try_another", spec=shop.spec.model_copy(update={"name": "customers"}))
        scope >> EmptyOperator(task_id="wait") >> own
        scope >> other
    assert HandRun(dag).execute("plan_it") == []
    assert skipped(sent) == ["try_it"]
