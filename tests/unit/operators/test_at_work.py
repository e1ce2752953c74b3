"""Whether a rollback may take a publish for dead: by what Airflow says of the tasks of the backfill's runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_backfill_provider.ledger.records import AirflowTask
from airflow_backfill_provider.operators.at_work import nobody_is_at_work

RUNS = frozenset({("backfill__orders", "first"), ("backfill__orders", "second")})


def asked(
    states: dict[str, dict[str, str]],
    *,
    own: tuple[str, str] = ("rollback__orders", "undo"),
    publishers: frozenset[AirflowTask | None] = frozenset(),
) -> bool:
    """What the task ``rollback`` of the run ``own`` finds."""

    def get_task_states(dag_id: str, run_ids: list[str], task_ids: list[str] | None) -> dict[str, Any]:
        if missing := set(run_ids) - set(states):
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"missing": sorted(missing)}))
        return {
            run_id: {task: state for task, state in states[run_id].items() if task_ids is None or task in task_ids}
            for run_id in run_ids
        }

    ti = SimpleNamespace(dag_id=own[0], run_id=own[1], task_id="rollback", get_task_states=get_task_states)
    ledger: Any = SimpleNamespace(runs=lambda backfill_id: RUNS, publishers=lambda backfill_id: publishers)
    context: Any = {"ti": ti}
    return nobody_is_at_work(context, ledger, "0123456789ab")


DONE = {"scope_partitions": "success", "atomic_publish": "failed"}


@pytest.mark.parametrize("state", ["failed", "up_for_retry", "queued", "upstream_failed", "success"])
def test_a_task_that_does_not_run_publishes_nothing(state: str) -> None:
    assert asked({"first": DONE, "second": {"atomic_publish": state}})


@pytest.mark.parametrize("state", ["running", "restarting"])
def test_a_task_that_runs_in_any_run_of_the_backfill_may_publish(state: str) -> None:
    assert not asked({"first": {"atomic_publish": state}, "second": DONE})


def test_the_rollback_of_the_same_run_does_not_wait_for_itself() -> None:
    states = {"first": DONE | {"rollback": "running"}, "second": DONE}
    assert asked(states, own=("backfill__orders", "first"))
    assert not asked(states, own=("backfill__orders", "second"))


def test_of_a_run_that_this_airflow_does_not_know_nothing_is_known() -> None:
    assert not asked({"first": DONE})
    assert not asked({"first": DONE, "second": {}})


def test_of_tasks_that_are_known_to_publish_only_those_are_asked_about() -> None:
    first = AirflowTask("backfill__orders", "first", "atomic_publish")
    other = AirflowTask("publish_what_is_validated", "by hand", "publish")
    states = {"first": DONE | {"train_the_model": "running"}, "by hand": {"publish": "running"}}
    assert asked(states, publishers=frozenset({first}))
    assert not asked(states, publishers=frozenset({first, other}))
    assert asked(states | {"by hand": {"publish": "failed"}}, publishers=frozenset({first, other}))
    assert not asked(states, publishers=frozenset({first, AirflowTask("publish_what_is_validated", "gone", "publish")}))


def test_where_one_of_the_publishing_tasks_is_not_known_every_run_is_asked_about() -> None:
    first = AirflowTask("backfill__orders", "first", "atomic_publish")
    states = {"first": DONE, "second": {"publish_it": "running"}}
    assert asked(states, publishers=frozenset({first}))
    assert not asked(states, publishers=frozenset({first, None}))
