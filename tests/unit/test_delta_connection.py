"""From an Airflow connection of type ``delta`` to a warehouse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.models import Connection

from airflow_backfill_provider.connections import warehouse_for
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.delta import DeltaWarehouse

SPEC = BackfillSpec.model_validate(
    {
        "name": "orders",
        "target": {"table": "analytics.orders", "partition_by": "day", "key": ["id"]},
        "transform": {"sql": "SELECT 1 AS id"},
        "compute": {"conn_id": "lake"},
    }
)


def connect(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta"} | parts))


def test_its_host_is_the_folder_of_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, host=str(tmp_path), extra={"storage_options": {"AWS_REGION": "eu-west-1"}})

    warehouse = warehouse_for(SPEC)

    assert isinstance(warehouse, DeltaWarehouse)
    assert warehouse.storage() == ()
    warehouse.close()


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({}, "names no folder of Delta tables"),
        ({"host": "/data", "extra": {"storage_options": {"secret": 5}}}, "mapping from text to text"),
        ({"host": "/data", "extra": {"storage_options": "secret"}}, "mapping from text to text"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], told: str
) -> None:
    connect(monkeypatch, **parts)

    with pytest.raises(SpecError, match=f"'lake'.*{told}") as refused:
        warehouse_for(SPEC)
    assert "secret" not in str(refused.value).replace("storage_options", "")


def test_a_type_that_airflow_did_not_keep_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, conn_type="generic", host="/data")
    with pytest.raises(
        SpecError, match=r"keeps a type that no installed provider registers as generic.*delete lake.*pip install"
    ):
        warehouse_for(SPEC)
    connect(monkeypatch, conn_type="ftp")
    with pytest.raises(SpecError, match=r"supported: databricks, delta, duckdb, postgres\.$"):
        warehouse_for(SPEC)


@pytest.mark.parametrize("host", ["/data/ware house", "s3://bucket/warehouse"])
def test_the_root_outlives_the_uri_that_the_ui_tests_a_connection_by(host: str) -> None:
    written = Connection(
        conn_id="lake", conn_type="delta", host=host, extra='{"storage_options": {"AWS_REGION": "eu"}}'
    )

    read = Connection(conn_id="lake", uri=written.get_uri())

    assert (read.conn_type, read.host) == ("delta", host)
    assert read.extra_dejson == {"storage_options": {"AWS_REGION": "eu"}}
