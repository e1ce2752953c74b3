"""Literals, predicates and the grouping by partition, against the engine itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.clocks import UTC_TIMESTAMP, Clock, ColumnKind
from airflow_backfill_provider.warehouses.duckdb.dialect import DIALECT
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece, fingerprints
from airflow_backfill_provider.warehouses.sql import instant, literal, quote, text_literal, within
from airflow_backfill_provider.windows import Grain, Partition, Window, partition_at

DATES = Clock(ColumnKind.DATE)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.decimals(min_value=-(10**12), max_value=10**12, places=6),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:")


@settings(deadline=None)
@given(value=VALUES)
def test_a_literal_reads_back_as_the_value(connection: duckdb.DuckDBPyConnection, value: object) -> None:
    row = connection.execute(f"SELECT {literal(value)}").fetchone()  # type: ignore[arg-type]

    assert row is not None
    assert row[0] == value


@settings(deadline=None)
@given(name=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1))
def test_any_name_is_quoted(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    cursor = connection.execute(f"SELECT 1 AS {quote(name)}")

    assert cursor.description is not None
    assert cursor.description[0][0] == name


@pytest.mark.parametrize("bad", ["", "a\x00b"])
def test_what_no_engine_can_name_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name"):
        quote(bad)


def test_a_nul_character_cannot_be_text() -> None:
    with pytest.raises(ValueError, match="NUL"):
        text_literal("a\x00b")


def test_a_predicate_without_a_window_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one window"):
        within("day", [], DATES)


def test_a_date_column_is_cut_at_midnight_only() -> None:
    with pytest.raises(SpecError, match="not the start of one"):
        instant(datetime(2024, 1, 1, 5, tzinfo=UTC), DATES)


EDGES = ["0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01", "2199-01-01"]


@pytest.mark.parametrize("column_type", ["DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"])
@pytest.mark.parametrize("edge", EDGES)
def test_rows_on_every_edge_belong_to_exactly_one_day(
    connection: duckdb.DuckDBPyConnection, column_type: str, edge: str
) -> None:
    if column_type == "TIMESTAMP_NS" and edge == "0001-01-01":
        pytest.skip("nanoseconds do not reach so far")
    first = partition_at(date.fromisoformat(edge), Grain.DAY)
    second = partition_at(first.window.end, Grain.DAY)
    tick = {
        "DATE": "",
        "TIMESTAMP_S": " 23:59:59",
        "TIMESTAMP_MS": " 23:59:59.999",
        "TIMESTAMP": " 23:59:59.999999",
    }.get(column_type, " 23:59:59.999999999")
    clock = DATES if column_type == "DATE" else UTC_TIMESTAMP
    connection.execute(f"CREATE OR REPLACE TABLE t (at {column_type}, v INTEGER)".replace("at ", '"at" '))
    connection.execute(
        f"INSERT INTO t VALUES ('{first.key}', 1), ('{first.key}{tick}', 2), ('{second.key}', 3), ('{second.key}{tick}', 4), "
        f"(NULL, 5), ('{second.window.end:%Y-%m-%d}', 6)"
    )
    piece = Piece(DIALECT, "t", "at", column_type, clock, (first, second))
    buckets = Buckets(piece.partitions, [piece])

    found = connection.execute(buckets.select(piece, ["r.v"])).fetchall()

    assert sorted((buckets.key(bucket), value) for bucket, value in found) == [
        (first.key, 1),
        (first.key, 2),
        (second.key, 3),
        (second.key, 4),
    ]


moments = st.integers(0, 24 * 20).map(lambda hours: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hours))


@settings(deadline=None)
@given(
    rows=st.lists(st.one_of(st.none(), moments), max_size=40),
    bounds=st.lists(moments, min_size=2, max_size=8, unique=True).map(sorted),
    left_out=st.sets(st.integers(0, 6)),
)
def test_windows_of_any_shape_hold_the_rows_that_lie_in_them(
    connection: duckdb.DuckDBPyConnection, rows: list[datetime | None], bounds: list[datetime], left_out: set[int]
) -> None:
    windows = [Window(*pair) for number, pair in enumerate(pairwise(bounds)) if number not in left_out]
    partitions = tuple(Partition(f"p{window.start:%d%H}", window) for window in windows)
    if not partitions:
        return
    connection.execute("CREATE OR REPLACE TABLE t (m TIMESTAMP, v INTEGER)")
    values = ", ".join("(NULL, 1)" if row is None else f"({instant(row, UTC_TIMESTAMP)}, 1)" for row in rows)
    if values:
        connection.execute(f"INSERT INTO t VALUES {values}")
    piece = Piece(DIALECT, "t", "m", "TIMESTAMP", UTC_TIMESTAMP, partitions)
    buckets = Buckets(partitions, [piece])

    found = connection.execute(fingerprints(DIALECT, buckets, [piece], ["m", "v"])).fetchall()

    counts = {
        partition.key: sum(row is not None and partition.window.start <= row < partition.window.end for row in rows)
        for partition in partitions
    }
    assert {buckets.key(bucket): count for bucket, count, _ in found} == {
        key: count for key, count in counts.items() if count
    }


def test_numbers_keep_every_digit() -> None:
    assert literal(Decimal("0.1")) == "0.1"
    assert literal(Decimal("1E+3")) == "1000"
    assert literal(2**100) == str(2**100)
