from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.checks import CHECK_KINDS
from airflow_backfill_provider.spec.comparisons import COMPARISON_KINDS
from airflow_backfill_provider.spec.load import find_specs, load_spec, load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec

WHOLE = """\
name: fct_orders
target: {table: analytics.fct_orders, partition_by: order_date, key: [order_id]}
transform: {sql: sql/fct_orders.sql}
compute: {conn_id: warehouse_backfill}
"""


def load(text: str, sql: str = "SELECT 1") -> BackfillSpec:
    return load_spec_text(textwrap.dedent(text), "fct_orders.yaml", lambda path: sql)


def refusal(text: str, sql: str = "SELECT 1") -> str:
    with pytest.raises(SpecError) as caught:
        load(text, sql)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "fct_orders.sql").write_text("SELECT 'ünï'\n", encoding="utf-8")
    (tmp_path / "fct_orders.yaml").write_text(WHOLE, encoding="utf-8")
    return tmp_path


def test_a_short_spec_is_whole_by_itself_and_has_the_documented_defaults(folder: Path) -> None:
    spec = load_spec(folder / "fct_orders.yaml")
    assert spec.transform.sql == "SELECT 'ünï'\n"
    assert spec.transform.file == "sql/fct_orders.sql"
    assert (spec.compute.pool, spec.compute.max_concurrency) == ("safe_backfill", 4)
    assert spec.publish.mechanism == "replace_partitions"
    assert BackfillSpec.model_validate_json(spec.model_dump_json()) == spec


def test_the_sql_file_is_found_from_any_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "sql")
    assert load_spec(Path("..") / "fct_orders.yaml").transform.sql.startswith("SELECT")


def test_a_sql_file_beside_the_folder_of_specs_may_be_shared(folder: Path) -> None:
    (folder / "specs").mkdir()
    (folder / "specs" / "a.yaml").write_text(WHOLE.replace("sql/", "../sql/"), encoding="utf-8")
    assert load_spec(folder / "specs" / "a.yaml").transform.file == "../sql/fct_orders.sql"


def test_every_check_and_comparison_reads_as_documented() -> None:
    spec = load(
        WHOLE
        + """\
source: {table: raw.orders, partition_by: order_date}
checks:
  - unique: {columns: [order_id, line]}
  - not_null: {column: order_id}
  - accepted_values: {column: status, values: [paid, '1', 2, 0.1, true], severity: warn}
  - accepted_range: {column: net, min_value: 0}
  - row_count: {min_value: 1}
  - sql: {name: no_orphans, query: SELECT 1 FROM stage WHERE false}
  - unique_combination_of_columns: {combination_of_columns: [a, b]}
  - not_null_proportion: {column: note, at_least: 0.95}
  - relationships: {column: customer, to: raw.customers, field: id}
  - expression_is_true: {expression: a + b = c, where: a > 0, error_if: '>10', warn_if: '>= 2.5%'}
compare:
  - row_count: {change_between: [0, 0]}
  - row_count: {against: source, max_abs_change: 0}
  - sum: {column: net, change_between: [-8%, 0%]}
  - min: {column: net, abs_tol: 0.01}
  - max: {column: net, rel_tol: 0.001}
  - avg: {column: net, change_between: [-8%, 0%], abs_tol: 0.01}
  - count_distinct: {column: customer, max_abs_change: 5, over: both}
  - null_rate: {column: note, change_between: [0, 0.01]}
  - row_diff: {max_added: 0, exclude_columns: [loaded_at]}
"""
    )
    assert {check.kind for check in spec.checks} == set(CHECK_KINDS)
    assert [comparison.kind for comparison in spec.compare] == ["row_count", *COMPARISON_KINDS]
    assert (spec.checks[-1].error_if, spec.checks[-1].warn_if) == ("> 10", ">= 2.5%")
    assert BackfillSpec.model_validate_json(spec.model_dump_json()) == spec


