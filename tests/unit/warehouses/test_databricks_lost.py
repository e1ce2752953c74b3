"""What says nothing of a statement: a connection that is lost, and a right that the login has not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from databricks_local.fake import FakeConnection, raising

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from databricks.sql.exc import RequestError, ServerOperationError

from airflow_backfill_provider.errors import ConnectionLost, TransformRefused, VersionGone, WarehouseError
from airflow_backfill_provider.warehouses.base import Warehouse
from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

ASKS = [
    pytest.param(lambda warehouse: warehouse.require_versions({"raw.orders": 3}), id="a pinned version"),
    pytest.param(lambda warehouse: warehouse.select_columns("SELECT 1 AS id"), id="a transform"),
]
Ask = Callable[[Warehouse], object]


@pytest.mark.parametrize("ask", ASKS)
def test_a_connection_that_is_lost_while_it_is_asked_for_is_told_as_lost(ask: Ask) -> None:
    warehouse = DatabricksWarehouse(lambda settings: FakeConnection(raising(RequestError("no route"))))

    with pytest.raises(ConnectionLost, match="no route"):
        ask(warehouse)


@pytest.mark.parametrize("ask", ASKS)
def test_a_right_that_is_missing_is_told_as_it_is(ask: Ask) -> None:
    refused = ServerOperationError("[INSUFFICIENT_PERMISSIONS] User does not have SELECT on Table 'raw.orders'.")
    warehouse = DatabricksWarehouse(lambda settings: FakeConnection(raising(refused)))

    with pytest.raises(WarehouseError, match="does not have SELECT") as told:
        ask(warehouse)
    assert not isinstance(told.value, VersionGone | TransformRefused)
