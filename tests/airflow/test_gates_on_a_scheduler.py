"""A backfill that waits for people, on a real scheduler: approved, rejected, unanswered, and asked anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import LocalAirflow
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger

pytestmark = [pytest.mark.scheduler, pytest.mark.timeout(900)]

DAG_ID = "backfill__asked"
PATIENCE = 40.0
"""Seconds that people take at least: more than the task's execution_timeout."""


class Clinic:
    """A published table with a mistake in it, and the people who are asked about its correction."""

    def __init__(self, airflow: LocalAirflow, folder: Path) -> None:
        self.airflow, self.api, self.path = airflow, airflow.api, folder / "clinic.duckdb"
        self.ben = AirflowApi(airflow.url, "ben", airflow.passwords["ben"])
        self.ledger_path = self.api.request("GET", "/connections/safe_backfill_ledger")["host"]

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.path)) as connection:
            return connection.execute(statement).fetchall()

    def corrected(self, first: int, last: int) -> int:
        days = f"visit_date BETWEEN DATE '2024-03-{first:02d}' AND DATE '2024-03-{last:02d}'"
        return int(self.sql(f"SELECT count(*) FROM analytics.visits WHERE amount IS NULL AND {days}")[0][0])

    def trigger(self, dag_id: str, **conf: Any) -> tuple[str, str]:
        run_id = self.api.trigger(dag_id, conf)
        return run_id, conf.get("backfill_id") or backfill_id(dag_id, run_id)

    def question(self, run_id: str, task_id: str = "approve_plan") -> dict[str, Any]:
        """What a person is shown, once the task waits."""

        def look() -> dict[str, Any] | None:
            state = self.api.task_states(DAG_ID, run_id).get(task_id)
            assert state not in ("failed", "upstream_failed"), self.api.failures(DAG_ID, run_id)
            return (
                self.api.request("GET", f"{_task(run_id, task_id)}/hitlDetails") if state == "awaiting_input" else None
            )

        return wait_until(look, f"{task_id} to wait", timeout=180)

    def answer(self, run_id: str, option: str, task_id: str = "approve_plan", note: str = "") -> str:
        """Answer as ben for as long as it is asked; the task's state then.

        LocalExecutor may run a task again that is resumed within seconds of its wait, and it asks again then.
        """

        def look() -> str | None:
            state = str(self.api.task_states(DAG_ID, run_id).get(task_id))
            place = f"{_task(run_id, task_id)}/hitlDetails"
            if state == "awaiting_input" and not self.api.request("GET", place)["response_received"]:
                self.say(self.ben, run_id, option, task_id, note)
            return state if state in ("success", "failed") else None

        return wait_until(look, f"{task_id} to take the answer", timeout=180, every=1)

    def say(self, who: AirflowApi, run_id: str, option: str, task_id: str = "approve_plan", note: str = "") -> None:
        answer = {"chosen_options": [option], "params_input": {"note": note}}
        who.request("PATCH", f"{_task(run_id, task_id)}/hitlDetails", json=answer)

    def ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.ledger_path}")

    def not_counted(self, found: str) -> list[str]:
        """Why approvals of the backfill did not count."""
        with self.ledger() as ledger:
            return [event.detail["reason"] for event in ledger.events(found, "approval.not_counted")]

    def state(self, found: str) -> BackfillState:
        with self.ledger() as ledger:
            return ledger.backfill(found).state


def _task(run_id: str, task_id: str) -> str:
    return f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}/-1"


@pytest.fixture(scope="module")
def clinic(
    airflow_server: LocalAirflow, add_dags: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clinic]:
    folder = tmp_path_factory.mktemp("clinic")
    airflow_server.cli("safe-backfill", "init", "--ledger", str(folder / "ledger.db"))
    clinic = Clinic(airflow_server, folder)
    clinic.sql(
        """
        CREATE SCHEMA raw; CREATE SCHEMA analytics;
        CREATE TABLE raw.visits AS
            SELECT i AS visit_id, DATE '2024-03-01' + CAST(i // 5 AS INTEGER) AS visit_date, 10 AS amount, i % 5 = 0 AS refunded
            FROM range(50) AS t (i);
        CREATE TABLE analytics.visits AS SELECT visit_id, visit_date, amount FROM raw.visits;
        """
    )
    clinic.api.set_connection("clinic", "duckdb", host=str(clinic.path))
    add_dags(Path(__file__).parent / "gate_dags")
    for dag_id in (DAG_ID, "backfill__asked_briefly"):
        clinic.api.wait_for_dag(dag_id)
    yield clinic
    clinic.ben.close()


