"""What an engine's error quotes of a row gets neither into our message nor into the traceback that a log prints."""

from __future__ import annotations

import traceback
from pathlib import Path

import duckdb
import postgres_server
import psycopg
import pyarrow
import pytest
from postgres_shop import Database, clean_server

from airflow_backfill_provider.errors import BackfillError
from airflow_backfill_provider.warehouses.delta.errors import translated as of_delta
from airflow_backfill_provider.warehouses.duckdb.errors import translated as of_duckdb
from airflow_backfill_provider.warehouses.postgres.errors import translated as of_postgres

__all__ = ["clean_server"]

SECRET = "4111-secret"


def printed(error: BaseException) -> str:
    """What a task's log shows of it."""
    return "".join(traceback.format_exception(error))


ON_POSTGRES = {
    "INSERT INTO people VALUES (2, '{secret}', 1)": ["one_name", "columns are lower(name::text), boss"],
    "INSERT INTO people VALUES (3, '{secret}', NULL)": ['column "boss"', "not-null"],
    "INSERT INTO people VALUES (-1, '{secret}', 1)": ['"id_is_positive"'],
    "INSERT INTO visits VALUES ('{secret}')": ["visits_who_fkey", "columns are who", "visits"],
    "INSERT INTO by_day VALUES ('{secret}')": ["no partition", '"by_day"'],
    "SELECT name::int FROM people": ["invalid input syntax for type integer"],
    "SELECT jsonb(name) FROM people": ["type json"],
    "SELECT (id + 98765)::numeric(3, 0) FROM people": ["numeric field overflow", "precision 3"],
    "SELECT shout(name) FROM people": ["a rule of the team"],
    "COPY people FROM PROGRAM 'echo x {secret}' (DELIMITER ' ')": ["invalid input syntax for type bigint"],
}


@pytest.mark.skipif(not postgres_server.is_installed(), reason=postgres_server.NEEDS)
def test_an_error_of_postgresql_names_constraint_and_columns_and_no_value_of_a_row() -> None:
    database = Database.create()
    database.execute(
        "CREATE TABLE people (id BIGINT CONSTRAINT id_is_positive CHECK (id > 0), name VARCHAR, boss BIGINT NOT NULL)",
        "CREATE UNIQUE INDEX one_name ON people (lower(name), boss)",
        "CREATE TABLE names (name VARCHAR PRIMARY KEY)",
        "CREATE TABLE visits (who VARCHAR REFERENCES names)",
        "CREATE TABLE by_day (day VARCHAR) PARTITION BY LIST (day)",
        "CREATE FUNCTION shout(VARCHAR) RETURNS VARCHAR LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'a rule of the team' USING DETAIL = $1; END $$",
        f"INSERT INTO people VALUES (1, '{SECRET}', 1)",
    )
    for statement, named in ON_POSTGRES.items():
        with database.connect(autocommit=True) as connection:
            with pytest.raises(BackfillError) as refused, of_postgres("Staging 2024-01-01"):
                connection.execute(statement.format(secret=SECRET).encode())
        assert SECRET not in printed(refused.value), statement
        assert "98766" not in printed(refused.value), statement
        for words in (*named, "Staging 2024-01-01", "the server's own log has them"):
            assert words in str(refused.value), statement


@pytest.mark.skipif(not postgres_server.is_installed(), reason=postgres_server.NEEDS)
def test_an_error_of_postgresql_that_quotes_no_row_is_told_whole_with_its_cause() -> None:
    database = Database.create()
    for statement, told in {
        "SELECT 1 / 0": "division by zero.",
        "SELECT nothing": 'column "nothing" does not exist.',
        "SELECT count(1, 2)": "function count(integer, integer) does not exist. No function matches",
    }.items():
        with database.connect(autocommit=True) as connection:
            with pytest.raises(BackfillError) as refused, of_postgres("Binding"):
                connection.execute(statement.encode())
        assert f"Binding failed: {told}" in str(refused.value)
        assert "left out" not in str(refused.value)
        assert isinstance(refused.value.__cause__, psycopg.Error)


