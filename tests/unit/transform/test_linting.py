from __future__ import annotations

import pytest

from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform import Finding, lint
from airflow_backfill_provider.windows import Grain, parse_key

BOUND = "d >= '{{ data_interval_start }}' AND d < '{{ data_interval_end }}'"


def findings(
    sql: str, dialect: str = "duckdb", key: str = "2013-02-05", grain: Grain = Grain.DAY, zone: str = "UTC"
) -> tuple[Finding, ...]:
    spec = BackfillSpec.model_validate(
        {
            "name": "fct",
            "target": {"table": "analytics.fct", "partition_by": "d", "key": ["id"], "grain": grain, "timezone": zone},
            "transform": {"sql": sql},
            "compute": {"conn_id": "w"},
        }
    )
    return lint(spec, parse_key(key, grain, zone), dialect)


def codes(sql: str, dialect: str = "duckdb") -> list[str]:
    return [finding.code for finding in findings(sql, dialect)]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT id, count(*) AS n FROM t WHERE {BOUND} GROUP BY id",
        f"SELECT id FROM t JOIN u USING (id) WHERE t.{BOUND} AND EXISTS (SELECT * FROM v WHERE v.id = t.id)",
        "SELECT id FROM t WHERE '{{ data_interval_start }}' <= d AND '{{ data_interval_end }}' > d",
        "SELECT id FROM t WHERE d = DATE '{{ data_interval_start | ds }}'",
        "SELECT id FROM t WHERE key = {{ data_interval_start | ds_nodash }}",
        "SELECT id FROM t WHERE d IN ('{{ data_interval_start | ds }}')",
        "SELECT id FROM t WHERE year(d) = {{ data_interval_start.year }} AND month(d) = {{ data_interval_start.month }}",
        "SELECT id FROM t JOIN u ON t.id = u.id AND u.d = '{{ data_interval_start | ds }}'",
        f"WITH q AS (SELECT id FROM t WHERE {BOUND}) SELECT * FROM q",
        f"SELECT id, row_number() OVER (PARTITION BY id ORDER BY x) AS n FROM t WHERE {BOUND}",
        f"SELECT id, sum(x) OVER () AS s, max(x) OVER (PARTITION BY id) AS m FROM t WHERE {BOUND}",
        f"SELECT id FROM t WHERE {BOUND} ORDER BY id LIMIT 5",
        f"SELECT string_agg(x, ',' ORDER BY x) AS s, age(a, b) AS g FROM t WHERE {BOUND}",
        f"INSERT INTO analytics.fct (id) SELECT id FROM t WHERE {BOUND}",
    ],
)
def test_a_transform_that_repeats_itself_is_not_complained_about(sql: str) -> None:
    assert findings(sql) == ()


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("now()", "clock"),
        ("today()", "clock"),
        ("current_date", "clock"),
        ("current_timestamp", "clock"),
        ("get_current_timestamp()", "clock"),
        ("localtimestamp", "clock"),
        ("age(d)", "clock"),
        ("CAST('now' AS TIMESTAMP)", "clock"),
        ("'today'::DATE", "clock"),
        ("date_diff('day', d, current_date)", "clock"),
        ("random()", "random"),
        ("uuid()", "random"),
        ("gen_random_uuid()", "random"),
        ("row_number() OVER ()", "unordered_window"),
        ("row_number() OVER (PARTITION BY id)", "unordered_window"),
        ("last_value(x IGNORE NULLS) OVER (PARTITION BY id)", "unordered_window"),
        ("lag(x) OVER (PARTITION BY id)", "unordered_window"),
        ("first(x)", "unordered_aggregate"),
        ("any_value(x)", "unordered_aggregate"),
        ("list(x)", "unordered_aggregate"),
        ("string_agg(x, ',')", "unordered_aggregate"),
        ("t.*", "select_star"),
        ("* EXCLUDE (x)", "select_star"),
    ],
)
def test_an_expression_that_another_run_may_answer_differently_is_found(expression: str, code: str) -> None:
    found = findings(f"SELECT id,\n{expression}\nFROM t WHERE {BOUND}")
    assert [one.code for one in found] == [code]
    assert found[0].line in (2, None)
    assert code in str(found[0])


