"""The product as people use it: a real scheduler, REST triggers with conf, kill, clear, pause, switch."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from airflow_backfill_provider.demo.airflow_api import AirflowApi, wait_until
from airflow_backfill_provider.demo.local_airflow import AirflowDied, LocalAirflow
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger

pytestmark = [pytest.mark.scheduler, pytest.mark.timeout(900)]

SWITCH = "safe_backfill_kill_switch"
DAYS = [f"2024-03-{day:02d}" for day in range(1, 13)]
WHOLE = {"start_date": DAYS[0], "end_date": DAYS[-1], "reason": "refunds were counted"}
SECRET = "hunter2-never-to-be-seen"


class Shop:
    """One warehouse, its ledger, and the Airflow that runs its backfills."""

    def __init__(self, airflow: LocalAirflow, folder: Path) -> None:
        self.airflow, self.api = airflow, airflow.api
        self.path, self.ledger_path = folder / "shop.duckdb", folder / "ledger.db"

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement on the warehouse, waiting for whoever has the file open."""

        def attempt() -> list[tuple[Any, ...]] | None:
            try:
                with duckdb.connect(str(self.path)) as connection:
                    return connection.execute(statement).fetchall()
            except duckdb.IOException:
                return None

        return wait_until(attempt, "the warehouse file", timeout=60, every=0.05)

    def fill(self, table: str) -> None:
        """Publish the table anew, under the wrong rule, so that tests do not depend on each other."""
        self.sql(
            f"""
            CREATE SCHEMA IF NOT EXISTS raw; CREATE SCHEMA IF NOT EXISTS analytics;
            CREATE OR REPLACE TABLE raw.slowness AS SELECT 1 AS numbers;
            CREATE OR REPLACE TABLE raw.orders AS
                SELECT i AS order_id, DATE '{DAYS[0]}' + CAST(i // 50 AS INTEGER) AS order_date, i % 90 AS amount,
                       i % 50 = 0 AS refunded
                FROM range({50 * len(DAYS)}) AS t (i);
            CREATE OR REPLACE TABLE analytics.{table} AS
                SELECT order_id, order_date, amount FROM raw.orders
                UNION ALL SELECT 90001, DATE '2024-02-29', 1 UNION ALL SELECT 90002, DATE '2024-03-13', 2;
            """
        )

    def corrected(self, table: str) -> int:
        """How many days hold the corrected rows."""
        return int(self.sql(f"SELECT count(*) FROM analytics.{table} WHERE amount IS NULL")[0][0])

    def ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.ledger_path}")

    def attempts(self, found: str) -> dict[str, int]:
        with self.ledger() as ledger:
            return {key: record.attempt for key, record in ledger.partitions(found).items()}

    def stages(self, found: str) -> dict[str, str]:
        """Where the rows of each staged partition are; a partition that is staged again gets another place."""
        with self.ledger() as ledger:
            return {key: record.location for key, record in ledger.partitions(found).items() if record.location}

    def state(self, found: str) -> BackfillState:
        with self.ledger() as ledger:
            return ledger.backfill(found).state

    def staged(self, found: str) -> int:
        with self.ledger() as ledger:
            if ledger.find_backfill(found) is None:
                return 0
            counts = ledger.counts(found)
        return counts[PartitionState.STAGED] + counts[PartitionState.VALIDATED]


@pytest.fixture(scope="module")
def whole_shop(
    airflow_server: LocalAirflow, add_dags: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory
) -> Shop:
    shop = Shop(airflow_server, tmp_path_factory.mktemp("shop"))
    printed = airflow_server.cli("safe-backfill", "init", "--ledger", str(shop.ledger_path))
    assert "pool: safe_backfill created, with 4 slots" in printed
    again = airflow_server.cli("safe-backfill", "init")
    assert "pool: safe_backfill is there, with 4 slots" in again
    shop.api.set_connection("shop", "duckdb", host=str(shop.path), extra=f'{{"note": "{SECRET}"}}')
    add_dags(Path(__file__).parent / "backfill_dags")
    for dag_id in ("backfill__orders", "backfill__slow_orders", "rollback__orders", "slow_orders_reader"):
        shop.api.wait_for_dag(dag_id)
    return shop


