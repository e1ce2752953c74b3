"""The asset that the live DAG writes has to be the table that is rebuilt."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetResult, ErrorResponse, GetAssetByName, GetAssetByUri
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.operators.announce import assets
from airflow_backfill_provider.operators.outlet import require_outlet
from airflow_backfill_provider.spec.model import BackfillSpec

ORDERS = "duckdb://shop/analytics/orders"


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The assets that active DAGs of this Airflow refer to: URIs by name."""
    assets = {"orders": ORDERS}

    def send(message: Any) -> Any:
        if not isinstance(message, GetAssetByName | GetAssetByUri):
            return None
        wanted = message.name if isinstance(message, GetAssetByName) else message.uri
        found = {name: uri for name, uri in assets.items() if wanted in (name, uri)}
        return next((AssetResult(name=name, uri=uri, group="asset") for name, uri in found.items()), ErrorResponse())

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    return assets


def naming(spec: BackfillSpec, outlet: str, **compute: Any) -> BackfillSpec:
    """The spec with that outlet, and computing as said."""
    target = spec.target.model_copy(update={"outlet": outlet})
    return spec.model_copy(update={"target": target, "compute": spec.compute.model_copy(update=compute)})


@pytest.mark.parametrize("outlet", ["orders", ORDERS])
def test_a_backfill_of_the_live_dags_own_table_goes_on(shop: Shop, declared: dict[str, str], outlet: str) -> None:
    assert HandRun(wired(naming(shop.spec, outlet), request=OF_THE_DAY)).execute("plan_it")
    declared["orders"] = "file://shop/Analytics.Orders"
    require_outlet(naming(shop.spec, "orders"))


@pytest.mark.parametrize("uri", ["duckdb://shop/analytics/customers", "duckdb://shop/orders", "orders"])
def test_another_table_than_the_live_dags_is_refused_and_nothing_is_planned(
    shop: Shop, declared: dict[str, str], uri: str
) -> None:
    declared["orders"] = uri
    with pytest.raises(
        AirflowFailException, match=r"Wrong target\? target\.table is analytics\.orders, .*Nothing was planned"
    ):
        HandRun(wired(naming(shop.spec, "orders"), request=OF_THE_DAY)).execute("plan_it")
    with shop.ledger() as ledger:
        assert ledger.backfills() == []


@pytest.mark.parametrize("asset", [0, 1])
@pytest.mark.parametrize("by", ["name", "uri"])
def test_what_backfills_of_the_table_announce_does_not_stand_for_what_the_live_dag_writes(
    shop: Shop, declared: dict[str, str], asset: int, by: str
) -> None:
    announced = assets(shop.spec.target.table)[asset]
    declared[announced.name] = announced.uri
    with pytest.raises(SpecError, match=r"which backfills announce.*Nothing was planned"):
        require_outlet(naming(shop.spec, getattr(announced, by)))


@pytest.mark.parametrize("outlet", ["ordres", "duckdb://shop/analytics/ordres"])
def test_an_asset_that_no_dag_declares_is_refused(shop: Shop, declared: dict[str, str], outlet: str) -> None:
    assert outlet not in declared
    with pytest.raises(SpecError, match="no active DAG refers to such an asset"):
        require_outlet(naming(shop.spec, outlet))


@pytest.mark.parametrize(
    "place",
    [
        "postgres://other/shop/analytics/orders",
        "postgres://live:5433/shop/analytics/orders",
        "postgres://live/staging/analytics/orders",
    ],
)
def test_the_same_table_of_another_database_is_refused(
    shop: Shop, declared: dict[str, str], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    there = {"conn_type": "postgres", "host": "live", "schema": "shop", "login": "ann", "password": "hush"}
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps(there))
    declared["orders"] = Asset(uri="postgres://live/shop/analytics/orders").uri
    require_outlet(naming(shop.spec, "orders", conn_id="there"))
    declared["orders"] = Asset(uri=place).uri
    with pytest.raises(SpecError, match=r"Wrong target\? compute\.conn_id leads to live:5432/shop") as refused:
        require_outlet(naming(shop.spec, "orders", conn_id="there"))
    assert "hush" not in str(refused.value)


def test_a_database_with_a_dot_in_its_name_is_known_by_all_of_it(
    shop: Shop, declared: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_THERE", json.dumps({"conn_type": "postgres", "host": "live", "schema": "shop.live"})
    )
    declared["orders"] = Asset(uri="postgres://live/shop.live/analytics/orders").uri
    require_outlet(naming(shop.spec, "orders", conn_id="there"))
    declared["orders"] = Asset(uri="postgres://live/live/analytics/orders").uri
    with pytest.raises(SpecError, match=r"leads to live:5432/shop\.live"):
        require_outlet(naming(shop.spec, "orders", conn_id="there"))


def test_a_connection_that_names_no_database_is_refused_and_says_so(
    shop: Shop, declared: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "postgres", "host": "live"}))
    declared["orders"] = Asset(uri="postgres://live/shop/analytics/orders").uri
    with pytest.raises(SpecError, match=r"leads to live:5432, and its schema names no database"):
        require_outlet(naming(shop.spec, "orders", conn_id="there"))
