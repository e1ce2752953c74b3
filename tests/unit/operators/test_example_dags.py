"""Every DAG file of dags/ is read, stored as the scheduler stores it, and run on the flights of 2013."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb_outside
import pytest
import team_dbt
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from hand_run import HandRun
from ledger_file import new_ledger
from operators_world import wired

from airflow_backfill_provider.demo.data import build_warehouse
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger

DAGS = Path(__file__).parents[3] / "dags"
DELAYS = DAGS / "backfills" / "daily_delays.yaml"
STREAKS = DAGS / "backfills" / "delay_streaks.yaml"
CARRIERS = DAGS / "backfills" / "carriers_monthly.yaml"


@pytest.fixture(scope="module")
def dags() -> dict[str, DAG]:
    """What Airflow finds in dags/."""
    bag = DagBag(DAGS)
    assert bag.import_errors == {}
    return dict(bag.dags)


class Flights:
    """The demo's warehouse and a ledger."""

    def __init__(self, folder: Path) -> None:
        self.warehouse, self.ledger_file = folder / "flights.duckdb", folder / "ledger.db"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return duckdb_outside.run(self.warehouse, sql)

    def ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.ledger_file}")


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flights:
    found = Flights(tmp_path)
    build_warehouse(found.warehouse)
    warehouse = {"conn_type": "duckdb", "host": str(found.warehouse)}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE_BACKFILL", json.dumps(warehouse))
    new_ledger(tmp_path)
    ledger = {"conn_type": "sqlite", "host": str(found.ledger_file)}
    monkeypatch.setenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER", json.dumps(ledger))
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", "run")
    monkeypatch.setenv("AIRFLOW__SAFE_BACKFILL__REPORTS_FOLDER", str(tmp_path / "reports"))
    return found


def test_all_are_found_and_can_be_stored(dags: dict[str, DAG]) -> None:
    assert sorted(dags) == [
        "backfill__busiest_hours",
        "backfill__carriers_monthly",
        "backfill__daily_delays",
        "backfill__delay_streaks",
        "backfill__fct_flights",
        "backfill__punctuality",
        "backfill_cleanup",
        "busiest_hours_of_a_day",
        "example_backfill_by_hand",
        "example_carriers_monthly",
        "example_daily_delays",
        "example_delay_streaks",
        "example_flights_daily",
        "example_flights_digest",
        "example_rollback_by_hand",
        "rollback__busiest_hours",
        "rollback__carriers_monthly",
        "rollback__daily_delays",
        "rollback__delay_streaks",
        "rollback__fct_flights",
        "rollback__punctuality",
    ]
    for dag in dags.values():
        stored = DagSerialization.to_dict(dag)
        assert sorted(DagSerialization.from_dict(stored).task_dict) == sorted(dag.task_dict)


def test_the_hand_wired_backfill_corrects_its_days_and_the_hand_wired_rollback_undoes_that(
    dags: dict[str, DAG], flights: Flights
) -> None:
    count = "SELECT count(*) FROM analytics.fct_flights WHERE arrival_delay_minutes IS NULL"
    run = HandRun(dags["example_backfill_by_hand"], params={"first": "2013-02-08", "last": "2013-02-09"})
    assert set(run.run().values()) == {"success"}
    assert flights.rows(count) == [(475 + 393,)]
    found = backfill_id("example_backfill_by_hand", run.run_id)
    ((flown,),) = flights.rows("SELECT count(*) FROM raw.flights WHERE flight_date IN ('2013-02-08', '2013-02-09')")
    page = (flights.warehouse.parent / "reports" / found / "report.html").read_text(encoding="utf-8")
    assert (
        f"2013-02-08 to 2013-02-09: {475 + 393} of {flown:,} rows changed, none added, none removed; the sum of" in page
    )
    HandRun(dags["example_rollback_by_hand"], params={"backfill_id": found, "force": False}).run()
    assert flights.rows(count) == [(0,)]
    with flights.ledger() as ledger:
        assert ledger.backfill(found).state is BackfillState.ROLLED_BACK


