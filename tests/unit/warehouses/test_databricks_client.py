"""Airflow's own hooks against the local warehouse: what the adapter is built on, and the statements it will re-attach to."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from databricks_local import client
from databricks_local.shop import DAY, TABLE, create, needs_spark

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from databricks.sql.exc import ServerOperationError

from airflow_backfill_provider.connections import warehouse_for
from airflow_backfill_provider.errors import ConnectionLost, WarehouseError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Published
from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

pytestmark = [
    needs_spark,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated"),  # by the provider
]


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOCAL_DATABRICKS", json.dumps(client.connection()))


def shop(conn_id: str) -> BackfillSpec:
    return BackfillSpec.model_validate(
        {
            "name": "shop",
            "target": {"table": TABLE, "partition_by": "day", "key": ["id"]},
            "transform": {"sql": "SELECT 1 AS id"},
            "compute": {"conn_id": conn_id},
        }
    )


def test_a_spec_s_connection_opens_the_warehouse_through_airflow_s_hook() -> None:
    create()

    warehouse = warehouse_for(shop("local_databricks"))
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


def test_whoever_has_another_token_is_refused_by_the_client_and_by_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STRANGER", json.dumps(client.connection() | {"password": "dapi0123"}))
    warehouse = warehouse_for(shop("stranger"))
    with pytest.raises(WarehouseError, match=r"does not let compute\.conn_id in") as refused:
        warehouse.describe(TABLE, "day", ["id"])
    assert not isinstance(refused.value, ConnectionLost), "which would be tried again"
    assert isinstance(warehouse, DatabricksWarehouse)
    assert warehouse._statement_api is not None
    with pytest.raises(ServerOperationError, match="Invalid access token"):
        warehouse._statement_api.submit("SELECT 1")


def test_whoever_has_none_is_asked_for_one() -> None:
    found = client.connection()
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://{found['host']}:{found['port']}/api/2.0/sql/warehouses")
    assert refused.value.code == HTTPStatus.UNAUTHORIZED
    refused.value.close()


def test_a_connection_of_the_suite_is_the_real_client_s() -> None:
    from databricks.sql.client import Connection

    with client.shared() as found:
        assert isinstance(found, Connection)
