"""Runs of a Databricks job or notebook, by Airflow's own hook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow.providers.databricks.exceptions import DatabricksApiError
from airflow.providers.databricks.hooks.databricks import DatabricksHook
from airflow.sdk.exceptions import AirflowException

from airflow_backfill_provider.errors import CodeFailed, ConnectionLost
from airflow_backfill_provider.operators.refusals import REFUSALS
from airflow_backfill_provider.spec.databricks_job import DatabricksJobSpec

if TYPE_CHECKING:
    from airflow_backfill_provider.recompute import Progress

_TASK = "recompute"


class DatabricksRuns:
    """The runs of one job or notebook; a handle is a run's id. See :class:`airflow_backfill_provider.recompute.Elsewhere`."""

    def __init__(self, job: DatabricksJobSpec, conn_id: str) -> None:
        self._job = job
        self._hook = DatabricksHook(conn_id)

    def submit(self, name: str, told: Mapping[str, Any]) -> str:
        """Databricks begins no second run with a token that it knows; what was told of belongs to the token, as another Airflow
        may give a run the same name."""
        parameters = {key: str(value) for key, value in told.items()}
        token = sha256(repr([self._job.name, name, sorted(parameters.items())]).encode()).hexdigest()
        with self._calling(f"The {self._job.name} could not be run"):
            if self._job.job_id is not None:
                asked = {"job_id": self._job.job_id, "job_parameters": parameters, "idempotency_token": token}
                return str(self._hook.run_now(asked))
            task: dict[str, Any] = {
                "task_key": _TASK,
                "notebook_task": {"notebook_path": self._job.notebook, "base_parameters": parameters},
            }
            if self._job.existing_cluster_id is not None:
                task["existing_cluster_id"] = self._job.existing_cluster_id
            return str(self._hook.submit_run({"run_name": name, "tasks": [task], "idempotency_token": token}))

    def find(self, name: str) -> str | None:
        """:raises CodeFailed: always; Databricks tells the number of a run to whoever begins it, and to nobody by a name."""
        raise CodeFailed(
            f"Nobody answered whether the {self._job.name} was begun for {name}, and Databricks finds no run by that name."
        )

    def look(self, handle: str) -> Progress:
        from airflow_backfill_provider.recompute import Progress

        with self._calling(f"The run {handle} of the {self._job.name} cannot be looked at"):
            run = self._hook.get_run(int(handle))
        state = run["state"]
        if state["life_cycle_state"] not in _OVER:
            return Progress(is_over=False)
        if (result := state.get("result_state")) == "SUCCESS":
            return Progress(is_over=True)
        told = [state.get("state_message") or "", run.get("run_page_url") or ""]
        return Progress(
            is_over=True,
            failure=f"the run {handle} is {result or state['life_cycle_state']}. {' '.join(filter(None, told))}",
        )

    def cancel(self, handle: str) -> None:
        with self._calling(f"The run {handle} of the {self._job.name} could not be cancelled"):
            self._hook.cancel_run(int(handle))

    @contextmanager
    def _calling(self, failed: str) -> Iterator[None]:
        try:
            yield
        except (AirflowException, OSError) as error:
            is_refused = isinstance(error, DatabricksApiError) and error.http_status_code in REFUSALS
            raise (CodeFailed if is_refused else ConnectionLost)(f"{failed}: {error} Nothing was staged.") from error


_OVER = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
"""States of a run from which it goes nowhere."""