def test_all_problems_of_a_file_stand_in_one_message_with_their_lines() -> None:
    message = refusal(
        """\
        name: fct_orders
        kind: corection
        target: {tabel: a.b, partition_by: d, key: [k]}
        transform: {sql: a.sql}
        compute:
          conn_id: 123
          max_concurency: 2
        checks:
          - not_nul: {column: a}
          - unique: {colunm: a}
        """
    )
    assert message.splitlines()[0] == "fct_orders.yaml cannot be run as written; 7 problems:"
    for part in (
        "line 2: kind = 'corection': must be 'correction', 'new_column' or 'first_load'; did you mean 'correction'?",
        "line 3: target.table: is missing",
        "line 3: target.tabel = 'a.b': unknown key; did you mean 'table'?",
        "line 6: compute.conn_id = 123: must be text, but YAML reads it as a number; quote it",
        "line 7: compute.max_concurency = 2: unknown key; did you mean 'max_concurrency'?",
        "line 9: checks[0]: 'not_nul' is not a known kind; did you mean 'not_null'? known: unique,",
        "line 10: checks[1].unique.colunm = 'a': unknown key; did you mean 'column'?",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("yes", "truth value"),
        ("Off", "truth value"),
        ("2013-02-01", "date object"),
        ("010", "octal"),
        ("0x1F", "octal, hexadecimal"),
        ("10:30", "base 60"),
        ("1_000", "octal, hexadecimal or base 60"),
        ("1e3", "as text, not as a number"),
        ("~", "is empty"),
    ],
)
def test_a_word_that_yaml_reads_in_another_way_must_be_quoted(written: str, told: str) -> None:
    check = "checks:\n  - accepted_values: {column: a, values: [%s]}\n"
    message = refusal(WHOLE + check % written)
    assert told in message
    assert "line 6: checks[0].accepted_values.values[0]" in message
    assert "one problem" in message
    assert load(WHOLE + check % f"'{written}'").checks[0].values == (written,)  # type: ignore[union-attr]


def test_true_and_false_are_truth_values_in_any_case() -> None:
    assert load(WHOLE + "allow_empty: True\n").allow_empty is True


def test_a_key_that_yaml_reads_as_a_truth_value_is_named() -> None:
    assert "line 5: on: YAML reads on as a truth value" in refusal(WHOLE + "on: 1\n").replace(" = 'on'", "")


def test_a_key_that_stands_twice_is_an_error() -> None:
    message = refusal(WHOLE + "checks: []\nchecks:\n  - not_null: {column: a}\n")
    assert "line 6: checks: the key stands here twice, first in line 5" in message


def test_shared_settings_may_be_merged_in() -> None:
    spec = load(
        WHOLE.replace("compute: {conn_id: warehouse_backfill}", "compute: &c {conn_id: w, pool: p}")
        + "checks:\n  - not_null: &n {column: a}\n  - not_null: {<<: *n, severity: warn}\n"
    )
    assert [check.severity for check in spec.checks] == ["error", "warn"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n- b\n", "a spec is a mapping"),
        ("just words", "a spec is a mapping"),
        ("name: [a\n", "line 2: not YAML"),
        ("name: a\n---\nname: b\n", "not YAML"),
        ("a: &a [*a]\n", "anchor holds itself"),
        ("? [a]\n: b\n", "a key is one word"),
        ("name: !include other.yaml\n", "not YAML"),
        ("name: !!python/object/apply:os.system ['true']\n", "not YAML"),
        ("name: a\nkind: \x01\n", "line 2: not YAML: the character U+0001"),
        ("name: 2013-02-30\n", "date object"),
    ],
)
def test_text_that_is_no_spec_is_refused(text: str, told: str) -> None:
    assert told in refusal(text)


def test_append_is_refused_by_name_with_the_reason() -> None:
    message = refusal(WHOLE + "publish: {mechanism: append}\n")
    assert "append is refused: it is not idempotent" in message
    assert "replace_partitions" in message


def test_a_comparison_with_a_source_that_is_not_named_is_refused() -> None:
    assert "needs source" in refusal(WHOLE + "compare:\n  - row_count: {against: source, max_abs_change: 0}\n")