@pytest.mark.parametrize(
    "expression", ["now()", "CURRENT_DATE", "random()", "clock_timestamp()", "transaction_timestamp()"]
)
def test_postgres_spellings_are_known_too(expression: str) -> None:
    assert codes(f"SELECT {expression} AS a FROM t WHERE {BOUND}", "postgres") in (["clock"], ["random"])


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        (f"SELECT id FROM t WHERE {BOUND} LIMIT 5", "unordered_limit"),
        (f"SELECT id FROM (SELECT id FROM t WHERE {BOUND} LIMIT 5) ORDER BY id", "unordered_limit"),
        (f"SELECT DISTINCT ON (id) id, x FROM t WHERE {BOUND}", "unordered_distinct"),
        (f"SELECT id FROM t TABLESAMPLE 10% WHERE {BOUND}", "random"),
        (f"SELECT * FROM t WHERE {BOUND}", "select_star"),
        (f"FROM t WHERE {BOUND}", "select_star"),
        (f"WITH q AS (SELECT * FROM t WHERE {BOUND}) SELECT * FROM q", "select_star"),
        (f"SELECT * FROM (SELECT id FROM q) JOIN t USING (id) WHERE {BOUND}", "select_star"),
        (f"SELECT id FROM Analytics.FCT WHERE {BOUND}", "reads_target"),
        (f"SELECT id FROM t WHERE {BOUND} AND id NOT IN (SELECT id FROM analytics.fct)", "reads_target"),
        (f"INSERT INTO analytics.fct SELECT id FROM t WHERE {BOUND}", "positional_insert"),
        ("SELECT id FROM t", "no_partition_bound"),
        ("SELECT id FROM t WHERE d = DATE '2013-02-05'", "no_partition_bound"),
        ("SELECT id, '{{ data_interval_start | ds }}' AS d FROM t WHERE x = 5", "no_partition_bound"),
        ("SELECT id FROM t -- {{ data_interval_start }}", "no_partition_bound"),
        ("SELECT id FROM t WHERE d >= '{{ data_interval_start }}'", "half_bounded"),
        ("SELECT id FROM t WHERE '{{ data_interval_end }}' > d", "half_bounded"),
        ("SELECT id FROM t WHERE d BETWEEN '{{ data_interval_start }}' AND '{{ data_interval_end }}'", "inclusive_end"),
        ("SELECT id FROM t WHERE d > '{{ data_interval_start }}' AND d <= '{{ data_interval_end }}'", "inclusive_end"),
    ],
)
def test_a_statement_that_is_not_bound_or_not_repeatable_is_found(sql: str, code: str) -> None:
    assert codes(sql) == [code]


def test_half_a_bound_says_which_half_is_missing() -> None:
    (found,) = findings("SELECT id FROM t WHERE d >= '{{ data_interval_start }}'")
    assert "add an upper bound" in found.message


def test_findings_come_in_the_order_of_their_lines_and_once_each() -> None:
    found = findings(f"SELECT uuid(),\nnow(),\nnow()\nFROM analytics.fct WHERE {BOUND}")
    assert [(one.code, one.line) for one in found] == [("random", 1), ("clock", 2), ("clock", 3), ("reads_target", 4)]


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-30"])
def test_the_first_and_the_last_day_of_the_calendar_can_be_judged(day: str) -> None:
    assert findings(f"SELECT id FROM t WHERE {BOUND}", key=day) == ()


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("SELECT id FROM t WHERE region = '{{ partition_value }}'", "eu"),
        ("SELECT id FROM t WHERE tenant = {{ partition_value }}", "42"),
        ("SELECT id FROM t WHERE region IN ('{{ partition_key }}')", "eu"),
    ],
)
def test_a_list_bound_by_its_value_is_not_complained_about(sql: str, key: str) -> None:
    assert findings(sql, key=key, grain=Grain.LIST) == ()


def test_a_list_without_its_value_in_the_filter_is_complained_about_in_its_own_words() -> None:
    (found,) = findings("SELECT id FROM t WHERE region = 'eu'", key="eu", grain=Grain.LIST)
    assert found.code == "no_partition_bound"
    assert "partition_value" in found.message


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_utc_date_under_local_days_is_pointed_out_with_what_to_write(zone: str) -> None:
    day = "d = DATE '{{ data_interval_start | ds }}'"
    local = day.replace("start |", f"start.in_timezone('{zone}') |")
    (found,) = findings(f"SELECT id FROM t\nWHERE {day}", zone=zone)
    assert (found.code, found.line) == ("utc_date", 2)
    assert f"in_timezone('{zone}') | ds" in found.message
    assert findings(f"SELECT id FROM t WHERE {local}", zone=zone) == ()
    assert findings(f"SELECT id FROM t WHERE {day}") == ()


@pytest.mark.parametrize(
    ("grain", "key", "zone", "sql", "found"),
    [
        (Grain.DAY, "2013-02-05", "Asia/Tokyo", "{{ e.in_timezone('Asia/Tokyo') | ds }}", ["inclusive_end"]),
        (Grain.MONTH, "2013-02", "UTC", "{{ e | ds }}", ["inclusive_end"]),
        (Grain.HOUR, "2013-02-05T10", "UTC", "{{ e.to_datetime_string() }}", ["inclusive_end"]),
        (Grain.HOUR, "2013-02-05T10", "UTC", "{{ e.subtract(seconds=1).to_datetime_string() }}", []),
    ],
)
def test_an_end_that_is_included_is_found_for_every_grain(
    grain: Grain, key: str, zone: str, sql: str, found: list[str]
) -> None:
    bound = f"d >= '{{{{ data_interval_start }}}}' AND d <= '{sql.replace('e', 'data_interval_end', 1)}'"
    assert [one.code for one in findings(f"SELECT id FROM t WHERE {bound}", key=key, grain=grain, zone=zone)] == found


def test_a_file_is_held_against_itself_though_the_other_partition_is_of_another_era() -> None:
    spec = BackfillSpec.model_validate(
        {
            "name": "fct",
            "target": {"table": "analytics.fct", "partition_by": "d", "key": ["id"]},
            "transform": {
                "eras": [
                    {"until": "2013-03-01", "sql": "SELECT id FROM t WHERE status = 'paid'", "file": "old.sql"},
                    {"sql": f"SELECT id FROM t WHERE {BOUND}", "file": "new.sql"},
                ]
            },
            "compute": {"conn_id": "w"},
        }
    )
    codes_of = {
        key: [one.code for one in lint(spec, parse_key(key, Grain.DAY), "duckdb")]
        for key in ("2013-02-05", "2013-03-05")
    }
    assert codes_of == {"2013-02-05": ["no_partition_bound"], "2013-03-05": []}
