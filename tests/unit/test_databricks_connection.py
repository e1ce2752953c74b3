"""From an Airflow connection of type ``databricks`` to a warehouse, and whose compute it would take."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_backfill_provider.connections import warehouse_for
from airflow_backfill_provider.errors import ConnectionLost, SpecError
from airflow_backfill_provider.planning import build_plan
from airflow_backfill_provider.spec.model import BackfillSpec, PublishSpec
from airflow_backfill_provider.spec.request import Request

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

HOST, PATH = "dbc-0123.cloud.databricks.com", "/sql/1.0/warehouses/0123"


def spec(**compute: Any) -> BackfillSpec:
    return BackfillSpec.model_validate(
        {
            "name": "orders",
            "target": {"table": "analytics.orders", "partition_by": "day", "key": ["id"]},
            "transform": {"sql": "SELECT 1 AS id"},
            "compute": {"conn_id": "lake"} | compute,
        }
    )


def connect(monkeypatch: pytest.MonkeyPatch, conn_id: str = "lake", **parts: Any) -> None:
    connection = {"conn_type": "databricks", "host": HOST, "extra": {"http_path": PATH}} | parts
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))


def test_it_leads_to_the_warehouse_of_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    connect(monkeypatch)

    warehouse = warehouse_for(spec())

    assert isinstance(warehouse, DatabricksWarehouse)
    warehouse.close()


def test_a_connection_without_a_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, extra={})

    with pytest.raises(SpecError, match="names no SQL warehouse"):
        warehouse_for(spec())


@pytest.mark.parametrize(
    ("extra", "uses_the_api"),
    [
        pytest.param({}, True, id="a SQL warehouse"),
        pytest.param({"backfill_statement_api": False}, False, id="not wanted"),
        pytest.param({"session_configuration": {"ANSI_MODE": "false"}}, False, id="a session of its own"),
        pytest.param({"http_path": "/sql/protocolv1/o/1/0123-456789-abc"}, False, id="a cluster"),
    ],
)
def test_stages_are_filled_through_the_api_where_a_statement_means_the_same_there(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], uses_the_api: bool
) -> None:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    connect(monkeypatch, extra={"http_path": PATH} | extra)

    warehouse = warehouse_for(spec())

    assert isinstance(warehouse, DatabricksWarehouse)
    assert (warehouse._statement_api is not None) is uses_the_api
    warehouse.close()


def test_a_statement_of_the_api_finds_the_tables_that_the_sql_hook_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.databricks.hooks.databricks import DatabricksHook

    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(DatabricksHook, "post_sql_statement", lambda self, json: sent.append(json) or "s1")
    connect(monkeypatch, extra={"http_path": PATH, "catalog": "main", "schema": "sales"})
    warehouse = warehouse_for(spec())

    assert isinstance(warehouse, DatabricksWarehouse)
    assert warehouse._statement_api is not None
    assert warehouse._statement_api.submit("SELECT 1") == "s1"
    assert sent == [
        {"warehouse_id": "0123", "wait_timeout": "0s", "catalog": "main", "schema": "sales", "statement": "SELECT 1"}
    ]
    warehouse.close()


def test_whether_the_api_is_wanted_is_true_or_false(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, extra={"http_path": PATH, "backfill_statement_api": "no"})

    with pytest.raises(SpecError, match="backfill_statement_api in its extra is 'no'"):
        warehouse_for(spec())


@pytest.mark.parametrize(
    "live",
    [
        pytest.param({}, id="the same"),
        pytest.param({"extra": {"http_path": "/sql/1.0/endpoints/0123"}}, id="by the earlier name of warehouses"),
        pytest.param({"extra": {"http_path": "sql/1.0/warehouses/0123"}}, id="without the first slash"),
        pytest.param({"extra": {"http_path": PATH + "/"}}, id="with a last slash"),
        pytest.param({"host": f"https://{HOST}/"}, id="with a scheme"),
        pytest.param({"host": HOST.upper()}, id="in capitals"),
        pytest.param({"host": f" {HOST}"}, id="with a blank"),
    ],
)
def test_a_backfill_on_the_live_pipeline_s_warehouse_is_refused(
    monkeypatch: pytest.MonkeyPatch, live: dict[str, Any]
) -> None:
    connect(monkeypatch)
    connect(monkeypatch, "live", **live)

    with pytest.raises(SpecError, match="lead to one SQL warehouse"):
        warehouse_for(spec(live_conn_id="live"))


@pytest.mark.parametrize(
    ("live", "compute"),
    [
        pytest.param({"extra": {"http_path": "/sql/1.0/warehouses/4567"}}, {}, id="another warehouse"),
        pytest.param({"host": "dbc-4567.cloud.databricks.com"}, {}, id="another workspace"),
        pytest.param({}, {"allow_shared_compute": True}, id="allowed"),
    ],
)
def test_a_backfill_beside_the_live_pipeline_is_let_by(
    monkeypatch: pytest.MonkeyPatch, live: dict[str, Any], compute: dict[str, Any]
) -> None:
    connect(monkeypatch)
    connect(monkeypatch, "live", **live)

    warehouse_for(spec(live_conn_id="live", **compute)).close()


@pytest.mark.parametrize(
    "live",
    [
        pytest.param({"extra": {}}, id="no path"),
        pytest.param({"host": ""}, id="no host"),
        pytest.param({"conn_type": "postgres"}, id="another engine"),
    ],
)
def test_a_live_connection_of_which_nobody_can_tell_where_it_leads_is_refused(
    monkeypatch: pytest.MonkeyPatch, live: dict[str, Any]
) -> None:
    connect(monkeypatch)
    connect(monkeypatch, "live", **live)

    with pytest.raises(SpecError, match="'live' does not say which SQL warehouse it leads to"):
        warehouse_for(spec(live_conn_id="live"))


def test_a_live_connection_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch)

    with pytest.raises(SpecError, match="'absent': there is no such Airflow connection"):
        warehouse_for(spec(live_conn_id="absent"))


def test_a_live_connection_means_nothing_to_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, conn_type="duckdb")
    connect(monkeypatch, "live")

    with pytest.raises(SpecError, match="is for Databricks"):
        warehouse_for(spec(live_conn_id="live"))


def test_sharing_is_allowed_with_somebody() -> None:
    with pytest.raises(ValueError, match="allow_shared_compute needs live_conn_id"):
        spec(allow_shared_compute=True)


def test_a_swap_of_views_is_refused_before_anything_is_asked_with_what_it_would_lose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch)
    swapping = spec().model_copy(update={"publish": PublishSpec(mechanism="view_swap")})
    request = Request.from_conf({"start_date": "2024-01-01", "end_date": "2024-01-02"})
    warehouse = warehouse_for(swapping)

    with pytest.raises(
        SpecError, match=r"view_swap is not supported by Databricks SQL.*would be gone for readers.*replace_partitions"
    ):
        build_plan(swapping, request, warehouse, backfill_id="b1", now=datetime(2024, 6, 1, tzinfo=UTC))
    warehouse.close()


def test_a_login_that_could_not_be_had_is_told_as_a_connection_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.databricks.hooks.databricks_sql import DatabricksSqlHook
    from airflow.sdk.exceptions import AirflowException

    def away(hook: DatabricksSqlHook) -> None:
        raise AirflowException("API requests to Databricks failed 3 times. Giving up.")

    connect(monkeypatch)
    monkeypatch.setattr(DatabricksSqlHook, "get_conn", away)
    warehouse = warehouse_for(spec())

    with pytest.raises(ConnectionLost, match="failed 3 times"):
        warehouse.storage()
    warehouse.close()