ON_DUCKDB = {
    "INSERT INTO people VALUES ('{secret}', 1, 2)": ['key "name: …"', "primary key"],
    "INSERT INTO people VALUES ('x', NULL, 2)": ["NOT NULL", "people.boss"],
    "INSERT INTO visits VALUES ('{secret}x')": ['key "name: …"', "foreign key"],
    "SELECT name::int FROM people": ["to INT32", "source column name", "LINE 1: SELECT name::int"],
    "SELECT number::tinyint FROM people": ["Type INT32 with value …", "INT8"],
    "SELECT number * 2000000000::int FROM people": ["multiplication of INT32"],
    "SELECT number::decimal(3, 1) FROM people": ["to DECIMAL(3,1)"],
    "SELECT strptime(name, '%Y') FROM people": ["Could not parse string"],
}


@pytest.mark.parametrize(
    ("line", "named"),
    [(f"{SECRET},x", "Error when converting column"), (f"{SECRET},2,3", "Expected Number of Columns: 2 Found: 3")],
)
def test_a_line_of_a_csv_file_is_not_in_the_error_about_it(tmp_path: Path, line: str, named: str) -> None:
    (tmp_path / "people.csv").write_text(f"name,boss\nAnn,1\n{line}\n")
    select = f"SELECT * FROM read_csv('{tmp_path / 'people.csv'}', header = true, auto_detect = false, "
    with pytest.raises(BackfillError, match=named) as refused, of_duckdb("Staging 2024-01-01"):
        duckdb.connect().execute(select + "columns = {'name': 'VARCHAR', 'boss': 'INT'})").fetchall()
    assert SECRET not in printed(refused.value)
    assert "CSV Error on Line: 3" in str(refused.value)


def test_a_key_that_two_transactions_wrote_is_not_in_the_conflict() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE people (name VARCHAR PRIMARY KEY)")
    first, second = connection.cursor(), connection.cursor()
    for writer in (first, second):
        writer.execute("BEGIN")
        writer.execute(f"INSERT INTO people VALUES ('{SECRET}')")
    first.execute("COMMIT")
    with pytest.raises(BackfillError, match="duplicate key …") as refused, of_duckdb("Publishing"):
        second.execute("COMMIT")
    assert SECRET not in printed(refused.value)


def test_an_error_of_delta_rs_shows_no_row(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = pyarrow.table({"id": [1], "name": ["Ann"], "number": pyarrow.array([5], pyarrow.int32())})
    deltalake.write_deltalake(tmp_path, table)
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"positive": "id > 0"})
    for rows, named in (
        ({"id": [-98765], "name": [SECRET], "number": pyarrow.array([5], pyarrow.int32())}, "1 rows failed"),
        ({"id": [SECRET], "name": ["x"], "number": pyarrow.array([5], pyarrow.int32())}, "Int64"),
        ({"id": [2], "name": ["x"], "number": [9876500000000]}, "Int32"),
    ):
        with pytest.raises(BackfillError, match=named) as refused, of_delta("Publishing"):
            deltalake.write_deltalake(tmp_path, pyarrow.table(rows), mode="append")
        assert SECRET not in printed(refused.value)
        assert "98765" not in printed(refused.value)
    with pytest.raises(BackfillError, match="int32") as refused, of_delta("Reading"):
        pyarrow.array([SECRET]).cast(pyarrow.int32())
    assert SECRET not in printed(refused.value)


@pytest.mark.parametrize("translated", [of_duckdb, of_delta], ids=["duckdb", "delta"])
def test_an_error_of_duckdb_names_the_column_and_no_value_of_a_row(translated: object) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE people (name VARCHAR PRIMARY KEY, boss INT NOT NULL, number INT)")
    connection.execute("CREATE TABLE visits (name VARCHAR REFERENCES people)")
    connection.execute(f"INSERT INTO people VALUES ('{SECRET}', 1, 98765)")
    for statement, named in ON_DUCKDB.items():
        with pytest.raises(BackfillError) as refused, translated("Staging 2024-01-01"):  # type: ignore[operator]
            connection.execute(statement.format(secret=SECRET)).fetchall()
        assert SECRET not in printed(refused.value), statement
        assert "98765" not in printed(refused.value), statement
        for words in named:
            assert words in str(refused.value), statement