@pytest.mark.parametrize(
    ("compare", "told"),
    [
        ("row_count: {change_between: [5%, 0]}", "lower bound comes first"),
        ("row_count: {change_between: [-5%, 3]}", "both bounds as numbers or both as percentages"),
        ("row_count: {change_between: [1]}", "[low, high]"),
        ("row_count: {}", "either change_between or max_abs_change"),
        ("row_count: {change_between: [0, 0], max_abs_change: 1}", "either change_between or max_abs_change"),
        ("row_diff: {against: source}", "row_diff.against = 'source': unknown key"),
        ("sum: {max_abs_change: 0}", "compare[0].sum.column: is missing"),
        ("row_diff: {max_aded: 0}", "did you mean 'max_added'"),
        ("row_diff: 5", "takes a mapping"),
        ("average: {column: a}", "known: row_count, sum, min, max, avg, count_distinct, null_rate, row_diff"),
        ("sum: {column: a, max_abs_change: .nan}", "finite"),
        ("min: {column: a, abs_tol: -1}", "greater than or equal to 0"),
        ("row_diff: {exclude_columns: [order_id]}", "is of the key"),
        ("row_diff: {exclude_columns: [a]}\n  - row_diff: {exclude_columns: [b]}", "same exclude_columns"),
    ],
)
def test_a_comparison_that_cannot_be_meant_is_refused(compare: str, told: str) -> None:
    assert told in refusal(WHOLE + f"compare:\n  - {compare}\n")


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("unique: {}", "either column or columns"),
        ("unique: {column: a, columns: [b]}", "either column or columns"),
        ("accepted_range: {column: a}", "give min_value, max_value or both"),
        ("accepted_range: {column: a, min_value: 2, max_value: 1}", "min_value 2 is above max_value 1"),
        ("row_count: {min_value: 2, max_value: 1}", "min_value 2 is above max_value 1"),
        ("accepted_values: {column: a, values: []}", "at least 1 item"),
        ("not_null: {column: ''}", "a name is not empty"),
        ("not_null: {column: a}\n    unique: {column: a}", "each entry has exactly one key"),
        ("sql: {name: a, query: ''}", "at least 1 character"),
        ("not_null: {column: a, severity: warning}", "did you mean 'warn'"),
        ("not_null: {column: a, error_if: more than 5}", "is not a condition"),
        ("not_null: {column: a, warn_if: '> -1'}", "is not a condition"),
        ("not_null: {column: a, where: ' '}", "should match pattern"),
        ("row_count: {min_value: 1, error_if: '> 5%'}", "cannot be a percentage"),
        ("not_null_proportion: {column: a}", "give at_least, at_most or both"),
        ("not_null_proportion: {column: a, at_least: 1.5}", "less than or equal to 1"),
        ("not_null_proportion: {column: a, at_least: 0.9, at_most: 0.1}", "at_least 0.9 is above at_most 0.1"),
        ("relationships: {column: a, to: b}", "field: is missing"),
        ("unique_combination_of_columns: {combination_of_columns: [a]}", "at least 2 items"),
        ("expression_is_true: {expression: ''}", "at least 1 character"),
    ],
)
def test_a_check_that_cannot_be_meant_is_refused(check: str, told: str) -> None:
    assert told in refusal(WHOLE + f"checks:\n  - {check}\n")


@pytest.mark.parametrize(
    "lines", ["kind: new_column\n", "new_columns: [tax]\n", "kind: first_load\nnew_columns: [tax]\n"]
)
def test_new_columns_are_named_for_that_kind_and_no_other(lines: str) -> None:
    assert "kind: new_column needs new_columns" in refusal(WHOLE + lines)


def test_a_kind_sets_comparisons_and_a_written_one_replaces_its_own() -> None:
    lines = "kind: new_column\nnew_columns: [tax]\n"
    (default,) = load(WHOLE + lines).comparisons
    assert (default.limits, default.exclude_columns) == ({"added": 0, "removed": 0, "changed": 0}, ("tax",))
    written = load(WHOLE + lines + "compare:\n  - row_diff: {max_added: 3}\n")
    assert written.comparisons == written.compare
    assert load(WHOLE).comparisons == load(WHOLE + "kind: first_load\n").comparisons == ()


