from __future__ import annotations

import duckdb
import pytest

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform import prepare, to_select
from airflow_backfill_provider.windows import Grain, parse_key

TARGET = "analytics.fct"


def select(sql: str, target: str = TARGET, dialect: str = "duckdb") -> str:
    return to_select(sql, target, dialect, "a.sql")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t",
        "-- why\n\nselect  a /* odd   spacing */\nfrom t",
        "WITH q AS (SELECT 1 AS a) SELECT a FROM q",
        "SELECT 1 AS a UNION ALL SELECT 2",
        "(SELECT 1 AS a)",
        "SELECT 'ß' AS \"ü\", string_agg(x, ';') FROM t",
        "FROM t SELECT a",
        "SELECT $$ ; DELETE FROM t $$ AS a",
    ],
)
@pytest.mark.parametrize("tail", ["", ";", " ; -- bye", "\n;\n;", " -- bye", "\n/* bye */"])
def test_a_select_keeps_its_text_character_by_character(sql: str, tail: str) -> None:
    assert select(sql + tail) == sql


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO analytics.fct SELECT string_agg(a, ',') FROM t;",
        "-- header; with a semicolon\nINSERT INTO analytics.fct\nSELECT string_agg(a, ',') FROM t",
        "INSERT INTO analytics.fct BY NAME SELECT string_agg(a, ',') FROM t",
        'insert into "analytics"."fct" SELECT string_agg(a, \',\') FROM t -- bye',
        "CREATE TABLE analytics.fct AS SELECT string_agg(a, ',') FROM t",
        "CREATE OR REPLACE TABLE Analytics.FCT AS SELECT string_agg(a, ',') FROM t",
    ],
)
def test_a_write_to_the_target_is_taken_off_and_the_rest_is_not_rewritten(sql: str) -> None:
    # sqlglot would write LISTAGG.
    assert select(sql).endswith("SELECT string_agg(a, ',') FROM t")
    assert "INTO" not in select(sql).upper()


def test_a_with_before_the_insert_stays_with_its_select() -> None:
    sql = "WITH q AS (SELECT today() AS a) INSERT INTO analytics.fct SELECT a FROM q"
    assert select(sql) == "WITH q AS (SELECT today() AS a) SELECT a FROM q"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO analytics.fct (b, a) SELECT x, y FROM src -- x is b",
        "INSERT INTO analytics.fct (b, a) WITH q AS (FROM src) SELECT x, y FROM q",
        "INSERT INTO analytics.fct (b, a) SELECT x, y FROM src WHERE x = 1 UNION ALL SELECT x, y FROM src WHERE x <> 1",
        "INSERT INTO analytics.fct BY NAME SELECT y AS a, x AS b FROM src",
        "INSERT INTO analytics.fct (SELECT y AS a, x AS b FROM src)",
        "CREATE OR REPLACE TABLE analytics.fct AS SELECT x AS b, y AS a FROM src",
        "WITH q AS (FROM src) INSERT INTO analytics.fct SELECT y AS a, x AS b FROM q",
    ],
)
def test_the_select_returns_the_rows_that_the_statement_would_have_written(statement: str) -> None:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA analytics; CREATE TABLE analytics.fct (a INT, b INT)")
    con.execute("CREATE TABLE src AS SELECT 1 AS x, 10 AS y UNION ALL SELECT 2, 20")
    con.execute(f"CREATE TABLE stage AS {select(statement)}")
    con.execute(statement)
    staged = con.execute("SELECT a, b FROM stage ORDER BY ALL").fetchall()
    assert staged == con.execute("SELECT a, b FROM analytics.fct ORDER BY ALL").fetchall() == [(10, 1), (20, 2)]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("DELETE FROM analytics.fct", "DELETE"),
        ("UPDATE analytics.fct SET a = 1", "UPDATE"),
        ("MERGE INTO analytics.fct USING s ON a = b WHEN MATCHED THEN DELETE", "MERGE"),
        ("TRUNCATE analytics.fct", "TRUNCATE"),
        ("DROP TABLE analytics.fct", "DROP"),
        ("ALTER TABLE analytics.fct ADD COLUMN x INT", "ALTER"),
        ("COPY t TO 'x.csv'", "COPY"),
        ("ATTACH 'x.db'", "ATTACH"),
        ("DETACH x", "DETACH"),
        ("PRAGMA threads=1", "PRAGMA"),
        ("SET threads = 1", "SET"),
        ("USE x", "USE"),
        ("INSTALL httpfs", "INSTALL"),
        ("LOAD httpfs", "LOAD"),
        ("CALL pragma_version()", "CALL"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("DESCRIBE t", "DESCRIBE"),
        ("VALUES (1)", "VALUES"),
        ("CREATE VIEW analytics.fct AS SELECT 1", "CREATE VIEW"),
        ("CREATE TEMP TABLE analytics.fct AS SELECT 1", "TEMPORARY"),
        ("CREATE TABLE IF NOT EXISTS analytics.fct AS SELECT 1", "IF NOT EXISTS"),
        ("CREATE TABLE analytics.fct (a INT)", "without AS SELECT"),
        ("INSERT INTO analytics.fct VALUES (1)", "INSERT of VALUES"),
        ("INSERT OR REPLACE INTO analytics.fct SELECT 1", "ALTERNATIVE"),
        ("INSERT INTO analytics.fct SELECT 1 ON CONFLICT DO NOTHING", "CONFLICT"),
        ("INSERT INTO analytics.fct SELECT 1 RETURNING *", "RETURNING"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELECT 1; DROP TABLE analytics.fct; --", "2 statements"),
        ("BEGIN; INSERT INTO analytics.fct SELECT 1; COMMIT", "3 statements"),
        ("-- nothing\n;", "no statement"),
        ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", "DELETE inside"),
        ("INSERT INTO analytics.fct WITH d AS (INSERT INTO x SELECT 1 RETURNING *) SELECT * FROM d", "INSERT inside"),
        ("SELECT 1 AS a INTO other", "INTO inside"),
        ("SELECT a FROM t FOR UPDATE", "LOCK inside"),
        ("SELECT nextval('ids') AS a", "nextval()"),
        ("SELECT a FROM t WHERE setseed(0.5) IS NULL", "setseed()"),
        ("SELECT * FROM postgres_execute('db', 'DROP TABLE x')", "postgres_execute()"),
        ("SELECT a FRM t x y", "not one statement of duckdb SQL"),
        ("SELECT 'open", "not one statement of duckdb SQL"),
    ],
)
def test_anything_but_one_select_is_refused_by_name(sql: str, found: str) -> None:
    with pytest.raises(TransformRefused) as caught:
        select(sql)
    assert found in str(caught.value)
    assert str(caught.value).startswith("a.sql ")


