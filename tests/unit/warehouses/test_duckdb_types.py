"""What counts as lossless is what DuckDB itself lands unchanged or refuses."""

from __future__ import annotations

import duckdb
import pytest

from airflow_backfill_provider.warehouses.duckdb.types import lossless

VALUES = {
    "TINYINT": ["-128", "0", "127"],
    "UTINYINT": ["0", "255"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647", "16777217"],
    "UINTEGER": ["4294967295"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "UBIGINT": ["18446744073709551615"],
    "HUGEINT": ["170141183460469231731687303715884105727", "1"],
    "DECIMAL(4,1)": ["123.5", "-0.1"],
    "DECIMAL(18,3)": ["123456789012345.678", "0.001"],
    "DECIMAL(38,0)": ["12345678901234567890123456789012345678", "7"],
    "FLOAT": ["0.1", "16777216"],
    "DOUBLE": ["0.1", "1e300", "1.5"],
    "BOOLEAN": ["true", "false"],
    "VARCHAR": ["'1.5'", "'2024-01-01'", "' a '", "'true'"],
    "DATE": ["'2024-01-01'", "'0001-01-01'", "'9999-12-31'"],
    "TIMESTAMP_S": ["'2024-01-01 12:00:01'"],
    "TIMESTAMP_MS": ["'2024-01-01 12:00:00.123'"],
    "TIMESTAMP": ["'2024-01-01 12:00:00.123456'", "'9999-12-31 00:00:00'"],
    "TIMESTAMP_NS": ["'2024-01-01 12:00:00.123456789'"],
    "TIMESTAMP WITH TIME ZONE": ["'2024-01-01 12:00:00+00'"],
    "TIME": ["'12:00:00'"],
    "UUID": ["'6f1e3c5e-0000-4000-8000-000000000001'"],
    "ENUM('a', 'b')": ["'a'"],
    "STRUCT(x INTEGER)": ["{'x': 1}"],
    "INTEGER[]": ["[1, 2]"],
}
PAIRS = [(source, target) for source in VALUES for target in VALUES]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:")


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if lossless(*pair)], ids=str)
def test_a_lossless_pair_keeps_the_value_or_makes_the_engine_raise(
    connection: duckdb.DuckDBPyConnection, source: str, target: str
) -> None:
    for value in VALUES[source]:
        connection.execute(f"CREATE OR REPLACE TABLE landed (v {target})")
        try:
            connection.execute(f"INSERT INTO landed SELECT CAST({value} AS {source})")
        except duckdb.ConversionException:
            continue
        row = connection.execute(f"SELECT v IS NOT DISTINCT FROM CAST({value} AS {source}) FROM landed").fetchone()
        assert row == (True,), value


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("DOUBLE", "INTEGER"),
        ("DOUBLE", "FLOAT"),
        ("DOUBLE", "DECIMAL(12,2)"),
        ("DECIMAL(12,2)", "DECIMAL(12,1)"),
        ("DECIMAL(12,2)", "BIGINT"),
        ("DECIMAL(12,2)", "DOUBLE"),
        ("BIGINT", "DOUBLE"),
        ("INTEGER", "FLOAT"),
        ("TIMESTAMP", "DATE"),
        ("TIMESTAMP_NS", "TIMESTAMP"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
        ("VARCHAR", "INTEGER"),
        ("VARCHAR", "DATE"),
        ("INTEGER", "VARCHAR"),
        ("VARCHAR", "ENUM('a', 'b')"),
        ("STRUCT(x INTEGER)", "STRUCT(x BIGINT)"),
        ("INTEGER[]", "BIGINT[]"),
        ("BOOLEAN", "INTEGER"),
    ],
)
def test_what_may_round_or_reinterpret_is_lossy(source: str, target: str) -> None:
    assert not lossless(source, target)


@pytest.mark.parametrize("target", VALUES)
def test_a_bare_null_fits_anything_and_every_type_fits_itself(target: str) -> None:
    assert lossless("NULL", target)
    assert lossless('"NULL"', target)
    assert lossless(target, target)
