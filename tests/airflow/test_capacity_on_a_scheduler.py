"""How much of a warehouse backfills take, counted by the warehouse: one pool, two backfills, and the DAGs beside them."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import LocalAirflow
from airflow_backfill_provider.demo.local_postgres import LocalPostgres, find_programs
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger

pytestmark = [
    pytest.mark.scheduler,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(find_programs() is None, reason="needs PostgreSQL's programs"),
]

CROWD = 25
"""As many runs of another DAG go on all the while, and start nothing: their pool has no slot."""
POOL, KEYS, ORDERS = "safe_backfill", ["2024-03-01", "2024-03-02", "2024-03-03", "2024-03-04"], 20
PATIENCE = 300
STATEMENTS = (
    "CREATE SCHEMA raw",
    "CREATE SCHEMA analytics",
    "CREATE SEQUENCE raw.gate",
    """
    CREATE FUNCTION raw.passes(name text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        WHILE NOT (SELECT is_called FROM raw.gate) LOOP PERFORM pg_sleep(0.2); END LOOP;
        RETURN true;
    END $$
    """,
    """
    CREATE FUNCTION takes_its_time(order_id integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        PERFORM pg_sleep(1);
        RETURN true;
    END $$
    """,
    f"CREATE TABLE raw.orders AS SELECT i AS order_id, DATE '{KEYS[0]}' + i / 5 AS order_date, i AS amount "
    f"FROM generate_series(0, {ORDERS - 1}) AS t (i)",
    "CREATE TABLE analytics.wide AS SELECT * FROM raw.orders",
    "CREATE TABLE analytics.narrow AS SELECT * FROM raw.orders",
    "CREATE TABLE analytics.checked AS SELECT * FROM raw.orders",
)


class Warehouse:
    """Orders that are computed only while a gate is open, and how many partitions are computed at once."""

    def __init__(self, server: LocalPostgres) -> None:
        self.server = server
        for statement in STATEMENTS:
            self.rows(statement)
        self.most: Counter[str] = Counter()
        """The most that was ever seen at once: of each backfill, of ``all`` together, and of ``sessions`` that work for the one that is counted."""
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.server.connect("postgres", autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def at_work(self) -> Counter[str]:
        with self.server.connect("postgres", autocommit=True) as connection:
            return _at_work(connection)

    def open(self) -> None:
        self.rows("SELECT nextval('raw.gate')")

    def stop(self) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        with self.server.connect("postgres", autocommit=True) as connection:
            while not self._over.wait(0.05):
                self.most |= _at_work(connection)


def _at_work(connection: psycopg.Connection[Any]) -> Counter[str]:
    found = connection.execute("SELECT query FROM pg_stat_activity WHERE wait_event = 'PgSleep'").fetchall()
    names = [name for (query,) in found for name in re.findall(r"passes\('(\w+)'\)", query)]
    sessions = connection.execute(
        "SELECT FROM pg_stat_activity WHERE application_name = 'counted' AND state <> 'idle'"
    ).rowcount
    return Counter(names) + Counter(all=len(names), sessions=sessions)


@pytest.fixture
def warehouse(airflow_server: LocalAirflow, add_dags: Callable[[Path], None], tmp_path: Path) -> Iterator[Warehouse]:
    server, api = LocalPostgres(tmp_path / "postgres.json"), airflow_server.api
    server.create()
    try:
        server.start()
        warehouse = Warehouse(server)
        airflow_server.cli("safe-backfill", "init", "--ledger", str(tmp_path / "ledger.db"))
        login = {"login": server.user, "password": server.password, "schema": "postgres"}
        for conn_id, extra in (("capacity", {}), ("counted", {"application_name": "counted"})):
            api.set_connection(
                conn_id, "postgres", host="127.0.0.1", port=server.port, extra=json.dumps(extra), **login
            )
        here = Path(__file__).parent
        add_dags(here / "capacity_dags")
        add_dags(here / "runner_dags")
        for dag_id in ("backfill__wide", "backfill__narrow", "backfill__checked", "runner_smoke", "crowd"):
            api.wait_for_dag(dag_id)
        yield warehouse
        warehouse.stop()
        for run in _crowd(api):
            api.request("PATCH", f"/dags/crowd/dagRuns/{run['dag_run_id']}", json={"state": "failed"})
    finally:
        server.remove()
        api.set_pool(POOL, 4)


def _crowd(api: AirflowApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.request("GET", "/dags/crowd/dagRuns", params={"limit": CROWD})["dag_runs"]
    return found


def test_a_pool_holds_everything_or_so_many_and_nobody_beside_it_waits(
    airflow_server: LocalAirflow, warehouse: Warehouse
) -> None:
    api, cli = airflow_server.api, airflow_server.cli
    spec = str(airflow_server.dags_folder / "capacity_dags" / "backfills" / "wide.yaml")
    range_ = ("--from-date", KEYS[0], "--to-date", KEYS[-1])

    def scope_is(state: str, dag_id: str, run_id: str) -> None:
        wait_until(
            lambda: api.task_states(dag_id, run_id).get("scope_partitions") == state or None,
            f"the scope of {run_id} to be {state}",
            timeout=PATIENCE,
        )

    def at_work(**counts: int) -> None:
        wait_until(lambda: warehouse.at_work() == Counter(counts) or None, f"{counts} at work", timeout=PATIENCE)

    api.set_pool("crowd", 0)
    for number in range(CROWD):
        api.trigger("crowd", run_id=f"one_of_many_{number}")
    api.set_pool(POOL, 0)
    api.pause("backfill__wide")
    planned = cli("safe-backfill", "plan", spec, *range_)
    assert "Before it can run: The DAG backfill__wide is paused: a run that is triggered starts nothing" in planned
    assert (
        f"Before it can run: The pool '{POOL}' has 0 slots, which stops every backfill, and may be meant to." in planned
    )
    api.pause("backfill__wide", False)

    conf = f'{{"start_date": "{KEYS[0]}", "end_date": "{KEYS[-1]}", "reason": "typed"}}'
    cli("dags", "trigger", "backfill__wide", "--run-id", "typed", "--conf", conf)
    assert api.wait_for_run("backfill__wide", "typed", timeout=PATIENCE) == "failed", "it waits for no slot"
    assert "has 0 slots" in api.failures("backfill__wide", "typed")
    wide = backfill_id("backfill__wide", "typed")
    # Where another module's tests ran before, there is one already.
    with Ledger(f"sqlite:///{api.request('GET', '/connections/safe_backfill_ledger')['host']}") as ledger:
        assert ledger.backfill(wide).state is BackfillState.FAILED
        assert ledger.counts(wide)[PartitionState.PENDING] == len(KEYS)
        assert not warehouse.most, "nothing was computed"

        api.set_pool(POOL, 2)
        api.clear("backfill__wide", "typed", only_failed=False)
        at_work(wide=2, all=2)
        clicked = api.trigger("backfill__narrow", {"start_date": KEYS[0], "end_date": KEYS[-1], "reason": "clicked"})
        beside = api.trigger("runner_smoke", {})
        assert api.wait_for_run("runner_smoke", beside, timeout=PATIENCE) == "success", "another pool has room"
        scope_is("success", "backfill__narrow", clicked)
        narrow = backfill_id("backfill__narrow", clicked)
        plans = [ledger.plan(found).document["partitions"] for found in (wide, narrow)]
        assert plans[0] == plans[1], "however it was asked for"
        assert warehouse.at_work() == warehouse.most == Counter(wide=2, all=2), "the pool is both backfills' together"

        api.set_pool(POOL, 6)
        at_work(wide=3, narrow=1, all=4)
        warehouse.open()
        for dag_id, run_id, found in (("backfill__wide", "typed", wide), ("backfill__narrow", clicked, narrow)):
            assert api.wait_for_run(dag_id, run_id, timeout=PATIENCE) == "success", api.failures(dag_id, run_id)
            assert ledger.backfill(found).state is BackfillState.COMPLETED
    assert [run["state"] for run in _crowd(api)] == ["running"] * CROWD, "neither waited for the other"
    assert warehouse.most == Counter(wide=3, narrow=1, all=4), "max_concurrency of each, below the pool's slots"
    for table in ("wide", "narrow"):
        assert warehouse.rows(f"SELECT sum(amount) FROM analytics.{table}") == [(sum(range(ORDERS)) + ORDERS,)]


def test_checks_are_counted_with_the_computing_of_a_backfill(
    airflow_server: LocalAirflow, warehouse: Warehouse
) -> None:
    api, dag_id = airflow_server.api, "backfill__checked"
    api.set_pool(POOL, 6)
    run_id = api.trigger(dag_id, {"start_date": KEYS[0], "end_date": KEYS[-1], "reason": "counted"})
    assert api.wait_for_run(dag_id, run_id, timeout=PATIENCE) == "success", api.failures(dag_id, run_id)
    assert warehouse.most == Counter(sessions=2), "max_concurrency, of six slots"
    assert warehouse.rows("SELECT sum(amount) FROM analytics.checked") == [(sum(range(ORDERS)) + ORDERS,)]
