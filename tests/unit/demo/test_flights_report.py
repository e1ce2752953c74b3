"""The report of the flights says to the row what plain SQL finds in ``raw.flights``, and so does the page about evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ledger_file import new_ledger
from report_reading import Report
from steps_world import World

from airflow_backfill_provider.demo.data import RANGE, build_warehouse
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.load import load_spec
from airflow_backfill_provider.spec.report_queries import ReportQuery
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse

ROOT = Path(__file__).parents[3]
STORM = ("2013-02-08", "2013-02-10")
"""Three days of a blizzard, in which more than a third of the flights never arrived."""


class Flights:
    """The demo's DuckDB file, read by itself."""

    name = "duckdb"

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.path), read_only=True) as connection:
            return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("flights")
    engine = Flights(folder / "warehouse.duckdb")
    build_warehouse(engine.path)
    query = ReportQuery.model_validate(
        {
            "name": "average delay of the storm",
            "sql": "SELECT avg(arrival_delay_minutes) FROM analytics.fct_flights "
            f"WHERE flight_date BETWEEN DATE '{STORM[0]}' AND DATE '{STORM[1]}'",
            "change_between": [0, 60],
        }
    )
    spec = load_spec(ROOT / "dags" / "backfills" / "fct_flights.yaml")
    warehouse = DuckDBWarehouse(engine.path, staging_dir=folder / "staging")
    with Ledger(new_ledger(folder)) as ledger:
        world = World(engine, warehouse, ledger, spec.model_copy(update={"report_queries": (query,)}))  # type: ignore[arg-type]
        yield world
    warehouse.close()


def test_the_sentence_and_the_numbers_are_what_plain_sql_finds(flights: World) -> None:
    between = f"flight_date BETWEEN DATE '{STORM[0]}' AND DATE '{STORM[1]}'"
    ((rows, unknown, arrival, departure, old, new),) = flights.engine.rows(
        "SELECT count(*), count(*) FILTER (WHERE arr_delay IS NULL), sum(arr_delay), sum(dep_delay), "
        f"avg(coalesce(arr_delay, 0)), avg(arr_delay) FROM raw.flights WHERE {between}"
    )
    by_day = flights.engine.rows(
        f"SELECT CAST(flight_date AS VARCHAR), count(*), count(*) FILTER (WHERE arr_delay IS NULL) FROM raw.flights "
        f"WHERE {between} GROUP BY 1 ORDER BY 1"
    )

    flights.run(start_date=STORM[0], end_date=STORM[1], reason="Cancelled flights looked punctual")

    report = Report(flights)
    assert report.sentence.startswith(
        f"analytics.fct_flights, {STORM[0]} to {STORM[1]}: {unknown:,} of {rows:,} rows changed, none added, none removed; "
        "average delay of the storm: "
    )
    assert f"{new:.4f}"[:5] in report.sentence
    assert f"from {old:.4f}"[:9] in report.sentence
    assert "the sum of arrival_delay_minutes and the sum of departure_delay_minutes stayed the same" in report.sentence
    table = report.rows("old_vs_new.csv")
    assert [(row["partition"], int(row["rows_old"]), int(row["changed"])) for row in table] == by_day
    assert (report.total("rows_new"), report.total("identical")) == (rows, rows - unknown)
    for side in ("old", "new"):
        assert report.total(f"sum of arrival_delay_minutes {side}") == arrival
        assert report.total(f"sum of departure_delay_minutes {side}") == departure
    published = f"SELECT count(*), count(arrival_delay_minutes) FROM analytics.fct_flights WHERE {between}"
    assert flights.engine.rows(published) == [(rows, rows - unknown)]


def test_the_numbers_of_the_page_about_evidence_are_those_of_the_flights(flights: World) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    rows = flights.engine.rows
    whole = f"flight_date BETWEEN DATE '{RANGE[0]}' AND DATE '{RANGE[1]}'"
    ((total, unknown, arrival, days),) = rows(
        "SELECT count(*), count(*) FILTER (WHERE arr_delay IS NULL), sum(arr_delay), count(DISTINCT flight_date) "
        f"FROM raw.flights WHERE {whole}"
    )
    assert f"{unknown:,} of {total:,} rows changed" in page
    assert f"{arrival:,}" in page
    assert f"{days} partitions" in page
    ((tried, most),) = rows(
        f"SELECT flight_date, count(*) FROM raw.flights WHERE {whole} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    assert f"{tried} computed twice alike" in page
    assert f"{most} rows" in page
    for day, of, changed in rows(
        "SELECT flight_date, count(*), count(*) FILTER (WHERE arr_delay IS NULL) FROM raw.flights "
        "WHERE flight_date BETWEEN DATE '2013-01-30' AND DATE '2013-01-31' GROUP BY 1 ORDER BY 1"
    ):
        assert f"{day}: {changed} of\n{of} rows" in page or f"{day}: {changed} of {of} rows" in page
    ((old, new),) = rows(
        "SELECT avg(coalesce(arr_delay, 0)), avg(arr_delay) FROM raw.flights WHERE carrier = '9E' AND month = 2"
    )
    assert f"from {old:.2f} to {new:.2f}" in page
