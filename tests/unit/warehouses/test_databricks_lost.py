"""What says nothing of a statement: a connection that is lost, and a right that the login has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from databricks_local.fake import Answer, FakeConnection, raising

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from databricks.sql.exc import DatabaseError, RequestError, ServerOperationError
from urllib3.exceptions import ProtocolError

from airflow_backfill_provider.errors import ConnectionLost, SpecError, TransformRefused, VersionGone, WarehouseError
from airflow_backfill_provider.warehouses.base import Warehouse
from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse, session

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


@pytest.mark.parametrize("ask", ASKS)
def test_a_table_that_not_every_login_sees_whole_is_told_as_one_that_cannot_be_worked_with(ask: Ask) -> None:
    veiled = ServerOperationError(
        "[ROW_LEVEL_SECURITY_COLUMN_MASK_FEATURE_NOT_SUPPORTED.TIME_TRAVEL] Row filters or column masks are not supported."
    )
    warehouse = DatabricksWarehouse(lambda settings: FakeConnection(raising(veiled)))

    with pytest.raises(SpecError, match="row filter or a column mask"):
        ask(warehouse)


class Warehouses:
    """Connections one after the other, each with answers of its own; the last one's are every later one's too."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.opened: list[FakeConnection] = []

    def __call__(self, settings: Mapping[str, str]) -> FakeConnection:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.opened.append(FakeConnection(answer))
        return self.opened[-1]


SESSION_GONE = DatabaseError("Invalid SessionHandle: SessionHandle [6f1c8f4e-6d3b-4e0e-9b1f-0d5f6f3b7c11]")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RequestError("no route"), id="not reached"),
        pytest.param(SESSION_GONE, id="the session was ended"),
        pytest.param(ProtocolError("Connection broken"), id="broken while its answer was read"),
        pytest.param(ConnectionResetError("reset by peer"), id="reset"),
    ],
)
def test_what_comes_after_a_connection_that_was_lost_has_another_one(error: Exception) -> None:
    connections = Warehouses(raising(error), lambda sql: [])
    warehouse = DatabricksWarehouse(connections)
    location = "stage__b1_first__0123456789ab"

    with pytest.raises(ConnectionLost):
        warehouse.drop(location)
    warehouse.drop(location)

    lost, fresh = connections.opened
    assert lost.is_closed
    assert [sql for sql in fresh.ran if sql.startswith("DROP")]


def test_a_connection_is_left_for_another_before_a_login_s_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Warehouses(lambda sql: [])
    now = [1000.0]
    monkeypatch.setattr(session, "monotonic", lambda: now[0])

    kept = session.Session(lambda: connections({}))
    kept.run("SELECT 1")
    assert len(connections.opened) == 1
    now[0] += 3600
    kept.run("SELECT 2")

    old, fresh = connections.opened
    assert old.is_closed
    assert fresh.ran == ["SET TIME ZONE 'UTC'", "SELECT 2"]


def test_a_connection_that_cannot_be_let_go_of_does_not_end_what_follows() -> None:
    class Stuck(FakeConnection):
        def close(self) -> None:
            raise IndexError("tuple index out of range")  # as the connector's own, when it is refused

    session.Session(lambda: Stuck(lambda sql: [])).close()
