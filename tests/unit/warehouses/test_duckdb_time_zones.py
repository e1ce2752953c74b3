"""The same instants whatever the time zone of the host, of DuckDB's session, or of who wrote the rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from stage_writing import write_one

from airflow_backfill_provider.warehouses.base import Action, Publication, Published, Staged
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.windows import Grain, parse_key

ZONES = ("UTC", "America/Chicago", "Asia/Kolkata")
KINDS = {
    "DATE": ["2024-03-09", "2024-03-10", "2024-03-10", "2024-03-11"],
    "TIMESTAMP": [
        "2024-03-10 05:59:59.999999",
        "2024-03-10 06:00:00",
        "2024-03-11 04:59:59.999999",
        "2024-03-11 05:00:00",
    ],
    "TIMESTAMPTZ": [
        "2024-03-09 23:59:59.999999-06",
        "2024-03-10 00:00:00-06",
        "2024-03-10 23:59:59.999999-05",
        "2024-03-11 00:00:00-05",
    ],
}
"""Rows around 2024-03-10 in Chicago, a day of 23 hours: the second and the third lie in it."""


@pytest.fixture(params=ZONES)
def host_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("session_zone", ZONES)
@pytest.mark.parametrize("kind", KINDS)
def test_deleted_rows_are_staged_rows_are_rows_inside(
    tmp_path: Path, host_zone: str, session_zone: str, kind: str
) -> None:
    path = tmp_path / "w.duckdb"
    # Open all the while, so that the warehouse works on this very instance with its settings.
    connection = duckdb.connect(str(path))
    connection.execute(f"SET GLOBAL TimeZone = '{session_zone}'")
    connection.execute("CREATE SCHEMA analytics")
    connection.execute(f"CREATE TABLE analytics.t (id INTEGER, p {kind}, v INTEGER)")
    for number, value in enumerate(KINDS[kind]):
        connection.execute(f"INSERT INTO analytics.t VALUES ({number}, '{value}', 0)")
    connection.execute("INSERT INTO analytics.t VALUES (9, NULL, 0)")
    warehouse = DuckDBWarehouse(path)
    target = warehouse.describe("analytics.t", "p", ["id"], Reading("America/Chicago"))
    day, *neighbours = (
        parse_key(key, Grain.DAY, "America/Chicago") for key in ("2024-03-10", "2024-03-09", "2024-03-11")
    )
    around = warehouse.fingerprint(target, Published(), neighbours)
    with warehouse.open_stage(target, "b1", day.label) as writer:
        staged = write_one(writer, day, "SELECT id, p, v + 1 AS v FROM analytics.t WHERE id IN (1, 2)")
    before = warehouse.fingerprint(target, Published(), [day])

    receipt = warehouse.replace_partitions(
        target,
        Publication("b1", Action.PUBLISH, "p", (day,), Staged((staged,)), before, {day.key: staged.fingerprint}),
    )

    assert (before[day.key].rows, staged.fingerprint.rows, receipt.deleted, receipt.inserted) == (2, 2, 2, 2)
    assert warehouse.fingerprint(target, Published(), neighbours) == around
    assert [mark.rows for mark in around.values()] == [1, 1]
    assert connection.execute("SELECT id, v FROM analytics.t ORDER BY id").fetchall() == [
        (0, 0), (1, 1), (2, 1), (3, 0), (9, 0),
    ]  # fmt: skip
    warehouse.close()
    connection.close()


def test_a_transform_runs_in_utc_whatever_the_settings_say(tmp_path: Path, host_zone: str) -> None:
    path = tmp_path / "w.duckdb"
    connection = duckdb.connect(str(path))
    connection.execute("SET GLOBAL TimeZone = 'Asia/Kolkata'")
    connection.execute("CREATE TABLE t (id INTEGER, p TIMESTAMPTZ, d DATE)")
    warehouse = DuckDBWarehouse(path)
    target = warehouse.describe("t", "d", ["id"])
    day = parse_key("2024-03-10", Grain.DAY)
    with warehouse.open_stage(target, "b1", day.label) as writer:
        staged = write_one(
            writer,
            day,
            "SELECT 1 AS id, p, CAST(p AS DATE) AS d FROM (SELECT TIMESTAMPTZ '2024-03-10 23:00:00+00' AS p)",
        )
    assert staged.fingerprint.rows == 1
    warehouse.close()
    connection.close()