@pytest.mark.parametrize(
    ("dialect", "written", "target", "same"),
    [
        ("duckdb", "analytics.fct", "analytics.fct", True),
        ("duckdb", 'ANALYTICS."FCT"', "analytics.fct", True),
        ("duckdb", "fct", "analytics.fct", False),
        ("duckdb", "other.analytics.fct", "analytics.fct", False),
        ("duckdb", "analytics.fct", "fct", False),
        ("duckdb", "analytics.fct2", "analytics.fct", False),
        ("duckdb", '"analytics.fct"', "analytics.fct", False),
        ("duckdb", '"we""ird".fct', 'we"ird.fct', True),
        ("postgres", "Analytics.FCT", "analytics.fct", True),
        ("postgres", '"Analytics".fct', "analytics.fct", False),
        ("postgres", "analytics.fct", "Analytics.fct", False),
        ("postgres", '"Analytics".fct', "Analytics.fct", True),
        ("databricks", "Cat.`Analytics`.FCT", "cat.analytics.fct", True),
    ],
)
def test_the_write_must_be_to_the_target_under_the_case_rules_of_the_engine(
    dialect: str, written: str, target: str, same: bool
) -> None:
    sql = f"INSERT INTO {written} SELECT 1 AS a"
    if same:
        assert select(sql, target, dialect) == "SELECT 1 AS a"
        return
    with pytest.raises(TransformRefused, match="the spec's target is") as caught:
        select(sql, target, dialect)
    assert written in str(caught.value)
    assert target in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("INSERT INTO analytics.fct (a, b) SELECT 1", "names 2 columns for a SELECT of 1"),
        ("INSERT INTO analytics.fct (a) SELECT 1, 2", "names 1 columns for a SELECT of 2"),
        ("INSERT INTO analytics.fct (a, b) SELECT * FROM t", "by position"),
        ("INSERT INTO analytics.fct (a, b) SELECT t.*, 1 FROM t", "by position"),
        ("INSERT INTO analytics.fct (a) SELECT COLUMNS(*) FROM t", "by position"),
        ("CREATE TABLE analytics.fct (a INT) AS SELECT 1", "column types"),
        ("WITH q AS (SELECT 1) INSERT INTO analytics.fct WITH r AS (SELECT 2) SELECT * FROM r", "keep one"),
    ],
)
def test_column_names_that_do_not_fit_the_select_are_refused(sql: str, told: str) -> None:
    with pytest.raises(TransformRefused, match=told):
        select(sql)


def test_a_spec_is_prepared_for_one_partition() -> None:
    spec = BackfillSpec.model_validate(
        {
            "name": "fct",
            "target": {"table": TARGET, "partition_by": "day", "key": ["id"]},
            "transform": {
                "sql": "INSERT INTO analytics.fct SELECT id FROM t WHERE day = '{{ data_interval_start | ds }}'"
            },
            "compute": {"conn_id": "w"},
        }
    )
    day = parse_key("2013-02-05", Grain.DAY)
    assert prepare(spec, day, "duckdb") == "SELECT id FROM t WHERE day = '2013-02-05'"


def test_statements_that_differ_in_literals_only_are_cut_alike_and_others_are_parsed_anew() -> None:
    insert = "INSERT INTO analytics.fct (b) SELECT x + {} FROM t WHERE d = '{}'"
    for number, text in ((1, "2013-02-05"), (20_000, "2013-02-06, and longer"), (3, "it''s; DELETE FROM t")):
        query = f"SELECT x + {number} FROM t WHERE d = '{text}'"
        assert select(insert.format(number, text)) == f"SELECT * FROM (\n{query}\n) AS _rows(b)"
    with pytest.raises(TransformRefused, match=r"spec's target is analytics\.other"):
        select(insert.format(1, "a"), "analytics.other")
    with pytest.raises(TransformRefused, match="names 2 columns"):
        select(insert.format(1, "a").replace("(b)", "(b, c)"))
    with pytest.raises(TransformRefused, match="2 statements"):
        select(insert.format(1, "a'; DELETE FROM t WHERE d = 'b"))
