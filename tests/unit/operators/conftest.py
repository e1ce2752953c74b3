from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb_outside
import pytest
from airflow.sdk.execution_time import task_runner
from ledger_file import new_ledger
from operators_world import SPEC, SQL, Shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    (tmp_path / "orders.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "orders.sql").write_text(SQL, encoding="utf-8")
    duckdb_outside.run(
        tmp_path / "shop.duckdb",
        """
        CREATE SCHEMA raw; CREATE SCHEMA analytics;
        CREATE TABLE raw.orders AS
            SELECT i AS order_id, DATE '2024-03-01' + CAST(i // 5 AS INTEGER) AS order_date, 10 AS amount
            FROM range(50) AS t (i);
        CREATE TABLE analytics.orders AS
            SELECT order_id, order_date, CAST(amount AS DOUBLE) AS amount FROM raw.orders;
        """,
    )
    connections: dict[str, dict[str, Any]] = {
        "shop": {"conn_type": "duckdb", "host": str(tmp_path / "shop.duckdb")},
        "safe_backfill_ledger": {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")},
    }
    for conn_id, connection_as in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection_as))
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", "run")
    monkeypatch.setenv("AIRFLOW__SAFE_BACKFILL__REPORTS_FOLDER", str(tmp_path / "reports"))
    new_ledger(tmp_path)
    return Shop(tmp_path)


@pytest.fixture
def throttled(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The shop, where a lag is above its limit."""
    live = {"conn_type": "duckdb", "host": str(shop.folder / "live.duckdb")}
    monkeypatch.setenv("AIRFLOW_CONN_LIVE", json.dumps(live))
    lag = "{name: lag, sql: SELECT 42, conn_id: live, max: 30, every: 5m}"
    shop.spec_file.write_text(f"{shop.spec_file.read_text()}throttle: [{lag}]\n", encoding="utf-8")
    return shop


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the tasks of a run by hand told their supervisor."""
    messages: list[Any] = []

    def send(message: Any) -> Any:
        messages.append(message)
        return message

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    return messages
