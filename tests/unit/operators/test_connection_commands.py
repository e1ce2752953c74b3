"""The commands that the docs and the messages give for connections, by the real command line, on its real database."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import split

import duckdb_outside
import pytest
from deltalake import write_deltalake
from operators_world import ROOT, Shop

SPEC = """\
name: lake_orders
target: {table: analytics.orders, partition_by: day, key: [id]}
transform: {sql: lake_orders.sql}
compute: {conn_id: warehouse_backfill}
"""
SQL = """\
SELECT id, day, amount + 1 AS amount FROM raw.orders
WHERE day >= DATE '{{ data_interval_start | ds }}' AND day < DATE '{{ data_interval_end | ds }}'
"""
ORDERS = "SELECT i AS id, DATE '2024-01-01' + CAST(i // 10 AS INTEGER) AS day, i AS amount FROM range(100) AS t (i)"


@pytest.fixture
def airflow(shop: Shop) -> Shop:
    """The shop with a database of Airflow's own."""
    done = shop.airflow("db", "migrate")
    assert done.returncode == 0, done.stderr
    return shop


def commands(page: str) -> list[list[str]]:
    """The words of each `airflow connections add` on the page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("\\\n", " ")
    return [split(line)[1:] for line in re.findall(r"^airflow connections add .*", text, flags=re.MULTILINE)]


def type_of(shop: Shop, conn_id: str) -> str:
    """As whom Airflow keeps the connection."""
    done = shop.airflow("connections", "get", conn_id, "--output", "json")
    return str(json.loads(done.stdout)[0]["conn_type"])


def test_a_delta_connection_that_is_added_as_its_page_says_is_planned_with(airflow: Shop, tmp_path: Path) -> None:
    on_a_disk, in_object_storage = commands("delta.md")
    lake = tmp_path / "lake"
    for table in ("raw", "analytics"):
        with duckdb_outside.empty() as connection:
            write_deltalake(lake / table / "orders", connection.sql(ORDERS).to_arrow_table(), partition_by="day")
    (tmp_path / "lake_orders.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "lake_orders.sql").write_text(SQL, encoding="utf-8")

    added = airflow.airflow(*(str(lake) if word == "/data/warehouse" else word for word in on_a_disk))
    range_asked = ("--from-date", "2024-01-02", "--to-date", "2024-01-04")
    planned = airflow.airflow("safe-backfill", "plan", str(tmp_path / "lake_orders.yaml"), *range_asked)

    assert added.returncode == 0, added.stderr
    assert "invalid" not in added.stderr
    assert planned.returncode == 0, planned.stderr
    assert "analytics.orders" in planned.stdout
    removed = airflow.airflow("connections", "delete", "warehouse_backfill")
    assert removed.returncode == 0, removed.stderr
    added = airflow.airflow(*in_object_storage)
    assert added.returncode == 0, added.stderr
    assert type_of(airflow, "warehouse_backfill") == "delta"


def test_airflow_tests_a_delta_connection_by_opening_its_root(
    airflow: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Enabled")
    (tmp_path / "lake").mkdir()
    for conn_id, folder in (("there", "lake"), ("gone", "nowhere")):
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "delta", "host": str(tmp_path / folder)})
        )

    there, gone = airflow.airflow("connections", "test", "there"), airflow.airflow("connections", "test", "gone")

    assert there.returncode == 0, there.stdout
    assert "Connection success!" in there.stdout
    assert gone.returncode == 1
    assert "There is no folder" in gone.stdout


def test_a_type_that_airflow_did_not_keep_is_told_so_with_the_command_that_makes_a_ledger(
    airflow: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER")
    none = airflow.airflow("safe-backfill", "list")
    assert none.returncode == 1
    assert "`airflow safe-backfill init` creates it" in none.stderr
    assert "--conn-type sqlite" not in none.stderr
    assert "type sqlite" not in none.stderr
    file = tmp_path / "other.db"
    airflow.airflow("connections", "add", "safe_backfill_ledger", "--conn-type", "sqlite", "--conn-host", str(file))

    wrong = airflow.airflow("safe-backfill", "list")

    assert wrong.returncode == 1
    assert "has type 'generic'" in wrong.stderr
    assert "keeps a type that no installed provider registers as generic" in wrong.stderr
    (delete, init) = re.findall(r"airflow (connections delete \w+|safe-backfill init)", wrong.stderr)
    for words in (split(delete), split(init)):
        done = airflow.airflow(*words)
        assert done.returncode == 0, done.stderr
    assert airflow.airflow("safe-backfill", "list").returncode == 0
