"""The demo's data is the real one, and the published table is wrong in exactly the way the demo corrects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_backfill_provider.demo.data import KEY, RANGE, SOURCE_ROWS, TARGET, append_live_rows, build_warehouse
from airflow_backfill_provider.demo.engines import ENGINES, demo_engine
from airflow_backfill_provider.demo.engines.duckdb import DuckDBEngine
from airflow_backfill_provider.demo.local_databricks import server as local_databricks
from airflow_backfill_provider.demo.local_postgres import find_programs
from airflow_backfill_provider.demo.verify import live_rows, wrong_rows
from airflow_backfill_provider.spec.load import load_spec
from airflow_backfill_provider.transform.render import render
from airflow_backfill_provider.windows import Grain, partition_at

DAGS = Path(__file__).parents[3] / "dags"
SPARK = "databricks-local"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "warehouse.duckdb"
    build_warehouse(path)
    return path


@pytest.fixture
def rows(built: Path) -> Iterator[Any]:
    with duckdb.connect(str(built), read_only=True) as connection:
        yield lambda sql, *values: connection.execute(sql, list(values)).fetchall()


def test_every_flight_of_the_package_is_loaded_and_published(rows: Any) -> None:
    assert rows("SELECT count(*) FROM raw.flights") == [(SOURCE_ROWS,)]
    assert rows(f"SELECT count(*), count(DISTINCT flight_date) FROM {TARGET}") == [(SOURCE_ROWS, 365)]


def test_the_key_identifies_one_row_and_is_never_null(rows: Any) -> None:
    key = ", ".join(KEY)

    assert rows(f"SELECT {key} FROM {TARGET} GROUP BY ALL HAVING count(*) > 1") == []
    assert rows(f"SELECT 1 FROM {TARGET} WHERE {' OR '.join(f'{column} IS NULL' for column in KEY)}") == []


def test_the_published_rule_makes_arrivals_that_never_happened_look_punctual(rows: Any) -> None:
    unknown = rows("SELECT count(*) FROM raw.flights WHERE arr_delay IS NULL AND flight_date BETWEEN ? AND ?", *RANGE)
    wrong = rows(
        f"SELECT count(*) FROM {TARGET} JOIN raw.flights USING ({', '.join(KEY)}) "
        "WHERE arr_delay IS NULL AND arrival_delay_minutes = 0 AND on_time AND flight_date BETWEEN ? AND ?",
        *RANGE,
    )

    assert unknown == wrong == [(4_874,)]
    assert rows(f"SELECT count(*) FROM {TARGET} WHERE arrival_delay_minutes IS NULL") == [(0,)]


def test_the_february_blizzard_has_the_most_unknown_arrivals(rows: Any) -> None:
    worst = rows(
        "SELECT flight_date::VARCHAR, count(*) FROM raw.flights "
        "WHERE arr_delay IS NULL AND flight_date BETWEEN ? AND ? GROUP BY 1 ORDER BY 2 DESC LIMIT 3",
        *RANGE,
    )

    assert worst == [("2013-02-08", 475), ("2013-02-09", 393), ("2013-05-23", 232)]


def test_the_corrected_sql_changes_only_the_unknown_arrivals_of_its_day(rows: Any) -> None:
    spec = load_spec(DAGS / "backfills" / "fct_flights.yaml")
    sql = render(spec.transform, partition_at(RANGE[0].replace(day=8), Grain.DAY))

    assert spec.target.table == TARGET
    assert spec.target.key == KEY
    columns = "arrival_delay_minutes, on_time"
    removed = rows(
        f"SELECT {columns} FROM {TARGET} WHERE flight_date = '2013-02-08' EXCEPT ALL SELECT {columns} FROM ({sql})"
    )
    added = rows(f"SELECT * FROM ({sql}) EXCEPT ALL SELECT * FROM {TARGET}")
    assert removed == [(0, True)] * 475
    assert {(row[8], row[11]) for row in added} == {(None, None)}
    assert len(added) == 475


def test_live_rows_come_after_the_range_and_only_once(built: Path, tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path)
    engine.path.write_bytes(built.read_bytes())

    assert [append_live_rows(engine.run, engine.append) for _ in range(2)] == [842, 0]

    assert engine.run(
        f"SELECT DISTINCT CAST(flight_date AS VARCHAR) FROM {TARGET} WHERE flight_date >= '2014-01-01'"
    ) == [("2014-01-01",)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] if name == SPARK else []) for name in sorted(ENGINES)]
)
def test_every_engine_holds_the_same_two_tables_and_can_tell_wrong_rows_from_right_ones(
    name: str, tmp_path: Path
) -> None:
    if name == "postgres" and find_programs() is None:
        pytest.skip("needs PostgreSQL's server programs")
    if name == SPARK and (reason := local_databricks.missing()):
        pytest.skip(reason)
    engine = demo_engine(name, tmp_path)
    assert not engine.is_built
    engine.build()
    try:
        engine.start()
        assert engine.is_built
        assert engine.run("SELECT count(*), count(DISTINCT flight_date), sum(arr_delay) FROM raw.flights") == [
            (SOURCE_ROWS, 365, 2_257_174)
        ]
        assert wrong_rows(engine.run, corrected=False) == 0
        assert wrong_rows(engine.run, corrected=True) == 2 * 4_874
        assert append_live_rows(engine.run, engine.append) == live_rows(engine.run) == 842
        assert wrong_rows(engine.run, corrected=False) == 0
        warehouse = engine.open()
        assert warehouse.describe(TARGET, "flight_date", KEY).key == KEY
        warehouse.close()
    finally:
        engine.stop()


def test_a_build_replaces_what_was_there_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    path.write_bytes(b"not a database")

    build_warehouse(path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["warehouse.duckdb"]
