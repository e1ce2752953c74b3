"""One run of a DAG in this process: every task in order, with real XComs, states and templates, and no scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pendulum
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

START, END = datetime(2024, 3, 4, tzinfo=UTC), datetime(2024, 3, 5, tzinfo=UTC)


@dataclass
class HandRun:
    """A run of one data interval, March 4 unless told otherwise."""

    dag: DAG
    run_id: str = "scheduled__2024-03-04"
    start: datetime = START
    end: datetime = END
    params: dict[str, Any] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    other_runs: dict[str, dict[str, str]] = field(default_factory=dict)
    """What Airflow says of the tasks of other runs, by run id."""
    started_at: datetime | None = None
    """When Airflow began the run."""
    clear_number: int = 0
    outlet_events: OutletEventAccessors = field(default_factory=OutletEventAccessors)

    def run(self) -> dict[str, str]:
        """Run every task whose upstream went well, or that runs always; the state of each."""
        for task in self.dag.topological_sort():
            upstream = {self.states[task_id] for task_id in task.upstream_task_ids}
            if task.trigger_rule in ("all_done", "all_done_setup_success") or upstream <= {"success"}:
                self.states[task.task_id] = self._state_of(task.task_id)
            else:
                self.states[task.task_id] = "upstream_failed" if "skipped" not in upstream else "skipped"
        return self.states

    def execute(self, task_id: str, attempt: int = 1) -> Any:
        """Run one task as Airflow does, each mapped one in turn; what the last one returned."""
        result = None
        for index, task in self._instances(task_id):
            context = self.context(task, index, attempt)
            task.render_template_fields(context)
            result = self.xcoms[task_id, "return_value"] = task.execute(context)
        return result

    def context(self, task: Any, index: int = -1, attempt: int = 1) -> Any:
        dag_run = SimpleNamespace(
            dag_id=self.dag.dag_id,
            run_id=self.run_id,
            triggering_user_name="ann",
            conf={},
            start_date=self.started_at,
            clear_number=self.clear_number,
        )
        ti = SimpleNamespace(
            id=uuid4(),
            task_id=task.task_id,
            dag_id=self.dag.dag_id,
            run_id=self.run_id,
            map_index=index,
            try_number=attempt,
            max_tries=task.retries,
            xcom_push=lambda key, value: self.xcoms.__setitem__((task.task_id, key), value),
            xcom_pull=lambda task_ids, key="return_value", **_: self.xcoms.get((task_ids, key)),
            get_dag=lambda dag_id: SimpleNamespace(is_paused=False),
            get_task_states=self._states,
        )
        return {
            "dag": self.dag,
            "dag_run": dag_run,
            "ti": ti,
            "task_instance": ti,
            "task": task,
            "run_id": self.run_id,
            "params": self.params,
            "data_interval_start": pendulum.instance(self.start),
            "data_interval_end": pendulum.instance(self.end),
            "outlet_events": self.outlet_events,
        }

    def _states(self, dag_id: str, run_ids: list[str], task_ids: list[str] | None = None) -> dict[str, dict[str, str]]:
        known = {self.run_id: self.states, **self.other_runs}
        return {
            run_id: {name: state for name, state in known[run_id].items() if task_ids is None or name in task_ids}
            for run_id in run_ids
            if run_id in known
        }

    def _state_of(self, task_id: str) -> str:
        try:
            self.execute(task_id)
        except AirflowSkipException:
            return "skipped"
        return "success"

    def _instances(self, task_id: str) -> Iterator[tuple[int, Any]]:
        task = self.dag.task_dict[task_id]
        if isinstance(task, MappedOperator):
            batches = self.xcoms[next(iter(task.iter_mapped_dependencies())).task_id, "return_value"]
            for index, batch in enumerate(batches):
                yield index, task.unmap({"batch": batch})
        elif task.get_closest_mapped_task_group() is not None:
            for index, batch in enumerate(self.xcoms["scope_partitions", "return_value"]):
                one = copy(task)
                one.batch = batch
                yield index, one
        else:
            yield -1, copy(task)  # which is rendered anew each time
