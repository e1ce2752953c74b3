"""What code hands over lands in DuckDB as it was handed over, whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow
import pytest

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Target
from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.duckdb.landing import DuckDBLanding
from airflow_backfill_provider.warehouses.duckdb.session import Session

LONG = Decimal("12345678901234567.89")


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(duckdb.connect(), None)
    yield session
    session.close()


def landing(session: Session, **types: str) -> DuckDBLanding:
    columns = tuple(Column(name, kind) for name, kind in types.items())
    return DuckDBLanding(session, "memory", Target("a.b", "x", Clock(ColumnKind.INTEGER), (), columns), lambda: None)


def landed(session: Session, kind: str, values: list[Any]) -> list[Any]:
    """What becomes of these values, one in a row, in a column of that type."""
    one = landing(session, x=kind)
    one.add([{"x": value} for value in values])
    one.settle()
    return [value for (value,) in session.run(f"SELECT x FROM {one.table}")]


def test_what_a_swallowed_error_undid_is_not_taken_for_an_empty_partition(session: Session) -> None:
    one = landing(session, x="BIGINT")
    one.connection.execute("BEGIN")
    one.connection.execute(f"INSERT INTO {one.table} VALUES (1)")
    with suppress(duckdb.CatalogException):
        one.connection.execute("SELECT * FROM rates")

    with pytest.raises(WarehouseError, match=r"left open was aborted .* nothing of it could be kept"):
        one.settle()
    with pytest.raises(WarehouseError, match="left open was aborted"):
        one.add(one.connection.sql("SELECT 1 AS x"))


@pytest.mark.parametrize("begins", [True, False])
def test_what_code_wrote_is_kept_whether_it_left_a_transaction_open_or_not(session: Session, begins: bool) -> None:
    one = landing(session, x="BIGINT")
    if begins:
        one.connection.execute("BEGIN")
    one.connection.execute(f"INSERT INTO {one.table} VALUES (1)")

    one.settle()

    assert session.second_look(f"SELECT x FROM {one.table}") == [(1,)]


def test_an_error_of_the_commit_itself_comes_out(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise duckdb.TransactionException("Could not write file: no space left on device")

    monkeypatch.setattr(session, "commit", full)
    with pytest.raises(WarehouseError, match="Committing what the code wrote could not be written"):
        landing(session, x="BIGINT").settle()


def test_rows_that_come_one_by_one_from_the_code_s_own_result_all_arrive(session: Session) -> None:
    one = landing(session, x="BIGINT")
    result = one.connection.execute("SELECT range FROM range(25000)")

    one.add({"x": row[0]} for row in iter(result.fetchone, None))

    assert session.run(f"SELECT count(*), max(x) FROM {one.table}") == [(25_000, 24_999)]


def test_a_reader_is_looked_at_and_taken_over_though_it_can_be_read_once(session: Session) -> None:
    one = landing(session, x="BIGINT")
    one.add(pyarrow.table({"x": [1.0, 2.0]}).to_reader())
    assert session.run(f"SELECT x FROM {one.table}") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        ("DECIMAL(19,2)", [LONG, 0.5], r"x has Decimal\('12345678901234567.89'\) beside a float"),
        ("DECIMAL(19,2)", [0.5, Decimal("90071992547409.93")], "beside a float"),
        ("BIGINT", [2.0, None, 2**53 + 1], "x has 9007199254740993 beside a float"),
        ("BIGINT", [float("nan"), -(2**53) - 1], "beside a float"),
        ("DECIMAL(38,7)", [Decimal("1e30"), Decimal("1e-11")], "31 digits before the point and 11 after it"),
        ("DOUBLE", [Decimal("NaN"), Decimal("1.23456789")], r"Decimal\('NaN'\) beside other numbers"),
    ],
)
def test_numbers_that_duckdb_would_change_beside_others_are_refused_by_column(
    session: Session, kind: str, values: list[Any], told: str
) -> None:
    with pytest.raises(WarehouseError, match=told):
        landed(session, kind, values)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", [1, 0.5, None, True, Decimal("0.1")]),
        ("DECIMAL(19,2)", [Decimal("1.20"), 0.1, 7]),
        ("DECIMAL(19,2)", [LONG, 7, None, Decimal("1E+3")]),
        ("BIGINT", [2**53 + 1, None, True]),
        ("BIGINT", [2.0, 2**53]),
    ],
)
def test_numbers_of_several_types_that_keep_their_value_are_taken(
    session: Session, kind: str, values: list[Any]
) -> None:
    found = landed(session, kind, values)
    exact = [None if value is None else Decimal(str(float(value) if value is True else value)) for value in values]
    assert [None if value is None else Decimal(str(value)) for value in found] == exact


def test_the_objects_of_a_data_frame_are_held_to_the_same_and_a_missing_one_is_no_float(session: Session) -> None:
    pandas = pytest.importorskip("pandas")
    one = landing(session, x="DECIMAL(19,2)")
    with pytest.raises(WarehouseError, match=r"x has .* beside a float"):
        one.add(pandas.DataFrame({"x": pandas.Series([LONG, 0.5], dtype=object)}))
    one.add(pandas.DataFrame({"x": pandas.Series([LONG, float("nan")], dtype=object)}))
    assert session.run(f"SELECT x FROM {one.table}") == [(LONG,), (None,)]
