"""Rows that code returned, read one by one: no value of them is dropped in silence."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.code_rows import values_of


def frame(*names: str) -> Any:
    return pytest.importorskip("pandas").DataFrame([range(len(names))], columns=list(names))


def arrow(*names: str) -> Any:
    return pyarrow.table([pyarrow.array([place]) for place in range(len(names))], names=list(names))


def mappings(*names: str) -> Any:
    return [dict(zip(names, range(len(names)), strict=True))]


@pytest.mark.parametrize(
    ("shaped", "third"),
    [(frame, "x"), (frame, "X"), (arrow, "x"), (lambda *names: arrow(*names).to_reader(), "x"), (mappings, "X")],
    ids=["frame", "frame_in_another_case", "arrow", "arrow_reader", "mapping_in_another_case"],
)
def test_a_column_that_is_there_twice_is_refused_by_name(shaped: Any, third: str) -> None:
    with pytest.raises(WarehouseError, match="more than once: x"):
        list(values_of(shaped("x", "y", third), ("x", "y")))


@pytest.mark.parametrize("shaped", [frame, arrow, mappings])
def test_names_in_another_case_and_order_are_the_columns(shaped: Any) -> None:
    assert list(values_of(shaped("Y", "X"), ("x", "y"))) == [(1, 0)]