@pytest.fixture
def shop(whole_shop: Shop) -> Iterator[Shop]:
    whole_shop.fill("orders")
    whole_shop.fill("slow_orders")
    yield whole_shop
    whole_shop.api.set_variable(SWITCH, '{"all": false}')
    whole_shop.api.set_pool("safe_backfill", 4)
    with whole_shop.ledger() as ledger:
        for row in ledger.backfills():
            if row.state not in (BackfillState.COMPLETED, BackfillState.ROLLED_BACK, BackfillState.EXPIRED):
                if row.state in (BackfillState.PUBLISHED, BackfillState.PUBLISHED_UNVERIFIED):
                    continue
                ledger.move(row.backfill_id, BackfillState.EXPIRED, by="test", reason="end of test")


def trigger(shop: Shop, dag_id: str, conf: dict[str, Any]) -> tuple[str, str]:
    """Trigger by REST; run id and backfill id."""
    run_id = shop.api.trigger(dag_id, conf)
    return run_id, conf.get("backfill_id") or backfill_id(dag_id, run_id)


def run_to(shop: Shop, dag_id: str, conf: dict[str, Any], outcome: str) -> tuple[str, str]:
    run_id, found = trigger(shop, dag_id, conf)
    state = shop.api.wait_for_run(dag_id, run_id)
    assert state == outcome, shop.api.failures(dag_id, run_id)
    return run_id, found


