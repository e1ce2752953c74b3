"""The DAG files of dags/ on a real scheduler: operators wired by hand, and the guard of a scheduled DAG."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_backfill_provider.demo.airflow_api import AirflowApi
from airflow_backfill_provider.demo.data import build_warehouse
from airflow_backfill_provider.demo.local_airflow import LocalAirflow
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.operators.dag_runs import DagRuns
from airflow_backfill_provider.spec.dag_run import DagRunSpec

pytestmark = [pytest.mark.scheduler, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def api(
    airflow_server: LocalAirflow, add_dags: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory
) -> AirflowApi:
    """The examples, and the warehouse they read."""
    folder = tmp_path_factory.mktemp("flights")
    airflow_server.cli("safe-backfill", "init", "--ledger", str(folder / "ledger.db"))
    build_warehouse(folder / "flights.duckdb")
    api = airflow_server.api
    api.set_connection("warehouse_backfill", "duckdb", host=str(folder / "flights.duckdb"))
    add_dags(Path(__file__).parents[2] / "dags")
    for dag_id in (
        "example_backfill_by_hand",
        "example_rollback_by_hand",
        "example_carriers_monthly",
        "backfill__busiest_hours",
    ):
        api.wait_for_dag(dag_id)
    return api


@pytest.fixture
def rows(api: AirflowApi) -> Callable[[str], list[tuple[Any, ...]]]:
    path = api.request("GET", "/connections/warehouse_backfill")["host"]

    def ask(sql: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(path, read_only=True) as connection:
            return connection.execute(sql).fetchall()

    return ask


def test_a_backfill_wired_by_hand_publishes_and_the_rollback_wired_by_hand_restores(
    api: AirflowApi, rows: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    unknown = "SELECT count(*) FROM analytics.fct_flights WHERE arrival_delay_minutes IS NULL"
    dag_id = "example_backfill_by_hand"
    run_id = api.trigger(dag_id, {"first": "2013-02-01", "last": "2013-02-09"})
    assert api.wait_for_run(dag_id, run_id) == "success", api.failures(dag_id, run_id)
    states = api.task_states(dag_id, run_id)
    assert set(states.values()) == {"success"}
    assert {task_id.split("[")[0] for task_id in states} == {
        "scope",
        "trial",
        "stage",
        "validate",
        "validate_range",
        "publish",
        "report",
    }
    labels = {task["rendered_map_index"] for task in api.task_instances(dag_id, run_id) if task["task_id"] == "stage"}
    assert "2013-02-01 … 2013-02-03" in labels
    corrected = rows(unknown)[0][0]
    assert corrected > 475 + 393
    found = backfill_id(dag_id, run_id)
    assert f"by hand, in {run_id}" in api.task_log(dag_id, run_id, "scope")

    undo = api.trigger("example_rollback_by_hand", {"backfill_id": found})
    assert api.wait_for_run("example_rollback_by_hand", undo) == "success", api.failures(
        "example_rollback_by_hand", undo
    )
    assert rows(unknown) == [(0,)]


def test_a_guarded_scheduled_run_holds_its_month_and_gives_it_back(
    airflow_server: LocalAirflow, api: AirflowApi, rows: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    dag_id = "example_carriers_monthly"
    api.pause(dag_id, False)
    interval = {"data_interval_start": "2013-03-01T05:00:00Z", "data_interval_end": "2013-04-01T04:00:00Z"}
    body = {"logical_date": "2013-04-01T04:00:00Z", "conf": {}, **interval}
    run_id = str(api.request("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])
    assert api.wait_for_run(dag_id, run_id) == "success", api.failures(dag_id, run_id)
    assert set(api.task_states(dag_id, run_id).values()) == {"success"}
    log = api.task_log(dag_id, run_id, "guard_publish_month")
    assert "Holding [2013-03-01T05:00:00Z, 2013-04-01T04:00:00Z) of analytics.carriers_monthly" in log
    assert rows("SELECT DISTINCT CAST(month AS VARCHAR) FROM analytics.carriers_monthly") == [("2013-03-01",)]
    assert "No scheduled run holds a range." in airflow_server.cli("safe-backfill", "list", "--live")

    cleared = api.clear(dag_id, run_id, only_failed=False, task_ids=["publish_month"])
    assert {"guard_publish_month", "publish_month", "release_publish_month"} <= set(cleared)
    assert api.wait_for_run(dag_id, run_id) == "success", api.failures(dag_id, run_id)
    assert "No scheduled run holds a range." in airflow_server.cli("safe-backfill", "list", "--live")


def test_a_dag_of_the_team_fills_the_stage_once_per_partition_and_a_run_of_it_can_be_ended(
    airflow_server: LocalAirflow,
    api: AirflowApi,
    rows: Callable[[str], list[tuple[Any, ...]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = api.request("GET", "/connections/warehouse_backfill")["host"]
    with duckdb.connect(path) as connection:
        connection.execute(
            "CREATE TABLE analytics.busiest_hours (flight_date DATE, origin VARCHAR, busiest_hour INTEGER, flights INTEGER)"
        )
    dag_id, theirs = "backfill__busiest_hours", "busiest_hours_of_a_day"
    conf = {"start_date": "2013-02-08", "end_date": "2013-02-09", "reason": "the table is new"}
    run_id = api.trigger(dag_id, conf)
    assert api.wait_for_run(dag_id, run_id, timeout=600) == "success", api.failures(dag_id, run_id)
    assert [(row[0].day, row[1]) for row in rows("SELECT * FROM analytics.busiest_hours ORDER BY ALL")] == [
        (day, origin) for day in (8, 9) for origin in ("EWR", "JFK", "LGA")
    ]
    runs = api.request("GET", f"/dags/{theirs}/dagRuns")["dag_runs"]
    found = backfill_id(dag_id, run_id)
    assert sorted(run["dag_run_id"].removeprefix(f"safe_backfill__{found}__").rpartition("_")[0] for run in runs) == [
        "2013-02-08__1",
        "2013-02-08__2",  # the trial's second run
        "2013-02-09__1",
    ]

    api.pause(theirs, True)
    waiting = api.trigger(theirs, {})
    host, port = api.url.removeprefix("http://").split(":")
    login = {"conn_type": "http", "host": host, "port": int(port), "login": "admin"}
    login["password"] = airflow_server.passwords["admin"]
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_API", json.dumps(login))
    DagRuns(DagRunSpec(dag_id=theirs, api_conn_id="airflow_api"), {"ti": None}).cancel(waiting)  # type: ignore[typeddict-item]
    assert api.run(theirs, waiting)["state"] == "failed"
