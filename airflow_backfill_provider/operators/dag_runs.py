"""Runs of the team's own DAGs: triggered and looked at as Airflow's own TriggerDagRunOperator does it, by the task's supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import DagRunState
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError, ErrorType

from airflow_backfill_provider.errors import BackfillError, CodeFailed, ConnectionLost
from airflow_backfill_provider.operators.refusals import REFUSALS
from airflow_backfill_provider.spec.dag_run import DagRunSpec

if TYPE_CHECKING:
    from airflow_backfill_provider.recompute import Progress

_GOING = (DagRunState.QUEUED, DagRunState.RUNNING)


class DagRuns:
    """The runs of one DAG; a handle is a run's id. See :class:`airflow_backfill_provider.recompute.Elsewhere`."""

    def __init__(self, dag: DagRunSpec, context: Context) -> None:
        self._dag, self._ti = dag, context["ti"]

    def submit(self, name: str, told: Mapping[str, Any]) -> str:
        try:
            # A run that is there already may be over, whatever became of its DAG since.
            if not self._is_there(name):
                self._require_unpaused("a run of it")
                self._trigger(name, told)
        except AirflowRuntimeError as error:
            raise _unanswered(
                error, f"The DAG {self._dag.dag_id} could not be triggered: {error}. Nothing was staged."
            ) from error
        return name

    def find(self, name: str) -> str | None:
        try:
            return name if self._is_there(name) else None
        except AirflowRuntimeError as error:
            raise _unanswered(error, f"The run {name} of {self._dag.dag_id} cannot be looked for: {error}.") from error

    def _is_there(self, name: str) -> bool:
        return bool(self._ti.get_dr_count(self._dag.dag_id, run_ids=[name]))

    def _trigger(self, name: str, told: Mapping[str, Any]) -> None:
        from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        answer = SUPERVISOR_COMMS.send(TriggerDagRun(dag_id=self._dag.dag_id, run_id=name, conf=dict(told)))
        if isinstance(answer, ErrorResponse) and answer.error is not ErrorType.DAGRUN_ALREADY_EXISTS:
            raise CodeFailed(
                f"The DAG {self._dag.dag_id} could not be triggered: {answer.error.value}. Nothing was staged."
            )

    def look(self, handle: str) -> Progress:
        from airflow_backfill_provider.recompute import Progress

        try:
            state = DagRunState(self._ti.get_dagrun_state(self._dag.dag_id, handle))
            if state in _GOING:
                self._require_unpaused(f"its run {handle}")
                return Progress(is_over=False)
        except AirflowRuntimeError as error:
            raise _unanswered(error, f"The run {handle} of {self._dag.dag_id} cannot be looked at: {error}.") from error
        failure = (
            "" if state == "success" else f"the run of the DAG {self._dag.dag_id} is {state}; its tasks' logs say why."
        )
        return Progress(is_over=True, failure=failure)

    def _require_unpaused(self, who: str) -> None:
        """:raises CodeFailed: the DAG is paused, so that no run of it comes to its end."""
        if self._ti.get_dag(self._dag.dag_id).is_paused:
            raise CodeFailed(
                f"The DAG {self._dag.dag_id} is paused, so {who} would wait for ever. Nothing was staged. Unpause it and clear this task."
            )

    def cancel(self, handle: str) -> None:
        """Mark the run failed, which ends its running tasks."""
        import httpx

        conn_id = self._dag.api_conn_id
        if conn_id is None:
            raise CodeFailed(
                "transform.dag.api_conn_id names no connection to Airflow's API, by which a run could be ended"
            )
        try:
            connection = BaseHook.get_connection(conn_id)
            base = f"{connection.schema or 'http'}://{connection.host}:{connection.port or 8080}"
            with httpx.Client(base_url=base, timeout=10) as client:
                login = {"username": connection.login, "password": connection.password}
                token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
                client.patch(
                    f"/api/v2/dags/{self._dag.dag_id}/dagRuns/{handle}",
                    json={"state": "failed"},
                    headers={"Authorization": f"Bearer {token}"},
                ).raise_for_status()
        except (AirflowException, AirflowRuntimeError, httpx.HTTPError, KeyError, ValueError) as error:
            raise CodeFailed(f"{conn_id}: {type(error).__name__}") from error


def _unanswered(error: AirflowRuntimeError, said: str) -> BackfillError:
    """The refusal, or that nobody could be asked."""
    status = (error.error.detail or {}).get("status_code")
    return CodeFailed(said) if status in REFUSALS else ConnectionLost(said)
