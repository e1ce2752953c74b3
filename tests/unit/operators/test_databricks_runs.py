"""``transform.databricks_job``: real runs of notebooks on a local Spark fill the stage, by Airflow's own hook."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databricks_local import client
from databricks_local.shop import DAY, TABLE, create, needs_spark, rows, run, select
from hand_run import HandRun
from ledger_file import new_ledger
from operators_world import wired

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from airflow.providers.databricks.hooks.databricks import DatabricksHook
from airflow.sdk.exceptions import AirflowFailException

from airflow_backfill_provider.connections import warehouse_for
from airflow_backfill_provider.errors import CodeFailed, PartitionOverrun
from airflow_backfill_provider.operators.databricks_runs import DatabricksRuns
from airflow_backfill_provider.recompute import Progress
from airflow_backfill_provider.recompute.elsewhere import told_of
from airflow_backfill_provider.spec.databricks_job import DatabricksJobSpec
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Fill, Landing, Recompute, StagedPartition, Target, Warehouse

pytestmark = [
    needs_spark,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated"),  # by the provider
]
DAGS = Path(__file__).parents[3] / "dags"
CONN_ID = "databricks_backfill"
AMOUNTS = """
staging, day = dbutils.widgets.get("staging_table"), dbutils.widgets.get("partition_start")[:10]
more = dbutils.widgets.get("more")
spark.sql(
    f"SELECT id, day, CAST(amount + {more} AS DECIMAL(12,2)) AS amount FROM analytics.shop WHERE day >= DATE '{day}' "
    f"AND day < dateadd(DAY, {dbutils.widgets.get('days')}, DATE '{day}')"
).write.mode("append").saveAsTable(staging)
"""
STRAYING = "spark.sql(\"UPDATE analytics.shop SET amount = 0 WHERE day = DATE '2024-01-02'\")"
ENDLESS = "spark.sql('SELECT count(*) FROM range(100000000000)').collect()"


@pytest.fixture(autouse=True)
def workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Its folder ``Shared``, empty; the table of the shop is there, and Airflow knows the connection."""
    monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_BACKFILL", json.dumps(client.connection()))
    new_ledger(tmp_path)
    ledger = {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")}
    monkeypatch.setenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER", json.dumps(ledger))
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", "run")
    monkeypatch.setenv("AIRFLOW__SAFE_BACKFILL__REPORTS_FOLDER", str(tmp_path / "reports"))
    create()
    folder = client.start().workspace / "Shared"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def shop(**job: Any) -> BackfillSpec:
    return BackfillSpec.model_validate(
        {
            "name": "shop",
            "target": {"table": TABLE, "partition_by": "day", "key": ["id"]},
            "transform": {"databricks_job": {"poll_every": "1s"} | job},
            "compute": {"conn_id": CONN_ID},
        }
    )


@pytest.fixture
def warehouse() -> Iterator[Warehouse]:
    opened = warehouse_for(shop(job_id=1))
    yield opened
    opened.close()


@pytest.fixture
def target(warehouse: Warehouse) -> Target:
    return warehouse.describe(TABLE, "day", ["id"])


def runs(**job: Any) -> DatabricksRuns:
    return DatabricksRuns(DatabricksJobSpec(**job), CONN_ID)


def over(found: DatabricksRuns, handle: str) -> Progress:
    deadline = time.monotonic() + 120
    while not (progress := found.look(handle)).is_over and time.monotonic() < deadline:
        time.sleep(0.2)
    return progress


def by(found: DatabricksRuns, told: list[dict[str, str]], **extras: str) -> Fill:
    """Asks for the run twice, as a worker does that was killed before it knew the run's number."""

    def fill(landing: Landing) -> None:
        told.append({**extras, **told_of(DAY, "b1"), **landing.address})
        handle = found.submit("r1", told[-1])
        assert found.submit("r1", told[-1]) == handle
        assert over(found, handle) == Progress(is_over=True)
        landing.collect(landing.address)

    return fill


def kept(warehouse: Warehouse, target: Target, recompute: Recompute) -> StagedPartition:
    with warehouse.open_stage(target, "b1", "batch") as writer:
        (staged,) = writer.write(recompute)
    return staged


def test_a_job_s_rows_are_staged_as_a_select_s_are_and_asked_for_twice_it_runs_once(
    workspace: Path, warehouse: Warehouse, target: Target
) -> None:
    (workspace / "amounts.py").write_text(AMOUNTS)
    task = {"task_key": "t", "notebook_task": {"notebook_path": "/Shared/amounts", "base_parameters": {"days": "1"}}}
    job_id = DatabricksHook(CONN_ID).create_job({"name": "amounts", "tasks": [task]})
    told: list[dict[str, str]] = []

    staged = kept(warehouse, target, Recompute((DAY,), fill=by(runs(job_id=job_id), told, more="10")))
    assert staged.fingerprint == kept(warehouse, target, Recompute((DAY,), select())).fingerprint
    assert told[0]["staging_table"].count("`.`") == 2, "another session may look for it elsewhere"
    assert told[0]["staging_table"].rpartition("`.`")[2].rstrip("`") not in {
        item.location for item in warehouse.storage()
    }

    strays = by(runs(job_id=job_id), told, more="10", days="2")
    with pytest.raises(PartitionOverrun, match="1 of its 2 rows lie outside"):
        kept(warehouse, target, Recompute((DAY,), fill=strays))


def test_a_run_that_fails_says_why_and_one_that_is_cancelled_is_over(workspace: Path) -> None:
    (workspace / "failing.py").write_text("raise ValueError('no flights')")
    (workspace / "endless.py").write_text(ENDLESS)
    failing, endless = runs(notebook="/Shared/failing"), runs(notebook="/Shared/endless")

    going = endless.submit("r2", {})
    assert not endless.look(going).is_over
    assert "FAILED. ValueError: no flights" in over(failing, failing.submit("r1", {})).failure
    endless.cancel(going)
    assert "CANCELED" in over(endless, going).failure


def test_what_the_workspace_does_not_have_is_an_error_with_its_words() -> None:
    with pytest.raises(CodeFailed, match=r"Databricks job 987 could not be run.*Job 987 does not exist"):
        runs(job_id=987).submit("r1", {})
    with pytest.raises(CodeFailed, match=r"notebook /Shared/absent could not be run.*does not exist"):
        runs(notebook="/Shared/absent").submit("r1", {})
    with pytest.raises(CodeFailed, match="run 987 of the Databricks job 1 cannot be looked at"):
        runs(job_id=1).look("987")


def test_a_job_that_wrote_the_published_table_stops_the_backfill(workspace: Path) -> None:
    (workspace / "straying.py").write_text(f"{AMOUNTS}\n{STRAYING}")
    spec = shop(notebook="/Shared/straying", parameters={"more": "10", "days": "1"})
    backfill = HandRun(wired(spec, request={"partitions": [DAY.key], "reason": "too low"}))
    backfill.execute("plan_it")
    with pytest.raises(
        AirflowFailException, match=r"changed while notebook /Shared/straying ran.*2024-01-02 had 1 rows"
    ):
        backfill.execute("stage")


def test_the_example_computes_its_days_by_the_notebook_and_publishes_them(workspace: Path) -> None:
    shutil.copy(DAGS / "notebooks" / "punctuality.sql", workspace)
    run(
        "CREATE SCHEMA raw",
        "CREATE TABLE raw.flights AS SELECT * FROM VALUES (DATE '2013-02-08', 'EWR', 20), (DATE '2013-02-08', 'EWR', 5), "
        "(DATE '2013-02-08', 'JFK', NULL), (DATE '2013-02-09', 'EWR', 15), (DATE '2013-02-10', 'EWR', 0) "
        "AS t(flight_date, origin, arr_delay)",
        "CREATE TABLE analytics.punctuality (flight_date DATE, origin STRING, flights BIGINT, on_time BIGINT)",
    )
    request = {"start_date": "2013-02-08", "end_date": "2013-02-09", "reason": "the table is new"}
    backfill = HandRun(wired(DAGS / "backfills" / "punctuality.yaml", request=request))
    assert set(backfill.run().values()) == {"success"}
    assert [(row[0].day, *row[1:]) for row in rows("SELECT * FROM analytics.punctuality ORDER BY ALL")] == [
        (8, "EWR", 2, 1),
        (8, "JFK", 1, 0),
        (9, "EWR", 1, 1),
    ]