def test_people_approve_after_the_execution_timeout_reject_or_keep_silent(clinic: Clinic) -> None:
    api = clinic.api
    unanswered, silent = clinic.trigger("backfill__asked_briefly", start_date="2024-03-09", end_date="2024-03-10")
    approved, good = clinic.trigger(DAG_ID, start_date="2024-03-01", end_date="2024-03-02", reason="refunds")
    rejected, bad = clinic.trigger(DAG_ID, start_date="2024-03-04", end_date="2024-03-05")

    asked, since = clinic.question(approved), time.monotonic()
    assert asked["subject"].startswith(f"Backfill {good} of asked: approve plan ")
    assert "2 partitions" in asked["body"]
    assert "Asked for by admin: refunds" in asked["body"]
    assert clinic.state(good) is BackfillState.AWAITING_APPROVAL
    assert not any(state for task, state in api.task_states(DAG_ID, approved).items() if "stage_recompute" in task)
    clinic.say(api, approved, "Approve")  # admin is an approver, and asked for it
    assert wait_until(lambda: clinic.not_counted(good) or None, "the answer of who asked to be heard", timeout=180) == [
        "admin asked for it, and the spec wants another pair of eyes"
    ]
    clinic.question(approved)
    assert clinic.state(good) is BackfillState.AWAITING_APPROVAL

    clinic.question(rejected)
    clinic.answer(rejected, "Reject", note="not in March")
    assert api.wait_for_run(DAG_ID, rejected) == "failed"
    assert clinic.state(bad) is BackfillState.REJECTED

    time.sleep(max(0, since + PATIENCE - time.monotonic()))
    assert api.task_states(DAG_ID, approved)["approve_plan"] == "awaiting_input"
    clinic.answer(approved, "Approve", note="checked with finance")
    assert "10 published rows would become 10" in clinic.question(approved, "approve_publish")["body"]
    assert clinic.corrected(1, 2) == 0
    clinic.answer(approved, "Approve", "approve_publish")
    assert api.wait_for_run(DAG_ID, approved) == "success", api.failures(DAG_ID, approved)
    assert clinic.corrected(1, 2) == 2
    with clinic.ledger() as ledger:
        said = [(one.question.gate, one.decision, one.decided_by, one.reason) for one in ledger.approvals(good)]
    assert said == [("plan", "approved", "ben", "checked with finance"), ("publish", "approved", "ben", "")]

    assert api.wait_for_run("backfill__asked_briefly", unanswered) == "failed"
    assert clinic.state(silent) is BackfillState.REJECTED
    with clinic.ledger() as ledger:
        assert ledger.approvals(silent)[0].reason == "nobody answered within 2 seconds"


def test_another_plan_is_never_asked_about_under_the_question_that_airflow_keeps_of_the_first(clinic: Clinic) -> None:
    api = clinic.api
    staged, bad = clinic.trigger(DAG_ID, start_date="2024-03-06", end_date="2024-03-07", mode="stage")
    clinic.question(staged)
    clinic.answer(staged, "Reject")
    assert api.wait_for_run(DAG_ID, staged) == "failed"
    clinic.sql("UPDATE analytics.visits SET amount = 11 WHERE visit_id = 26")
    rebased, _ = clinic.trigger(DAG_ID, backfill_id=bad, rebase=True)
    first = clinic.question(rebased)
    assert "published rows of 1 partitions moved: 2024-03-06" in first["body"].replace("\\", "")
    clinic.sql("UPDATE analytics.visits SET amount = 12 WHERE visit_id = 26")
    api.clear(DAG_ID, rebased, only_failed=False, task_ids=["scope_partitions"])
    assert api.wait_for_run(DAG_ID, rebased) == "failed"
    assert "still shows the question of an earlier plan" in api.failures(DAG_ID, rebased)
    assert clinic.state(bad) is BackfillState.FAILED

    anew, _ = clinic.trigger(DAG_ID, backfill_id=bad)
    assert clinic.question(anew)["subject"] != first["subject"]
    clinic.answer(anew, "Approve")
    clinic.question(anew, "approve_publish")
    clinic.answer(anew, "Reject", "approve_publish")
    assert api.wait_for_run(DAG_ID, anew) == "failed"
    assert clinic.corrected(6, 7) == 0
    api.clear(DAG_ID, anew)
    clinic.question(anew, "approve_publish")
    clinic.answer(anew, "Approve", "approve_publish")
    assert api.wait_for_run(DAG_ID, anew) == "success", api.failures(DAG_ID, anew)
    assert clinic.corrected(6, 7) == 2


def test_a_backfill_that_is_given_up_while_it_asks_says_who_asks_and_a_no_ends_that_run(clinic: Clinic) -> None:
    run_id, found = clinic.trigger(DAG_ID, start_date="2024-03-08", end_date="2024-03-08")
    clinic.question(run_id)
    printed = clinic.airflow.cli("safe-backfill", "abandon", found, "--reason", "not needed")
    assert f"Still asks: {DAG_ID} {run_id} approve_plan." in printed
    clinic.answer(run_id, "Reject")
    assert clinic.api.wait_for_run(DAG_ID, run_id) == "failed"
    assert clinic.state(found) is BackfillState.EXPIRED


def test_a_run_that_only_stages_ends_validated_with_nobody_asked_and_the_run_that_publishes_asks(
    clinic: Clinic,
) -> None:
    api = clinic.api
    staged, found = clinic.trigger(DAG_ID, start_date="2024-03-03", end_date="2024-03-03", mode="stage")
    clinic.question(staged)
    clinic.answer(staged, "Approve")
    assert api.wait_for_run(DAG_ID, staged) == "success", api.failures(DAG_ID, staged)
    assert api.task_states(DAG_ID, staged)["approve_publish"] == "skipped"
    assert clinic.state(found) is BackfillState.VALIDATED
    later, _ = clinic.trigger(DAG_ID, backfill_id=found, mode="publish")
    clinic.question(later, "approve_publish")
    assert clinic.corrected(3, 3) == 0
    clinic.answer(later, "Approve", "approve_publish")
    assert api.wait_for_run(DAG_ID, later) == "success", api.failures(DAG_ID, later)
    assert clinic.corrected(3, 3) == 1
