"""What becomes of a run of the team's DAG when that DAG is paused, or there is none; a scheduler's test runs the rest."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_backfill_provider.errors import CodeFailed, ConnectionLost
from airflow_backfill_provider.operators.dag_runs import DagRuns
from airflow_backfill_provider.spec.dag_run import DagRunSpec


@dataclass
class Supervisor:
    """What a task's supervisor knows of one DAG and the runs of it."""

    runs: dict[str, str]
    is_paused: bool = False
    status: int = 404
    """What the API server answers when it has no answer."""
    is_away: bool = False

    def get_dag(self, dag_id: str) -> Any:
        return SimpleNamespace(is_paused=self.is_paused)

    def get_dr_count(self, dag_id: str, run_ids: list[str]) -> int:
        if self.is_away:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 503}))
        return len(self.runs.keys() & set(run_ids))

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        if run_id not in self.runs:
            raise AirflowRuntimeError(
                ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": self.status})
            )
        return self.runs[run_id]


def runs(supervisor: Supervisor) -> DagRuns:
    return DagRuns(DagRunSpec(dag_id="theirs"), {"ti": supervisor})  # type: ignore[typeddict-item]


def test_a_run_that_is_over_is_taken_though_its_dag_was_paused_since() -> None:
    found = runs(Supervisor({"r1": "success"}, is_paused=True))
    handle = found.submit("r1", {})
    assert found.look(handle).is_over
    assert not found.look(handle).failure


def test_no_run_is_begun_of_a_dag_that_is_paused() -> None:
    with pytest.raises(CodeFailed, match="theirs is paused, so a run of it would wait"):
        runs(Supervisor({}, is_paused=True)).submit("r1", {})


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_whose_dag_is_paused_while_it_is_waited_for_is_told_of(state: str) -> None:
    supervisor = Supervisor({"r1": state})
    assert not runs(supervisor).look("r1").is_over
    supervisor.is_paused = True
    with pytest.raises(CodeFailed, match="its run r1 would wait for ever"):
        runs(supervisor).look("r1")


def test_a_run_that_failed_says_where_to_look() -> None:
    assert "logs say why" in runs(Supervisor({"r1": "failed"})).look("r1").failure


def test_a_run_that_nobody_knows_cannot_be_looked_at() -> None:
    with pytest.raises(CodeFailed, match="r1 of theirs cannot be looked at"):
        runs(Supervisor({})).look("r1")


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_an_api_server_that_does_not_answer_says_nothing_of_the_run(status: int) -> None:
    with pytest.raises(ConnectionLost, match="r1 of theirs cannot be looked at"):
        runs(Supervisor({}, status=status)).look("r1")


def test_a_run_of_which_nobody_knows_whether_it_was_begun_is_found_by_its_name() -> None:
    supervisor = Supervisor({"r1": "running"}, is_paused=True)
    assert (runs(supervisor).find("r1"), runs(supervisor).find("r2")) == ("r1", None)
    supervisor.is_away = True
    with pytest.raises(ConnectionLost, match="r1 of theirs cannot be looked for"):
        runs(supervisor).find("r1")
