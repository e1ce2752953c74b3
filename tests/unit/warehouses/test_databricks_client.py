"""Airflow's own hooks against the local warehouse: what the adapter is built on, and the statements it will re-attach to."""

from __future__ import annotations

import json
import time

import pytest
from databricks_local import client
from databricks_shop import DAY, TABLE, create, needs_spark

from airflow_backfill_provider.connections import warehouse_for
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Published

pytestmark = [
    needs_spark,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated"),  # by the provider
]


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOCAL_DATABRICKS", json.dumps(client.connection()))


def test_a_spec_s_connection_opens_the_warehouse_through_airflow_s_hook() -> None:
    create()
    spec = BackfillSpec.model_validate(
        {
            "name": "shop",
            "target": {"table": TABLE, "partition_by": "day", "key": ["id"]},
            "transform": {"sql": "SELECT 1 AS id"},
            "compute": {"conn_id": "local_databricks"},
        }
    )

    warehouse = warehouse_for(spec)
    target = warehouse.describe(TABLE, "day", ["id"])

    assert [column.type for column in target.columns] == ["BIGINT", "DATE", "DECIMAL(12,2)"]
    assert warehouse.fingerprint(target, Published(), [DAY])[DAY.key].rows == 1
    warehouse.close()


def test_the_sql_hook_reads_through_it() -> None:
    from airflow.providers.databricks.hooks.databricks_sql import DatabricksSqlHook

    hook = DatabricksSqlHook("local_databricks", session_configuration={"TIMEZONE": "Asia/Tokyo"})

    assert hook.get_first("SELECT 42, current_timezone()") == (42, "Asia/Tokyo")


def test_a_statement_is_submitted_polled_and_cancelled_by_its_id() -> None:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    hook = DatabricksHook("local_databricks")
    quick = hook.post_sql_statement({"statement": "SELECT 1", "warehouse_id": "abc", "wait_timeout": "30s"})
    endless = hook.post_sql_statement(
        {"statement": "SELECT count(*) FROM range(100000000000)", "warehouse_id": "abc", "wait_timeout": "0s"}
    )

    assert hook.get_sql_statement_state(quick).is_successful
    assert hook.get_sql_statement_state(endless).is_running
    hook.cancel_sql_statement(endless)
    deadline = time.monotonic() + 60
    while hook.get_sql_statement_state(endless).is_running and time.monotonic() < deadline:
        time.sleep(0.2)
    assert hook.get_sql_statement_state(endless).state == "CANCELED"


def test_a_connection_of_the_suite_is_the_real_client_s() -> None:
    from databricks.sql.client import Connection

    with client.shared() as found:
        assert isinstance(found, Connection)
