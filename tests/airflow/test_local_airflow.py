"""The runner that the demo and the scheduler tests stand on, proven without the product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import LocalAirflow

pytestmark = pytest.mark.scheduler
DAG_ID = "runner_smoke"


@pytest.fixture(scope="module")
def api(airflow_server: LocalAirflow, add_dags: Any) -> AirflowApi:
    add_dags(Path(__file__).parent / "runner_dags" / "runner_smoke.py")
    airflow_server.api.wait_for_dag(DAG_ID)
    return airflow_server.api


def task_state(api: AirflowApi, run_id: str, task_id: str) -> str | None:
    return api.task_states(DAG_ID, run_id).get(task_id)


def test_a_triggered_run_gets_its_conf_and_ends_in_success(api: AirflowApi) -> None:
    run_id = api.trigger(DAG_ID, {"colour": "green"})

    assert api.wait_for_run(DAG_ID, run_id) == "success"
    assert api.run(DAG_ID, run_id)["conf"] == {"colour": "green"}
    assert api.task_states(DAG_ID, run_id) == {"echo": "success", "hold": "success"}


def test_a_failed_run_shows_its_error_and_clearing_it_reruns_only_what_failed(api: AirflowApi, tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    run_id = api.trigger(DAG_ID, {"fail_unless": str(needed)})
    assert api.wait_for_run(DAG_ID, run_id) == "failed"
    assert f"RuntimeError: {needed} is not there" in api.failures(DAG_ID, run_id)

    needed.touch()
    cleared = api.clear(DAG_ID, run_id)

    assert cleared == ["echo", "hold"]
    assert api.wait_for_run(DAG_ID, run_id) == "success"


def test_a_paused_dag_starts_nothing_until_it_goes_on(api: AirflowApi) -> None:
    api.pause(DAG_ID)
    run_id = api.trigger(DAG_ID)
    with pytest.raises(TimeoutError):
        api.wait_for_run(DAG_ID, run_id, timeout=2)

    api.pause(DAG_ID, paused=False)

    assert api.wait_for_run(DAG_ID, run_id) == "success"


def test_a_killed_task_process_fails_its_task(api: AirflowApi, airflow_server: LocalAirflow, tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    run_id = api.trigger(DAG_ID, {"hold": str(held)})
    wait_until(lambda: task_state(api, run_id, "hold") == "running" or None, "the task to run", timeout=60)
    pids = {task["task_id"]: task["pid"] for task in api.task_instances(DAG_ID, run_id)}

    airflow_server.kill_task(pids["hold"])

    assert api.wait_for_run(DAG_ID, run_id) == "failed"


def test_a_run_goes_on_after_the_scheduler_died_and_was_started_again(
    api: AirflowApi, all_running: LocalAirflow, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    held.touch()
    run_id = api.trigger(DAG_ID, {"hold": str(held)})
    wait_until(lambda: task_state(api, run_id, "hold") == "running" or None, "the task to run", timeout=60)

    all_running.kill("scheduler")
    assert "scheduler" not in all_running.running()
    held.unlink()
    all_running.start("scheduler")

    assert api.wait_for_run(DAG_ID, run_id) == "success"


def test_variables_pools_and_connections_can_be_set_again(api: AirflowApi) -> None:
    for value in ("run", "stop"):
        api.set_variable("runner_switch", value)
        assert api.request("GET", "/variables/runner_switch")["value"] == value
    for slots in (4, 0):
        api.set_pool("runner_pool", slots)
        assert api.request("GET", "/pools/runner_pool")["slots"] == slots
    for host in ("/a", "/b"):
        api.set_connection("runner_conn", "sqlite", host=host)
        assert api.request("GET", "/connections/runner_conn")["host"] == host
    api.delete_variable("runner_switch")
    api.delete_pool("runner_pool")

    with pytest.raises(httpx.HTTPStatusError, match="404"):
        api.request("GET", "/variables/runner_switch")


def test_nothing_listens_beyond_loopback(airflow_server: LocalAirflow) -> None:
    assert set(airflow_server.running()) == {"api-server", "scheduler", "dag-processor", "triggerer"}

    listening = {
        (connection.laddr.ip, connection.laddr.port)
        for process in airflow_server.processes()
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening == {("127.0.0.1", airflow_server.port)}


def test_another_python_can_stop_it_and_nothing_is_left_behind(all_running: LocalAirflow) -> None:
    before = all_running.processes("scheduler")
    assert len(before) > 1, "the scheduler has workers"

    LocalAirflow(all_running.home, all_running.dags_folder).stop("scheduler")

    assert "scheduler" not in all_running.running()
    assert not [process for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