def log_of(api: AirflowApi, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> str:
    return api.task_log(dag_id, run_id, task_id, attempt=attempt)


def await_asset(shop: Shop, name: str) -> None:
    """The scheduler calls an asset active up to a minute after the DAG that declares it was parsed."""

    def declared() -> bool | None:
        found = shop.api.request("GET", "/assets", params={"name_pattern": name})["assets"]
        return any(asset["name"] == name for asset in found) or None

    wait_until(declared, f"the asset {name} to be active", timeout=120, every=1)


def test_a_triggered_backfill_publishes_and_its_rollback_restores(shop: Shop) -> None:
    await_asset(shop, "analytics.orders (backfill)")
    run_id, found = run_to(shop, "backfill__orders", WHOLE, "success")
    assert shop.corrected("orders") == len(DAYS)
    assert shop.state(found) is BackfillState.COMPLETED
    labels = {
        task["rendered_map_index"]
        for task in shop.api.task_instances("backfill__orders", run_id)
        if task["task_id"] == "partitions.stage_recompute"
    }
    assert labels == {"2024-03-01 … 2024-03-04", "2024-03-05 … 2024-03-08", "2024-03-09 … 2024-03-12"}
    report = log_of(shop.api, "backfill__orders", run_id, "report")
    assert f"Backfill {found} of analytics.orders: completed" in report
    assert "12 changed, 0 added, 0 removed" in report
    assert "intent" in log_of(shop.api, "backfill__orders", run_id, "scope_partitions")
    of_this_run = {"source_dag_id": "backfill__orders", "source_run_id": run_id, "limit": 100}
    events = shop.api.request("GET", "/assets/events", params=of_this_run)["asset_events"]
    told = sorted(event["partition_key"] or "" for event in events)
    assert told == ["", *DAYS], "by three tasks: one event for the table, and one for each partition"

    shop.sql("INSERT INTO analytics.orders VALUES (90003, DATE '2024-03-14', 3)")
    run_to(shop, "rollback__orders", {"backfill_id": found}, "success")
    assert shop.corrected("orders") == 0
    assert shop.sql("SELECT count(*) FROM analytics.orders WHERE order_id > 90000") == [(3,)]

    shop.api.clear("backfill__orders", run_id, only_failed=False, task_ids=["atomic_publish"])
    assert shop.api.wait_for_run("backfill__orders", run_id) == "failed"
    assert shop.corrected("orders") == 0


def test_a_rejected_partition_makes_the_run_red_and_clearing_after_mending_publishes(shop: Shop) -> None:
    shop.sql("UPDATE raw.orders SET amount = -1 WHERE order_id = 207")
    run_id, found = run_to(shop, "backfill__orders", WHOLE, "failed")
    assert "2024-03-05: accepted_range(amount)" in shop.api.failures("backfill__orders", run_id)
    assert shop.corrected("orders") == 0
    assert shop.state(found) is BackfillState.REJECTED

    shop.sql("UPDATE raw.orders SET amount = 1 WHERE order_id = 207")
    shop.api.clear("backfill__orders", run_id)
    assert shop.api.wait_for_run("backfill__orders", run_id) == "success"
    assert shop.corrected("orders") == len(DAYS)
    assert shop.attempts(found) == {day: 2 if day == "2024-03-05" else 1 for day in DAYS}


def test_a_killed_worker_loses_only_the_partition_it_was_on(shop: Shop) -> None:
    shop.sql("UPDATE raw.slowness SET numbers = 60000000")
    run_id, found = trigger(shop, "backfill__slow_orders", WHOLE)
    wait_until(lambda: shop.staged(found) >= 2 or None, "two partitions to be staged", timeout=120)
    running = [
        task
        for task in shop.api.task_instances("backfill__slow_orders", run_id)
        if task["task_id"] == "partitions.stage_recompute" and task["state"] == "running"
    ]
    shop.airflow.kill_task(running[0]["pid"])
    kept = shop.stages(found)
    assert shop.api.wait_for_run("backfill__slow_orders", run_id, timeout=240) in ("success", "failed")
    if shop.api.run("backfill__slow_orders", run_id)["state"] == "failed":
        shop.api.clear("backfill__slow_orders", run_id)
        assert shop.api.wait_for_run("backfill__slow_orders", run_id, timeout=240) == "success"
    assert shop.corrected("slow_orders") == len(DAYS)
    assert len(kept) >= 2
    assert kept.items() <= shop.stages(found).items(), "what was staged before the kill is used, not staged again"


def test_each_process_of_airflow_killed_once_loses_nothing_and_a_reader_waits_for_the_end(
    shop: Shop, all_running: LocalAirflow
) -> None:
    airflow, dag_id = all_running, "backfill__slow_orders"
    shop.sql("UPDATE raw.slowness SET numbers = 300000000")
    run_id, found = trigger(shop, dag_id, WHOLE)
    wait_until(lambda: shop.staged(found) >= 1 or None, "a partition to be staged", timeout=120)
    reader = shop.api.trigger("slow_orders_reader", {})

    def reader_is(state: str) -> bool | None:
        return shop.api.task_states("slow_orders_reader", reader)["settled"] == state or None

    wait_until(lambda: reader_is("deferred"), "the reader to wait", timeout=120)
    for process in ("api-server", "scheduler", "triggerer"):
        kept = shop.stages(found)
        airflow.kill(process)
        assert process not in airflow.running()
        airflow.start(process)
        airflow.wait_healthy()
    assert reader_is("deferred")
    shop.sql("UPDATE raw.slowness SET numbers = 1")
    if shop.api.wait_for_run(dag_id, run_id, timeout=300) == "failed":
        shop.api.clear(dag_id, run_id)
        assert shop.api.wait_for_run(dag_id, run_id, timeout=300) == "success", shop.api.failures(dag_id, run_id)
    assert shop.corrected("slow_orders") == len(DAYS)
    assert kept
    assert kept.items() <= shop.stages(found).items(), "what was staged before the last kill is used"
    with shop.ledger() as ledger:
        assert len(ledger.events(found, "receipt")) == 1, "published in one commit"
    assert shop.api.wait_for_run("slow_orders_reader", reader, timeout=120) == "success"


def test_a_paused_dag_stops_between_partitions_and_clearing_goes_on(shop: Shop) -> None:
    shop.sql("UPDATE raw.slowness SET numbers = 60000000")
    run_id, found = trigger(shop, "backfill__slow_orders", WHOLE)
    wait_until(lambda: shop.staged(found) >= 1 or None, "a partition to be staged", timeout=120)
    shop.api.pause("backfill__slow_orders")
    try:
        wait_until(lambda: shop.state(found) is BackfillState.HALTED or None, "the halt", timeout=60)
        time.sleep(3)
        at_halt = shop.staged(found)
        time.sleep(3)
        assert shop.staged(found) == at_halt < len(DAYS)
        kept = shop.stages(found)
    finally:
        shop.api.pause("backfill__slow_orders", paused=False)
    assert shop.api.wait_for_run("backfill__slow_orders", run_id) == "failed"
    assert "is paused" in shop.api.failures("backfill__slow_orders", run_id)
    shop.api.clear("backfill__slow_orders", run_id)
    assert shop.api.wait_for_run("backfill__slow_orders", run_id, timeout=240) == "success"
    assert shop.corrected("slow_orders") == len(DAYS)
    assert kept.items() <= shop.stages(found).items()


def test_the_switch_stops_a_running_backfill_and_one_that_is_missing_stops_everything(shop: Shop) -> None:
    command = shop.airflow.cli
    with pytest.raises(AirflowDied, match=r"no backfill named 'slow_order'.*orders, slow_orders.*Nothing was changed"):
        command("safe-backfill", "stop", "slow_order")
    shop.sql("UPDATE raw.slowness SET numbers = 300000000")
    run_id, found = trigger(shop, "backfill__slow_orders", WHOLE)
    wait_until(lambda: shop.staged(found) >= 1 or None, "a partition to be staged", timeout=120)
    printed = command("safe-backfill", "stop", "slow_orders", "--wait", "60")
    assert '{"all": false, "slow_orders": true}' in printed
    # A task that has only just begun is still known by its index: Airflow renders the partition's name a moment later.
    assert re.search(
        rf"Still running: backfill__slow_orders {re.escape(run_id)} partitions\.stage_recompute\[(2024|\d)", printed
    )
    assert printed.splitlines()[-1] == "Nothing runs any more."
    assert shop.api.wait_for_run("backfill__slow_orders", run_id, timeout=120) == "failed"
    assert "airflow safe-backfill resume slow_orders" in shop.api.failures("backfill__slow_orders", run_id)
    assert shop.state(found) is BackfillState.HALTED
    clear = f"airflow dags clear backfill__slow_orders --run-id {run_id} --only-failed -y"
    lift = "airflow safe-backfill resume slow_orders, or airflow dags unpause backfill__slow_orders"
    assert f"Lift the stop ({lift}), then: {clear}" in command("safe-backfill", "status", found)
    assert shop.staged(found) < len(DAYS)
    assert shop.corrected("slow_orders") == 0

    run_to(shop, "backfill__orders", WHOLE, "success")  # another backfill is not stopped

    shop.api.delete_variable(SWITCH)
    other, _ = run_to(shop, "backfill__orders", WHOLE, "failed")
    assert "missing or cannot be read" in shop.api.failures("backfill__orders", other)

    with pytest.raises(AirflowDied, match="missing or cannot be read"):
        command("safe-backfill", "resume", "slow_orders")
    assert "Everything is stopped already" in command("safe-backfill", "stop", "--all")
    hidden = shop.airflow.env | {f"AIRFLOW_VAR_{SWITCH.upper()}": "run"}
    refused = subprocess.run(
        [sys.executable, "-m", "airflow", "safe-backfill", "stop", "--all"], env=hidden, capture_output=True, text=True
    )
    assert refused.returncode != 0, "tasks go on, whatever is written to the database"
    assert "Nothing was changed" in refused.stderr
    assert f"AIRFLOW_VAR_{SWITCH.upper()}" in refused.stderr

    shop.api.set_variable(SWITCH, '{"all": true, "slow_orders": true}')
    printed = command("safe-backfill", "resume", "slow_orders")
    assert '{"all": true, "slow_orders": false}' in printed
    assert "Still stopped: all. Lift it with: airflow safe-backfill resume --all" in printed
    assert clear not in printed
    shop.sql("UPDATE raw.slowness SET numbers = 1")
    assert clear in command("safe-backfill", "resume", "--all")
    command(*clear.split()[1:])
    assert shop.api.wait_for_run("backfill__slow_orders", run_id, timeout=240) == "success"
    assert shop.corrected("slow_orders") == len(DAYS)


def test_a_preview_run_is_green_and_changes_nothing(shop: Shop) -> None:
    run_id, found = run_to(shop, "backfill__orders", WHOLE | {"mode": "plan"}, "success")
    assert "SQL of the first partition" in log_of(shop.api, "backfill__orders", run_id, "scope_partitions")
    with shop.ledger() as ledger:
        assert ledger.find_backfill(found) is None
    assert shop.corrected("orders") == 0


def test_only_the_table_of_the_live_dags_outlet_is_planned(shop: Shop) -> None:
    for dag_id in ("orders_daily", "backfill__live_orders", "backfill__wrong_orders"):
        shop.api.wait_for_dag(dag_id)
    await_asset(shop, "orders")
    run_to(shop, "backfill__live_orders", WHOLE | {"mode": "plan"}, "success")
    run_id, _ = run_to(shop, "backfill__wrong_orders", WHOLE | {"mode": "plan"}, "failed")
    told = str(shop.api.failures("backfill__wrong_orders", run_id))
    assert "Wrong target? target.table is analytics.slow_orders" in told
    assert "duckdb://shop/analytics/orders" in told


def test_a_range_of_which_nothing_is_over_is_a_green_run_that_does_nothing(shop: Shop) -> None:
    """An empty expansion: mapped tasks are skipped, and nothing hangs or fails."""
    before = shop.sql("SELECT * FROM analytics.orders ORDER BY ALL")
    run_id, found = run_to(
        shop,
        "backfill__orders",
        {"start_date": "2999-01-01", "end_date": "2999-01-03", "reason": "too early"},
        "success",
    )

    assert "nothing to do" in log_of(shop.api, "backfill__orders", run_id, "scope_partitions").lower()
    assert shop.sql("SELECT * FROM analytics.orders ORDER BY ALL") == before
    with shop.ledger() as ledger:
        assert ledger.find_backfill(found) is None


def test_a_staged_backfill_waits_and_is_published_later_by_its_id(shop: Shop) -> None:
    _, found = run_to(shop, "backfill__orders", WHOLE | {"mode": "stage"}, "success")
    assert shop.state(found) is BackfillState.VALIDATED
    assert shop.corrected("orders") == 0
    run_to(shop, "backfill__orders", {"backfill_id": found, "mode": "publish"}, "success")
    assert shop.corrected("orders") == len(DAYS)
    assert set(shop.attempts(found).values()) == {1}


def test_a_second_backfill_of_the_range_is_refused_with_the_first_ones_id(shop: Shop) -> None:
    _, owner = run_to(shop, "backfill__orders", WHOLE | {"mode": "stage"}, "success")
    run_id, _ = run_to(shop, "backfill__orders", WHOLE, "failed")
    assert owner in shop.api.failures("backfill__orders", run_id)


@pytest.mark.parametrize(
    "conf",
    [
        {"start_date": "2024-03-01'; DROP TABLE analytics.orders; --", "end_date": "2024-03-02"},
        {"start_date": "some day", "end_date": "2024-03-02"},
        {"mode": "now"},
        {"partitions": "2024-03-01"},
        {"backfill_id": "../../etc"},
    ],
)
def test_bad_conf_is_rejected_when_it_is_triggered(shop: Shop, conf: dict[str, Any]) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        shop.api.trigger("backfill__orders", conf)


def test_hostile_conf_that_the_form_cannot_see_through_is_refused_by_scope(shop: Shop) -> None:
    for conf in (
        {"partitions": ["2024-03-01'; DROP TABLE analytics.orders; --"]},
        {"start_date": "2024-03-05", "end_date": "2024-03-01"},
        WHOLE | {"nonsense": 1},
    ):
        run_id, found = run_to(shop, "backfill__orders", conf, "failed")
        assert "RequestError" in shop.api.failures("backfill__orders", run_id) or found
        with shop.ledger() as ledger:
            assert ledger.find_backfill(found) is None
    run_to(shop, "backfill__orders", WHOLE | {"reason": "'); DROP TABLE analytics.orders; --"}, "success")
    assert shop.sql("SELECT count(*) FROM analytics.orders") == [(50 * len(DAYS) + 2,)]


def test_a_missing_pool_fails_the_run_while_it_is_missing_and_says_what_mends_it(shop: Shop) -> None:
    api, dag_id = shop.api, "backfill__orders"
    api.delete_pool("safe_backfill")
    run_id, found = trigger(shop, dag_id, WHOLE)
    assert api.wait_for_run(dag_id, run_id) == "failed", "nothing waits for the pool"
    assert "airflow pools set safe_backfill 4" in api.failures(dag_id, run_id)
    assert api.task_states(dag_id, run_id)["pool_ready"] == "skipped"
    assert shop.state(found) is BackfillState.FAILED
    assert (shop.airflow.home / "safe_backfill_reports" / found / "report.html").is_file()
    shop.api.set_pool("safe_backfill", 4)
    clear = f"airflow dags clear {dag_id} --run-id {run_id} -y"
    api.clear(dag_id, run_id)
    assert api.wait_for_run(dag_id, run_id) == "failed"
    assert f"Clear both: {clear}" in api.failures(dag_id, run_id), "only what failed leaves the probe out"
    assert f"Mend what made it fail, then: {clear}" in shop.airflow.cli("safe-backfill", "status", found)
    shop.airflow.cli(*clear.split()[1:])
    assert api.wait_for_run(dag_id, run_id) == "success", api.failures(dag_id, run_id)
    assert shop.corrected("orders") == len(DAYS)


def test_a_run_that_computes_nothing_ends_while_its_pool_is_missing(shop: Shop) -> None:
    api, dag_id = shop.api, "backfill__orders"
    api.delete_pool("safe_backfill")
    ends = {}
    for mode, switch in (("plan", "run"), ("publish", "stop")):
        api.set_variable(SWITCH, switch)
        run_id = api.trigger(dag_id, WHOLE | {"mode": mode})
        ends[mode] = (api.wait_for_run(dag_id, run_id), api.task_states(dag_id, run_id)["pool_ready"])
    assert ends == {"plan": ("success", "skipped"), "publish": ("failed", "skipped")}


def test_a_malformed_spec_is_one_import_error_and_takes_no_other_dag_down(shop: Shop) -> None:
    errors = wait_until(lambda: shop.api.import_errors() or None, "the import error", timeout=60)
    (path,) = errors
    assert path.endswith("backfills/malformed.yaml")
    assert "tabel" in errors[path]
    assert "table" in errors[path]
    assert "3" in errors[path]
    for dag_id in ("backfill__orders", "rollback__orders", "backfill__slow_orders", "rollback__slow_orders"):
        found = shop.api.dag(dag_id)
        assert not found["has_import_errors"]
        assert not found["is_paused"]


def test_the_connections_secrets_are_nowhere_to_be_found(shop: Shop) -> None:
    run_to(shop, "backfill__orders", WHOLE, "success")
    searched = 0
    for path in (*shop.airflow.home.rglob("*"), *shop.path.parent.rglob("*")):
        if path.is_file():
            searched += 1
            assert SECRET.encode() not in path.read_bytes(), path
    assert searched > 20


def test_the_commands_plan_list_show_and_give_up(shop: Shop, tmp_path: Path) -> None:
    specs = shop.airflow.dags_folder / "backfill_dags" / "backfills"
    command = shop.airflow.cli
    assert "is fine: orders rebuilds analytics.orders" in command(
        "safe-backfill", "validate-spec", str(specs / "orders.yaml")
    )
    with pytest.raises(AirflowDied, match="tabel"):
        command("safe-backfill", "validate-spec", str(specs / "malformed.yaml"))
    range_ = ("--from-date", DAYS[0], "--to-date", DAYS[-1])
    printed = command("safe-backfill", "plan", str(specs / "orders.yaml"), *range_)
    assert "12 of one day in UTC: 2024-03-01 … 2024-03-12" in printed
    assert "600 published now" in printed

    _, found = run_to(shop, "backfill__orders", WHOLE | {"mode": "stage"}, "success")
    assert f"{found}  " in command("safe-backfill", "list", "--name", "orders")
    assert "12 validated" in command("safe-backfill", "status", found)
    assert "its range is free" in command("safe-backfill", "abandon", found, "--reason", "only a test")
    assert shop.state(found) is BackfillState.EXPIRED
    with pytest.raises(AirflowDied, match="no backfill"):
        command("safe-backfill", "status", "0" * 12)


def test_a_new_spec_is_written_once_and_can_be_read(shop: Shop, tmp_path: Path) -> None:
    sql = tmp_path / "orders.sql"
    sql.write_text((shop.airflow.dags_folder / "backfill_dags" / "orders.sql").read_text())
    new = ("safe-backfill", "new", "--table", "analytics.orders", "--sql", str(sql), "--partition-by", "order_date")
    new = (*new, "--key", "order_id", "--folder", str(tmp_path / "backfills"))
    assert "backfills_dags.py" in shop.airflow.cli(*new)
    assert "is fine" in shop.airflow.cli("safe-backfill", "validate-spec", str(tmp_path / "backfills" / "orders.yaml"))
    with pytest.raises(AirflowDied, match="is there already"):
        shop.airflow.cli(*new)


def test_a_drill_is_a_run_that_ends_well_when_the_damage_was_stopped_by_name(shop: Shop) -> None:
    old = shop.sql("SELECT * FROM analytics.orders ORDER BY ALL")

    run_id, found = trigger(shop, "backfill__orders", WHOLE | {"drill": True})
    assert shop.api.wait_for_run("backfill__orders", run_id, timeout=600) == "success"

    report = log_of(shop.api, "backfill__orders", run_id, "report")
    assert re.search(r"drill\s+passed: 2024-03-\d\d was damaged on purpose, and stopped by name", report)
    assert shop.api.task_states("backfill__orders", run_id)["atomic_publish"] == "upstream_failed"
    assert shop.sql("SELECT * FROM analytics.orders ORDER BY ALL") == old
    assert shop.state(found) is BackfillState.EXPIRED
    said = shop.airflow.cli("safe-backfill", "drill", "orders", "--from-date", DAYS[0], "--to-date", DAYS[2])
    assert re.search(r"Drill [0-9a-f]{12} of analytics\.orders passed: 2024-03-0\d was damaged", said)
    assert shop.sql("SELECT * FROM analytics.orders ORDER BY ALL") == old
