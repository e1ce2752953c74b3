"""What a stage may do about a statement of the API whose end is not known: nothing is written beside it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from databricks_local.fake import FakeConnection

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from databricks.sql.exc import RequestError, ServerOperationError

from airflow_backfill_provider.errors import ConnectionLost, LedgerError, WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Recompute, Running, Target
from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse, statements
from airflow_backfill_provider.warehouses.databricks.statements import UNKNOWN, StatementApi, Statements
from airflow_backfill_provider.windows import Grain, partition_at


class Workspace:
    """One statement, which is in these states one look after the other, and then in the last for good."""

    def __init__(self, *states: str | Exception, cancelled: str = "CANCELED") -> None:
        self.states, self.cancelled = list(states), cancelled

    def look(self, statement: str) -> tuple[str, str]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state, ""

    def cancel(self, statement: str) -> None:
        self.states = ["RUNNING", self.cancelled]

    def statements(self, timeout: timedelta | None = None) -> Statements:
        return Statements(self.api, timeout)

    @property
    def api(self) -> StatementApi:
        return StatementApi(lambda sql: "s1", self.look, self.cancel)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(statements, "_END_SECONDS", 0.05)
    monkeypatch.setattr(statements, "_PATIENCE_SECONDS", 0.05)


def nothing(statement: str) -> None:
    pass


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(UNKNOWN, id="nobody knows it"),
        pytest.param(ServerOperationError("denied"), id="the look is refused"),
        pytest.param(RequestError("no route"), id="no look is answered"),
    ],
)
def test_a_statement_that_may_still_run_ends_the_attempt(last: str | Exception) -> None:
    asked = Workspace("RUNNING", last).statements()

    with pytest.raises(ConnectionLost, match="Whether the statement s1 is over is not known"):
        asked.run("INSERT", nothing)
    assert asked.goes_on


@pytest.mark.parametrize("fault", [RequestError("no route"), ServerOperationError("503")], ids=["no answer", "refused"])
def test_looks_that_fail_for_a_while_do_not_end_the_attempt(fault: Exception) -> None:
    asked = Workspace("RUNNING", fault, fault, "RUNNING", fault, "SUCCEEDED").statements()

    asked.run("INSERT", nothing)

    assert not asked.goes_on


def test_cancelling_does_not_wait_for_looks_that_fail() -> None:
    asked = Workspace("RUNNING", RequestError("no route")).statements()
    asked.cancel()

    with pytest.raises(WarehouseError, match="was cancelled"):
        asked.run("INSERT", nothing)


def test_a_late_statement_is_waited_for_until_it_is_cancelled() -> None:
    asked = Workspace("RUNNING").statements(timedelta(0))

    with pytest.raises(WarehouseError, match=r"took longer than compute\.statement_timeout") as raised:
        asked.run("INSERT", nothing)
    assert not isinstance(raised.value, ConnectionLost)
    assert not asked.goes_on


def test_a_late_statement_that_is_not_seen_to_end_ends_the_attempt() -> None:
    asked = Workspace("RUNNING", cancelled="RUNNING").statements(timedelta(0))

    with pytest.raises(ConnectionLost, match="it was cancelled, and has not come to its end yet"):
        asked.run("INSERT", nothing)
    assert asked.goes_on


def test_a_late_statement_that_ended_well_before_it_was_cancelled_is_kept() -> None:
    Workspace("RUNNING", cancelled="SUCCEEDED").statements(timedelta(0)).run("INSERT", nothing)


@pytest.mark.parametrize(("cancelled", "told"), [("CANCELED", LedgerError), ("RUNNING", ConnectionLost)])
def test_a_statement_that_could_not_be_told_is_ended(cancelled: str, told: type[Exception]) -> None:
    def refuse(statement: str) -> None:
        raise LedgerError("gone")

    with pytest.raises(told):
        Workspace("RUNNING", cancelled=cancelled).statements().run("INSERT", refuse)


class Connection:
    """A warehouse that keeps what it was told to run, and has none of the stages any more."""

    active_result_set = None

    def __init__(self) -> None:
        self.ran: list[str] = []

    def cursor(self) -> Connection:
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        self.ran.append(sql)
        if sql.startswith("SELECT") or "FROM" in sql:
            raise ServerOperationError(
                "[TABLE_OR_VIEW_NOT_FOUND] The table or view `backfill_staging`.`stage__…` cannot be found."
            )

    def fetchall_arrow(self) -> Any:
        return SimpleNamespace(columns=())


TARGET = Target("shop.orders", "day", Clock(ColumnKind.DATE), ("id",), (Column("id", "BIGINT"), Column("day", "DATE")))
DAY = partition_at(date(2024, 1, 1), Grain.DAY)


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        pytest.param(ServerOperationError("denied"), True, id="not known to be over"),
        pytest.param("FAILED", False, id="over"),
    ],
)
def test_a_stage_that_a_told_statement_may_still_fill_is_kept(state: str | Exception, is_kept: bool) -> None:
    connection = Connection()
    warehouse = DatabricksWarehouse(lambda settings: connection, statement_api=Workspace(state).api)

    with pytest.raises(WarehouseError), warehouse.open_stage(TARGET, "b1", "first") as writer:
        writer._insert("INSERT", ())

    assert any(sql.startswith("DROP") for sql in connection.ran) is not is_kept


def test_a_stage_that_a_told_statement_has_filled_is_kept_when_it_cannot_be_read_for_the_moment() -> None:
    def answer(sql: str) -> list[dict[str, Any]]:
        if "FROM (SELECT" in sql and sql.startswith("SELECT"):
            raise RequestError("no route")
        return []

    connections: list[FakeConnection] = []

    def connect(settings: Mapping[str, str]) -> FakeConnection:
        connections.append(FakeConnection(answer))
        return connections[-1]

    warehouse = DatabricksWarehouse(connect, statement_api=Workspace("SUCCEEDED").api)
    with pytest.raises(ConnectionLost), warehouse.open_stage(TARGET, "b1", "first") as writer:
        writer.write(Recompute((DAY,), "SELECT 1 AS id, DATE '2024-01-01' AS day"))

    assert not [sql for one in connections for sql in one.ran if sql.startswith("DROP")]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param("SUCCEEDED", id="its stage is gone"),
        pytest.param(UNKNOWN, id="nobody knows it"),
        pytest.param(ServerOperationError("denied"), id="the look is refused"),
    ],
)
def test_what_cannot_be_taken_over_is_staged_anew(state: str | Exception) -> None:
    warehouse = DatabricksWarehouse(lambda settings: Connection(), statement_api=Workspace(state).api)
    running = Running("s1", "stage__b1_first__0123456789ab", (DAY.key,))

    assert warehouse.take_over(TARGET, "b1", running, [DAY]) == ()
