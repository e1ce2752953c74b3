"""`resume` and `abandon` say what of a backfill is still there in Airflow: by the real command line, on its real database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest
from hand_run import HandRun
from operators_world import OF_THE_DAY, SPEC, Shop, wired

from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.records import Gate
from airflow_backfill_provider.steps.asking import ask
from airflow_backfill_provider.steps.open_runs import Errand, begun, over, put_on_record
from airflow_backfill_provider.steps.work import Work, utc_now
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse

RUN_ID = "scheduled__2024-03-04"
FOUND = backfill_id("by_hand", RUN_ID)


@pytest.fixture
def planned(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A backfill that asks for an approval, its task in Airflow's database, and a switch that stops it."""
    shop.spec_file.write_text(SPEC + "approval: {required: always}\n", encoding="utf-8")
    HandRun(wired(shop.spec, request=OF_THE_DAY), run_id=RUN_ID).execute("plan_it")
    monkeypatch.delenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH")
    for words in (("db", "migrate"), ("variables", "set", "safe_backfill_kill_switch", '{"orders": true}')):
        done = shop.airflow(*words)
        assert done.returncode == 0, done.stderr
    return shop


def add_task(shop: Shop, task_id: str, state: str) -> None:
    """The run with one task, each column that must have a value with the emptiest one."""
    with sqlite3.connect(shop.folder / "home" / "airflow.db") as database:
        run = {"dag_id": "by_hand", "run_id": RUN_ID, "run_type": "scheduled", "state": "running"}
        _insert(database, "dag_run", run)
        task = {"id": uuid4().hex, "dag_id": "by_hand", "run_id": RUN_ID, "task_id": task_id, "state": state}
        _insert(database, "task_instance", task | {"map_index": -1})


def _insert(database: sqlite3.Connection, table: str, values: dict[str, object]) -> None:
    for _, name, kind, required, default, _ in database.execute(f"PRAGMA table_info({table})").fetchall():
        if required and default is None and name not in values:
            values[name] = "2024-03-04 00:00:00" if "TIME" in kind.upper() else 1 if "INT" in kind.upper() else ""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def test_resume_says_what_is_still_running(planned: Shop) -> None:
    add_task(planned, "stage", "running")

    done = planned.airflow("safe-backfill", "resume", "orders")

    assert done.returncode == 0, done.stderr
    assert '"orders": false' in done.stdout
    assert f"Still running: by_hand {RUN_ID} stage, last heartbeat never" in done.stdout
    assert "1 tasks run; those that are not stopped go on." in done.stdout


@pytest.mark.parametrize("waits", [True, False])
def test_abandon_says_which_run_still_asks_and_how_to_end_it(planned: Shop, waits: bool) -> None:
    with planned.ledger() as ledger:
        warehouse = DuckDBWarehouse(Path(planned.folder / "shop.duckdb"))
        ask(Work(planned.spec, FOUND, warehouse, ledger, "tester", run_id=RUN_ID), Gate.PLAN, "ann")
    if waits:
        add_task(planned, "approve_plan", "awaiting_input")

    done = planned.airflow("safe-backfill", "abandon", FOUND, "--reason", "not needed")

    assert done.returncode == 0, done.stderr
    assert f"Backfill {FOUND} is expired; its range is free." in done.stdout
    still = f"Still asks: by_hand {RUN_ID} approve_plan. No answer counts any more. To end the run, reject it"
    assert (still in done.stdout) is waits


def test_abandon_says_so_where_airflow_cannot_tell(planned: Shop) -> None:
    with planned.ledger() as ledger:
        warehouse = DuckDBWarehouse(Path(planned.folder / "shop.duckdb"))
        ask(Work(planned.spec, FOUND, warehouse, ledger, "tester", run_id=RUN_ID), Gate.PLAN, "ann")
    with sqlite3.connect(planned.folder / "home" / "airflow.db") as database:
        database.execute("ALTER TABLE task_instance RENAME TO lost")

    done = planned.airflow("safe-backfill", "abandon", FOUND, "--reason", "not needed")

    assert done.returncode == 0, done.stderr
    assert f"Whether by_hand {RUN_ID} still asks is unknown: Airflow's database cannot be read" in done.stdout


def test_abandon_says_which_run_elsewhere_may_go_on_and_what_to_do(planned: Shop) -> None:
    with planned.ledger() as ledger:
        warehouse = DuckDBWarehouse(Path(planned.folder / "shop.duckdb"))
        work = Work(planned.spec, FOUND, warehouse, ledger, "tester")
        left, taken = (Errand("2024-03-04", name, {}, "intent", 1, utc_now()) for name in ("run 1", "run 2"))
        for errand in (left, taken):
            put_on_record(work, errand)
        begun(work, left, "77")
        over(work, taken, "its rows were taken")

    done = planned.airflow("safe-backfill", "abandon", FOUND, "--reason", "not needed")

    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("May still run: ")]
    assert line.startswith("May still run: run 1 of ")
    assert ", whose id there is 77, for 2024-03-04. Nothing takes its rows any more" in line


@pytest.mark.parametrize("what", ["customers", "--all"])
def test_a_stop_is_turned_though_the_ledger_cannot_be_reached(
    planned: Shop, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"conn_type": "sqlite", "host": str(planned.folder / "away" / "ledger.db")}
    monkeypatch.setenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER", json.dumps(away))

    done = planned.airflow("safe-backfill", "stop", what)

    assert done.returncode == 0, done.stderr
    assert f'"{what.removeprefix("--")}": true' in done.stdout
    assert "What still runs cannot be told: The ledger sqlite" in done.stdout
    assert ("Whether there is a backfill named 'customers' cannot be told" in done.stdout) is (what == "customers")


def test_a_stop_of_a_name_that_no_backfill_has_turns_nothing(planned: Shop) -> None:
    done = planned.airflow("safe-backfill", "stop", "ordres")

    assert done.returncode == 1
    assert "There is no backfill named 'ordres'; there are: orders. Nothing was changed." in done.stderr
