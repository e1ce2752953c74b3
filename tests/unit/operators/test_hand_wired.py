"""Each operator wired by hand, without the factory: specs by path, requests as arguments, one id for all tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.dag_factory import backfill_dag, rollback_dag
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.operators.announce import AnnouncePublishOperator, assets
from airflow_backfill_provider.operators.atomic_publish import AtomicPublishOperator
from airflow_backfill_provider.operators.report import ReportOperator
from airflow_backfill_provider.operators.rollback import RollbackOperator
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator
from airflow_backfill_provider.operators.stage_recompute import StageRecomputeOperator
from airflow_backfill_provider.operators.trial import TrialOperator
from airflow_backfill_provider.operators.validate_partition import ValidatePartitionOperator, ValidateRangeOperator


@pytest.mark.parametrize(
    "form", [lambda shop: shop.spec, lambda shop: shop.spec_file, lambda shop: str(shop.spec_file)]
)
def test_a_dag_without_params_publishes_the_days_of_its_request(shop: Shop, form: Any) -> None:
    run = HandRun(wired(form(shop), request={**OF_THE_DAY, "end_date": "2024-03-06", "reason": "by {{ run_id }}"}))
    assert set(run.run().values()) == {"success"}
    assert shop.corrected() == [4, 5, 6]
    with shop.ledger() as ledger:
        assert ledger.backfill(backfill_id("by_hand", run.run_id)).reason == "by scheduled__2024-03-04"


def test_a_lower_limit_of_mapped_tasks_makes_fewer_longer_ones_and_none_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = {"start_date": "2024-03-01", "end_date": "2024-03-10"}
    assert [len(one["keys"]) for one in HandRun(wired(shop.spec, request=days)).execute("plan_it")] == [2] * 5
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")
    again = HandRun(wired(shop.spec, request=days))
    assert [len(one["keys"]) for one in again.execute("plan_it")] == [4, 3, 3]
    assert set(again.run().values()) == {"success"}
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "0")
    with pytest.raises(AirflowFailException, match=r"max_map_length is '0'.*Set it to 1 or more"):
        HandRun(wired(shop.spec, request=OF_THE_DAY), run_id="other").execute("plan_it")


def test_without_a_request_the_params_are_it(shop: Shop) -> None:
    HandRun(wired(shop.spec), params={"partitions": ["2024-03-02", "2024-03-07"], "end_date": None}).run()
    assert shop.corrected() == [2, 7]


def test_with_a_request_the_params_are_the_dags_own_affair(shop: Shop) -> None:
    HandRun(wired(shop.spec, request=OF_THE_DAY), params={"colour": "red", "start_date": "2024-03-01"}).run()
    assert shop.corrected() == [4]


@pytest.mark.parametrize("written", ["stage", "{{ 'stage' }}"])
def test_the_mode_that_the_scope_was_given_holds_the_publish_back(shop: Shop, written: str) -> None:
    run = HandRun(wired(shop.spec, request={**OF_THE_DAY, "mode": written}))
    assert run.run() == {
        "plan_it": "success",
        "stage": "success",
        "judge": "success",
        "whole": "success",
        "publish": "skipped",
        "tell": "success",
    }
    assert shop.corrected() == []
    found = backfill_id("by_hand", run.run_id)
    HandRun(wired(shop.spec, request={"backfill_id": found}), run_id="another").run()
    assert shop.corrected() == [4]


def test_a_publish_whose_scope_has_not_said_how_far_to_go_publishes_nothing(shop: Shop) -> None:
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    for task_id in ("plan_it", "stage", "judge", "whole"):
        run.execute(task_id)
    del run.xcoms["plan_it", "backfill"]
    with pytest.raises(AirflowFailException, match="plan_it has not said it"):
        run.execute("publish")
    assert shop.corrected() == []


def test_the_report_of_a_scope_that_failed_names_it(shop: Shop) -> None:
    run = HandRun(wired(shop.spec, request={"start_date": "{{ run_id }}"}))
    with pytest.raises(AirflowFailException, match="scheduled__2024-03-04"):
        run.execute("plan_it")
    run.states["plan_it"] = "failed"
    with pytest.raises(AirflowFailException, match="No plan was made; see plan_it"):
        run.execute("tell")


def test_two_chains_of_one_run_have_a_backfill_each(shop: Shop) -> None:
    other = shop.folder / "other.yaml"
    other.write_text(shop.spec_file.read_text().replace("name: orders", "name: other"))
    first = HandRun(wired(shop.spec, request={"partitions": ["2024-03-01"]}))
    first.run()
    second = HandRun(wired(other, request={"partitions": ["2024-03-02"]}))
    with pytest.raises(AirflowFailException, match="is of orders, not of other"):
        second.run()
    own = HandRun(wired(other, request={"partitions": ["2024-03-02"]}, backfill_id="00000000000{{ 'a' }}"))
    own.run()
    assert shop.corrected() == [1, 2]
    with shop.ledger() as ledger:
        assert ledger.backfill("00000000000a").state is BackfillState.COMPLETED


def test_the_factorys_tasks_go_on_with_the_backfill_of_the_conf(shop: Shop, sent: list[Any]) -> None:
    def run(run_id: str, **params: Any) -> HandRun:
        made = HandRun(backfill_dag(shop.spec), run_id=run_id, params=params, states={"pool_ready": "success"})
        for task_id in (
            "scope_partitions",
            "trial",
            "partitions.stage_recompute",
            "partitions.validate_partition",
            "validate_range",
        ):
            made.execute(task_id)
            made.states[task_id] = "success"
        return made

    first = run("one", start_date="2024-03-02", end_date="2024-03-05", mode="stage")
    with pytest.raises(AirflowSkipException, match="mode is stage"):
        first.execute("atomic_publish")
    first.execute("report")
    found = backfill_id("backfill__orders", "one")
    second = run("two", backfill_id=found, mode="publish", start_date=None)
    second.execute("atomic_publish")
    assert f"Backfill {found}" in second.execute("report")[0]
    assert shop.corrected() == [2, 3, 4, 5]
    third = HandRun(backfill_dag(shop.spec), run_id="three", params={"partitions": ["2024-03-07"], "mode": "plan"})
    third.execute("scope_partitions")
    third.states["scope_partitions"] = "success"
    for task_id in ("trial", "report"):
        with pytest.raises(AirflowSkipException, match="a preview"):
            third.execute(task_id)


def test_consumers_hear_of_a_publish_and_of_nothing_that_did_not_happen_or_was_put_back(shop: Shop) -> None:
    run = HandRun(
        backfill_dag(shop.spec),
        run_id="one",
        params={"partitions": ["2024-03-02", "2024-03-05"]},
        states={"pool_ready": "success"},
    )
    for task_id in (
        "scope_partitions",
        "trial",
        "partitions.stage_recompute",
        "partitions.validate_partition",
        "validate_range",
    ):
        run.execute(task_id)
    with pytest.raises(AirflowSkipException, match="Nothing was published"):
        run.execute("announce")  # as it does when the publish failed
    assert not run.outlet_events
    run.execute("atomic_publish")
    assert run.execute("announce") == 2
    whole, partitions = assets("analytics.orders")
    assert run.outlet_events[partitions].partition_keys == {"2024-03-02", "2024-03-05"}
    assert run.outlet_events[whole].extra["partitions"] == 2
    found = backfill_id("backfill__orders", "one")
    HandRun(rollback_dag(shop.spec), params={"backfill_id": found}).run()
    with pytest.raises(AirflowSkipException, match="Nothing was published"):
        run.execute("announce")


@pytest.mark.parametrize("text", ["../../x", "A" * 12, "1234", "0123456789ab\n;"])
def test_an_id_that_is_none_goes_nowhere(shop: Shop, text: str) -> None:
    with pytest.raises(AirflowFailException, match="must be 12 characters"):
        HandRun(wired(shop.spec, request=OF_THE_DAY, backfill_id=text)).run()
    with DAG("undo", schedule=None) as dag:
        RollbackOperator(task_id="undo", spec=shop.spec, backfill_id=text)
    with pytest.raises(AirflowFailException, match="must be 12 characters"):
        HandRun(dag).run()


def test_a_rollback_takes_the_id_and_the_force_of_its_arguments(shop: Shop) -> None:
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    run.run()
    found = backfill_id("by_hand", run.run_id)

    def undo(**arguments: Any) -> Any:
        with DAG("undo", schedule=None) as dag:
            RollbackOperator(task_id="undo", spec=shop.spec_file, **arguments)
        return HandRun(dag).execute("undo")

    with pytest.raises(AirflowFailException, match="force is 'perhaps'"):
        undo(backfill_id=found, force="perhaps")
    assert shop.corrected() == [4]
    assert undo(backfill_id="{{ '" + found + "' }}", force="{{ 'True' }}")["restored"] is True
    assert shop.corrected() == []
    assert undo(backfill_id=found)["restored"] is False
    with pytest.raises(AirflowFailException, match="exclude each other"):
        undo(backfill_id=found, force=True, restore_overwritten=True)
    assert undo(backfill_id=found, restore_overwritten="{{ 'true' }}")["restored"] is True
    assert shop.corrected() == [4]


def test_a_spec_that_cannot_be_read_fails_the_task_in_the_words_of_the_factory(shop: Shop) -> None:
    shop.spec_file.write_text("name: orders\ntarget: {tabel: a.b}\n")
    with pytest.raises(SpecError) as refused:
        _ = shop.spec
    dag = wired(shop.spec_file, request=OF_THE_DAY)  # parsing reads no spec
    with pytest.raises(AirflowFailException) as failed:
        HandRun(dag).run()
    assert str(failed.value) == str(refused.value)
    with pytest.raises(SpecError, match="cannot be read as a spec"), DAG("announced", schedule=None):
        AnnouncePublishOperator(task_id="announce", spec=shop.folder / "none.yaml", published={})


def test_the_dag_is_stored_and_read_by_the_scheduler_with_every_form_of_spec(shop: Shop) -> None:
    for spec in (shop.spec, shop.spec_file, str(shop.spec_file)):
        stored = DagSerialization.to_dict(wired(spec, request=OF_THE_DAY))
        read = DagSerialization.from_dict(stored)
        assert sorted(read.task_dict) == ["judge", "plan_it", "publish", "stage", "tell", "whole"]


@pytest.mark.parametrize(
    ("operator", "fields"),
    [
        (ScopePartitionsOperator, {"backfill_id", "request"}),
        (TrialOperator, {"backfill_id"}),
        (StageRecomputeOperator, {"backfill_id", "batch"}),
        (ValidatePartitionOperator, {"backfill_id", "batch"}),
        (ValidateRangeOperator, {"backfill_id"}),
        (AtomicPublishOperator, {"backfill_id"}),
        (AnnouncePublishOperator, {"backfill_id", "published", "batch"}),
        (ReportOperator, {"backfill_id"}),
        (RollbackOperator, {"backfill_id", "force", "restore_overwritten", "publish_is_dead"}),
    ],
)
def test_template_fields_are_the_documented_ones(operator: Any, fields: set[str]) -> None:
    assert set(operator.template_fields) == fields
    page = (Path(__file__).parents[3] / "docs" / "operators.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{operator.__name__}`")]
    assert all(f"`{field}`" in row for field in fields)