def targeted(settings: str, rest: str = "") -> str:
    return WHOLE.replace("key: [order_id]", f"key: [order_id], {settings}") + rest


def test_every_grain_zone_and_column_reads_as_documented() -> None:
    spec = load(
        targeted(
            "grain: month, timezone: America/New_York, column_timezone: Asia/Kolkata",
            "source: {table: raw.orders, partition_by: month_id, column_format: yyyymm}\n",
        )
    )
    target = spec.target
    assert (target.grain, target.timezone, target.column_timezone) == ("month", "America/New_York", "Asia/Kolkata")
    assert spec.source is not None
    assert spec.source.column_format == "yyyymm"
    assert BackfillSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("settings", "rest", "told"),
    [
        ("timezone: America/NewYork", "", "line 2: target.timezone = 'America/NewYork': .*mean 'America/New_York'"),
        ("column_timezone: Berlin", "", "target.column_timezone = 'Berlin': .*did you mean 'Europe/Berlin'"),
        ("grain: weekly", "", "target.grain = 'weekly': must be 'hour', 'day', 'week'"),
        ("column_format: yyymmdd", "", "column_format = 'yyymmdd': .*did you mean 'yyyymmdd'"),
        ("grain: list, timezone: Asia/Tokyo", "", "timezone says how a column tells time, and grain list has none"),
        ("grain: list, column_format: yyyymm", "", "column_format says how a column tells time"),
        (
            "grain: list",
            "source: {table: raw.o, partition_by: r, column_format: yyyy}\n",
            "source.column_format and column_timezone have no meaning for grain list",
        ),
    ],
)
def test_a_grain_zone_or_format_that_cannot_be_meant_is_refused(settings: str, rest: str, told: str) -> None:
    assert re.search(told, refusal(targeted(settings, rest)))


def test_a_list_has_no_logical_date() -> None:
    message = refusal(targeted("grain: list").replace("sql: sql/fct_orders.sql", "sql: a.sql, logical_date: start"))
    assert "transform.logical_date has no meaning for grain list" in message


def test_two_sql_checks_of_one_name_are_refused() -> None:
    one = "  - sql: {name: same, query: SELECT 1}\n"
    assert "two sql checks are called 'same'" in refusal(WHOLE + "checks:\n" + one + one)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("30m", 1_800),
        ("2h", 7_200),
        ("45d", 3_888_000),
        ("PT30M", 1_800),
        ("P45D", 3_888_000),
        ("P1DT2H", 93_600),
    ],
)
def test_a_duration_is_a_number_with_a_unit_or_iso_8601(written: str, seconds: int) -> None:
    spec = load(WHOLE.replace("}\ncompute: {", "}\ncompute: {statement_timeout: " + written + ", "))
    assert spec.compute.statement_timeout.total_seconds() == seconds
    assert BackfillSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize("written", ["heavy queue", "''", "' '"])
def test_a_queue_is_one_word(written: str) -> None:
    assert "line 4: compute.queue" in refusal(WHOLE.replace("compute: {", "compute: {queue: " + written + ", "))


@pytest.mark.parametrize("written", ["30", "0m", "-5m", "5 fortnights", "1.5"])
def test_a_duration_has_a_unit_and_is_longer_than_nothing(written: str) -> None:
    message = refusal(WHOLE.replace("}\ncompute: {", "}\ncompute: {statement_timeout: " + written + ", "))
    assert "line 4: compute.statement_timeout" in message


@pytest.mark.parametrize("name", ["Fct", "1a", "a-b", "a" * 41, "a b", "", "a; DROP TABLE x", 'a"b'])
def test_a_spec_name_fits_in_a_dag_id(name: str) -> None:
    assert "line 1: name" in refusal(WHOLE.replace("name: fct_orders", f"name: '{name}'", 1))


