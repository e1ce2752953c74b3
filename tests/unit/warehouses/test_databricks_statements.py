"""Stages that are filled by the SQL Statement Execution API, through Airflow's own hook: told, taken over, cancelled, timed out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from databricks_local import client
from databricks_local.bounds import require_bounded
from databricks_local.shop import DAY, TABLE, create, needs_spark, rows, select

from airflow_backfill_provider.connections import warehouse_for
from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Recompute, Running, Staged, Target, Warehouse

pytestmark = [
    needs_spark,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated"),  # by the provider
]
ENDLESS = f"SELECT id, day, amount FROM {TABLE} WHERE day = DATE '{DAY.key}' AND (SELECT count(*) FROM range(100000000000)) > 0"


def open_shop(**compute: Any) -> Warehouse:
    return warehouse_for(
        BackfillSpec.model_validate(
            {
                "name": "shop",
                "target": {"table": TABLE, "partition_by": "day", "key": ["id"]},
                "transform": {"sql": "SELECT 1 AS id"},
                "compute": {"conn_id": "local_databricks"} | compute,
            }
        )
    )


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    monkeypatch.setenv("AIRFLOW_CONN_LOCAL_DATABRICKS", json.dumps(client.connection()))
    post = DatabricksHook.post_sql_statement

    def bounded(hook: DatabricksHook, json: dict[str, Any]) -> str:
        require_bounded(json["statement"])
        return str(post(hook, json))

    monkeypatch.setattr(DatabricksHook, "post_sql_statement", bounded)
    create()
    opened = open_shop()
    yield opened
    opened.close()


@pytest.fixture
def target(warehouse: Warehouse) -> Target:
    return warehouse.describe(TABLE, "day", ["id"])


def state(statement: str) -> str:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    return str(DatabricksHook("local_databricks").get_sql_statement_state(statement).state)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def staged_tables() -> list[str]:
    return [row[1] for row in rows("SHOW TABLES IN backfill_staging")]


def test_a_stage_s_statement_is_told_by_its_id_and_its_errors_are_explained(
    warehouse: Warehouse, target: Target
) -> None:
    told: list[Running] = []
    with warehouse.open_stage(target, "b1", "first", told.append) as writer:
        with pytest.raises(WarehouseError, match=r"it lacks day, amount"):
            writer.write(Recompute((DAY,), "SELECT 1 AS id"))
        (staged,) = writer.write(Recompute((DAY,), select()))

    assert {(one.location, one.keys) for one in told} == {(writer.location, (DAY.key,))}
    assert [state(one.statement) for one in told] == ["FAILED", "SUCCEEDED"]
    assert rows(f"SELECT id, CAST(amount AS STRING) FROM backfill_staging.{writer.location}") == [(2, "12.00")]
    assert warehouse.fingerprint(target, Staged((staged,)), [DAY]) == {DAY.key: staged.fingerprint}


def test_the_statement_of_a_killed_process_is_taken_over(warehouse: Warehouse, target: Target, tmp_path: Path) -> None:
    submitter = (
        "import os, signal, sys\n"
        "from test_databricks_statements import *\n"
        "def die(running):\n"
        "    open(sys.argv[1], 'w').write(json.dumps([running.statement, running.location, running.keys]))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "shop = open_shop()\n"
        "with shop.open_stage(shop.describe(TABLE, 'day', ['id']), 'b1', 'first', die) as writer:\n"
        "    writer.write(Recompute((DAY,), select()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", submitter, str(tmp_path / "told")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    statement, location, keys = json.loads((tmp_path / "told").read_text())

    (staged,) = warehouse.take_over(target, "b1", Running(statement, location, tuple(keys)), [DAY])

    assert staged.location == location
    with warehouse.open_stage(target, "b1", "again") as writer:
        (anew,) = writer.write(Recompute((DAY,), select()))
    assert staged.fingerprint == anew.fingerprint


def test_a_statement_that_failed_or_that_nobody_knows_is_not_taken_over(warehouse: Warehouse, target: Target) -> None:
    told: list[Running] = []
    with pytest.raises(WarehouseError), warehouse.open_stage(target, "b1", "first", told.append) as writer:
        writer.write(Recompute((DAY,), select(amount="amount / 0")))

    assert warehouse.take_over(target, "b1", told[0], [DAY]) == ()
    unknown = replace(told[0], statement="00000000-0000-0000-0000-000000000000")
    assert warehouse.take_over(target, "b1", unknown, [DAY]) == ()


def test_cancelling_ends_the_statement_and_leaves_no_stage(warehouse: Warehouse, target: Target) -> None:
    told: list[Running] = []

    def tell(running: Running) -> None:
        told.append(running)
        threading.Timer(0.5, warehouse.cancel).start()

    with pytest.raises(WarehouseError, match="was cancelled"), warehouse.open_stage(target, "b1", "x", tell) as writer:
        writer.write(Recompute((DAY,), ENDLESS))

    wait_until(lambda: state(told[0].statement) == "CANCELED")
    assert staged_tables() == []


def test_a_statement_that_takes_too_long_is_cancelled(warehouse: Warehouse, target: Target) -> None:
    told: list[Running] = []
    hasty = open_shop(statement_timeout="1s")

    with (
        pytest.raises(WarehouseError, match=r"took longer than compute.statement_timeout, 0:00:01"),
        hasty.open_stage(target, "b1", "x", told.append) as writer,
    ):
        writer.write(Recompute((DAY,), ENDLESS))

    hasty.close()
    wait_until(lambda: state(told[0].statement) == "CANCELED")


def test_a_statement_in_another_zone_keeps_nothing(target: Target) -> None:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse
    from airflow_backfill_provider.warehouses.databricks.statements import StatementApi

    errors: list[str] = []

    def submit(sql: str) -> str:
        with client.connect({"TIMEZONE": "Asia/Tokyo"}) as elsewhere, elsewhere.cursor() as cursor:
            try:
                cursor.execute(sql)
            except Exception as error:
                errors.append(str(error))
        return "s1"

    api = StatementApi(submit, lambda _: ("FAILED" if errors else "SUCCEEDED", "".join(errors)), lambda _: None)
    abroad = DatabricksWarehouse(client.connect, statement_api=api)

    with (
        pytest.raises(
            WarehouseError, match=r"The time zone of the SQL warehouse is not UTC.*backfill_statement_api: false"
        ),
        abroad.open_stage(target, "b1", "x") as writer,
    ):
        writer.write(Recompute((DAY,), select()))

    abroad.close()
    assert staged_tables() == []
