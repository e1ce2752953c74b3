"""The gate's question in Airflow: an approver can answer it, whatever the auth manager takes for an id."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.execution_time import task_runner
from hand_run import HandRun
from operators_world import OF_THE_DAY, SPEC, Shop

from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.operators.approval import ApprovalGateOperator
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator

BEN, EVE, ANN = {"id": "7", "name": "ben"}, {"id": "9", "name": "eve"}, {"id": "3", "name": "ann"}


class Airflow:
    """What keeps the question, and lets people answer as ``update_hitl_detail`` of Airflow's API does."""

    def send(self, message: Any) -> Any:
        self.asked = message
        return message

    def lets(self, user: dict[str, str]) -> bool:
        assigned = {one.id for one in self.asked.assigned_users or ()}
        return not assigned or user["id"] in assigned


class Asked:
    """A run that ann triggered, whose gate waits."""

    def __init__(self, shop: Shop, airflow: Airflow) -> None:
        shop.spec_file.write_text(SPEC + "approval: {required: always, approvers: [Ben, ann]}\n", encoding="utf-8")
        with DAG("by_hand", schedule=None) as dag:
            scoped = ScopePartitionsOperator(task_id="plan_it", spec=shop.spec, request=OF_THE_DAY)
            scoped >> ApprovalGateOperator(task_id="ask", gate="plan", spec=shop.spec)
        self.shop, self.airflow, self.run = shop, airflow, HandRun(dag)
        self.run.execute("plan_it")
        self.gate = dag.task_dict["ask"]
        self.context = self.run.context(self.gate)
        self.context["ti"].id = uuid4()
        with pytest.raises(TaskAwaitingInput) as waits:
            self.gate.execute(self.context)
        self.waits = waits.value

    def answer(self, user: dict[str, str]) -> Any:
        event = {"responded_by_user": user, "chosen_options": ["Approve"], "params_input": {}}
        return self.gate.answered(self.context, event=event, **self.waits.kwargs)

    @property
    def state(self) -> BackfillState:
        with self.shop.ledger() as ledger:
            return ledger.backfill(backfill_id("by_hand", self.run.run_id)).state


@pytest.fixture
def asked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Asked:
    airflow = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return Asked(shop, airflow)


def test_an_approver_who_is_written_by_name_can_answer_though_airflow_knows_a_number(asked: Asked) -> None:
    assert asked.airflow.lets(BEN)
    assert asked.answer(BEN)["gate"] == "plan"
    assert asked.state is BackfillState.RUNNING


@pytest.mark.parametrize(
    ("user", "why"), [(EVE, "eve is not among approval.approvers (Ben, ann)"), (ANN, "ann asked for it")]
)
def test_an_approval_of_anybody_else_does_not_count_and_the_question_is_asked_again(
    asked: Asked, user: dict[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.airflow.asked = None
    with pytest.raises(TaskAwaitingInput):
        asked.answer(user)
    assert asked.airflow.asked is not None
    assert why in capsys.readouterr().out
    assert asked.state is BackfillState.AWAITING_APPROVAL