def test_names_with_quotes_are_kept_as_they_are() -> None:
    hostile = """we"ird'; DROP TABLE x; --"""
    text = WHOLE.replace("order_date", "'" + hostile.replace("'", "''") + "'").replace("fct_orders,", "'o\"rders',")
    text = text.replace("analytics.'o\"rders'", "'analytics.o\"rders'")
    spec = load(text)
    assert spec.target.partition_by == hostile
    assert spec.target.table == 'analytics.o"rders'


@pytest.mark.parametrize("table", ["", "a..b", ".a", "a.b.c.d", "a. b"])
def test_a_table_name_has_one_to_three_parts(table: str) -> None:
    assert "line 2: target.table" in refusal(WHOLE.replace("analytics.fct_orders", f"'{table}'"))


def test_a_sql_file_that_is_missing_is_named_with_the_line_that_asks_for_it(folder: Path) -> None:
    (folder / "sql" / "fct_orders.sql").unlink()
    with pytest.raises(SpecError, match=r"line 3: transform\.sql = 'sql/fct_orders\.sql': the SQL file cannot be read"):
        load_spec(folder / "fct_orders.yaml")


@pytest.mark.parametrize("content", [b"", b"  \n\t\n", b"\xff\xfeSELECT"])
def test_a_sql_file_without_text_is_refused(folder: Path, content: bytes) -> None:
    (folder / "sql" / "fct_orders.sql").write_bytes(content)
    with pytest.raises(
        SpecError, match=r"transform\.sql = 'sql/fct_orders\.sql': the SQL file is (empty|not UTF-8 text)"
    ):
        load_spec(folder / "fct_orders.yaml")


def test_sql_written_where_its_path_belongs_is_refused(folder: Path) -> None:
    for sql in ("SELECT 1", "SELECT 1 -- " + "x" * 5000, '"a\\0b"', "."):
        (folder / "a.yaml").write_text(WHOLE.replace("sql/fct_orders.sql", sql), encoding="utf-8")
        with pytest.raises(SpecError, match=r"line 3: transform\.sql .*the SQL file cannot be read"):
            load_spec(folder / "a.yaml")


def test_line_endings_and_a_byte_order_mark_do_not_matter(folder: Path) -> None:
    plain = load_spec(folder / "fct_orders.yaml")
    for path in (folder / "sql" / "fct_orders.sql", folder / "fct_orders.yaml"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_spec(folder / "fct_orders.yaml") == plain


def test_the_path_of_the_sql_file_is_written_in_one_place_only() -> None:
    assert "transform.file" in refusal(WHOLE.replace("{sql: ", "{file: a.sql, sql: "))


@pytest.mark.parametrize("written", [".nan", "[1, .inf]"])
def test_params_are_json(written: str) -> None:
    assert "NaN and infinity" in refusal(
        WHOLE.replace("fct_orders.sql}", f"fct_orders.sql, params: {{a: {written}}}}}")
    )


def test_a_spec_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xff")
    for path in (tmp_path / "a.yaml", tmp_path / "none.yaml", tmp_path):
        with pytest.raises(SpecError, match="cannot be read as a spec"):
            load_spec(path)


def test_specs_are_found_by_name_right_inside_the_folder(folder: Path) -> None:
    for name in ("b.yml", ".hidden.yaml", "c.txt", "sql/d.yaml", "a.yaml"):
        (folder / name).write_text("", encoding="utf-8")
    (folder / "e.yaml").mkdir()
    assert [path.name for path in find_specs(folder)] == ["a.yaml", "b.yml", "fct_orders.yaml"]


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a folder of specs"):
        find_specs(tmp_path / "none")


def test_loading_a_spec_imports_neither_airflow_nor_an_engine(folder: Path) -> None:
    code = (
        "import sys; from airflow_backfill_provider.spec.load import load_spec; load_spec(sys.argv[1]); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'airflow', 'duckdb', 'sqlalchemy', 'sqlglot'}))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "fct_orders.yaml")],
        env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