def test_the_scheduled_day_is_published_under_its_guard(dags: dict[str, DAG], flights: Flights) -> None:
    start, end = datetime(2013, 2, 8, tzinfo=UTC), datetime(2013, 2, 9, tzinfo=UTC)
    HandRun(dags["example_flights_daily"], start=start, end=end).run()
    wrong = (
        "SELECT count(*) FROM analytics.fct_flights WHERE flight_date = '2013-02-08' AND arrival_delay_minutes IS NULL"
    )
    assert flights.rows(wrong) == [(475,)]
    with flights.ledger() as ledger:
        assert ledger.live_claims() == []


def test_the_monthly_report_is_new_yorks_and_a_backfill_gives_what_the_schedule_published(
    dags: dict[str, DAG], flights: Flights
) -> None:
    march = datetime(2013, 3, 1, 5, tzinfo=UTC)
    april = datetime(2013, 4, 1, 4, tzinfo=UTC)  # the clocks went forward meanwhile
    run = HandRun(dags["example_carriers_monthly"], start=march, end=april)
    assert set(run.run().values()) == {"success"}
    report = "SELECT * FROM analytics.carriers_monthly ORDER BY ALL"
    published = flights.rows(report)
    assert {row[0].isoformat() for row in published} == {"2013-03-01"}
    assert sum(row[2] for row in published) == 28_834, "every flight of March in New York, and no other"

    flights.rows("UPDATE analytics.carriers_monthly SET arrived = flights, mean_arrival_delay_minutes = 0")
    backfill = HandRun(wired(CARRIERS, request={"partitions": ["2013-03"], "reason": "not all arrived"}))
    assert set(backfill.run().values()) == {"success"}
    assert flights.rows(report) == published
    with flights.ledger() as ledger:
        plan = ledger.plan(backfill_id("by_hand", backfill.run_id)).document
    assert plan["warnings"] == []
    assert plan["partitions"][0]["span"]["end"].startswith("2013-04-01T04:00:00")


def test_the_table_that_a_function_computes_is_backfilled_by_the_function_of_its_pipeline(
    dags: dict[str, DAG], flights: Flights
) -> None:
    start, end = datetime(2013, 2, 8, tzinfo=UTC), datetime(2013, 2, 9, tzinfo=UTC)
    run = HandRun(dags["example_delay_streaks"], start=start, end=end)
    assert set(run.run().values()) == {"success"}
    published = flights.rows("SELECT * FROM analytics.delay_streaks ORDER BY ALL")
    assert [(row[1], row[2]) for row in published] == [("EWR", 2), ("JFK", 3), ("LGA", 6)]

    flights.rows("UPDATE analytics.delay_streaks SET longest_streak = longest_streak + 3")
    backfill = HandRun(wired(STREAKS, request={"partitions": ["2013-02-08"], "reason": "cancelled is not late"}))
    assert set(backfill.run().values()) == {"success"}
    assert flights.rows("SELECT * FROM analytics.delay_streaks ORDER BY ALL") == published


@team_dbt.needed
def test_a_backfill_of_a_dbt_model_stages_day_by_day_what_dbt_itself_builds(
    dags: dict[str, DAG], flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", team_dbt.on_path())
    monkeypatch.setenv("FLIGHTS_DUCKDB", str(flights.warehouse))
    project = sorted((DAGS / "dbt_flights").rglob("*"))
    start, end = datetime(2013, 2, 8, tzinfo=UTC), datetime(2013, 2, 11, tzinfo=UTC)
    run = HandRun(dags["example_daily_delays"], start=start, end=end)
    assert set(run.run().values()) == {"success"}
    days = "SELECT flight_date, * EXCLUDE flight_date FROM analytics.daily_delays ORDER BY ALL"
    published = flights.rows(days)
    assert [row[0].day for row in published[:1] + published[-1:]] == [8, 10]

    flights.rows("UPDATE analytics.daily_delays SET departed = flights")
    request = {"start_date": "2013-02-08", "end_date": "2013-02-10", "reason": "cancelled is not departed"}
    backfill = HandRun(wired(DELAYS, request=request))
    assert set(backfill.run().values()) == {"success"}
    assert flights.rows(days) == published
    assert sorted((DAGS / "dbt_flights").rglob("*")) == project, "dbt writes nothing beside the DAGs"
    with flights.ledger() as ledger:
        plan = ledger.plan(backfill_id("by_hand", backfill.run_id)).document
    assert plan["warnings"] == []
    assert plan["spec"]["transform"]["compiled"]["bounded"] == ['"flights"."raw"."flights"']
