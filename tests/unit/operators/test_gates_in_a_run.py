"""The gates as tasks: what holds a question back, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException, TaskAwaitingInput
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
from hand_run import HandRun
from operators_world import Shop

from airflow_backfill_provider.dag_factory import backfill_dag
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState

DAYS = {"start_date": "2024-03-02", "end_date": "2024-03-05"}


def questions(sent: list[Any]) -> list[str]:
    """The subjects of what Airflow shows people."""
    return [message.subject for message in sent if isinstance(message, CreateHITLDetailPayload)]


def run_of(shop: Shop, approval: str, run_id: str = "one", **params: Any) -> HandRun:
    """A run of the factory's DAG, in a spec with these rules about people."""
    if "approval:" not in shop.spec_file.read_text():
        shop.spec_file.write_text(f"{shop.spec_file.read_text()}approval: {approval}\n", encoding="utf-8")
    return HandRun(backfill_dag(shop.spec), run_id=run_id, params=params, states={"pool_ready": "success"})


def test_a_throttle_holds_the_work_back_and_not_the_question_before_it(throttled: Shop, sent: list[Any]) -> None:
    run = run_of(throttled, "{required: always}", **DAYS)
    run.execute("scope_partitions")
    with pytest.raises(TaskAwaitingInput) as waits:
        run.execute("approve_plan")
    assert len(questions(sent)) == 1
    gate: Any = run.dag.task_dict["approve_plan"]
    event = {"chosen_options": ["Approve"], "responded_by_user": {"id": "ben", "name": "ben"}}
    assert gate.answered(run.context(gate), event, **waits.value.kwargs)["gate"] == "plan"
    with pytest.raises(AirflowRescheduleException):
        run.execute("trial")
    with throttled.ledger() as ledger:
        assert {record.attempt for record in ledger.partitions(backfill_id("backfill__orders", "one")).values()} == {0}


def test_a_run_that_stops_before_the_publish_asks_nobody_about_it_and_a_later_one_does(
    shop: Shop, sent: list[Any]
) -> None:
    found = backfill_id("backfill__orders", "one")
    before_the_gate = ("scope_partitions", "trial", "partitions.stage_recompute", "partitions.validate_partition")

    def up_to_the_gate(run: HandRun) -> HandRun:
        for task_id in (*before_the_gate, "validate_range"):
            run.execute(task_id)
            run.states[task_id] = "success"
        return run

    first = up_to_the_gate(run_of(shop, "{before_publish: true}", mode="stage", **DAYS))
    with pytest.raises(AirflowSkipException, match="mode is stage"):
        first.execute("approve_publish")
    assert questions(sent) == []
    first.states |= {"approve_publish": "skipped", "atomic_publish": "skipped"}
    assert f"Backfill {found} of analytics.orders: validated" in first.execute("report")[0]

    later = run_of(shop, "", run_id="two", backfill_id=found, mode="publish", start_date=None)
    with pytest.raises(TaskAwaitingInput):
        up_to_the_gate(later).execute("approve_publish")
    (subject,) = questions(sent)
    assert subject.startswith(f"Backfill {found} of orders: approve publish")
    with shop.ledger() as ledger:
        assert ledger.backfill(found).state is BackfillState.AWAITING_APPROVAL
    assert shop.corrected() == []
