from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_backfill_provider.warehouses.clocks import UTC_DATE, UTC_TIMESTAMP, Clock
from airflow_backfill_provider.warehouses.delta.predicate import within
from airflow_backfill_provider.windows import Grain, Partition, split

FIRST = datetime(2013, 1, 1, tzinfo=UTC)
DAYS = split(FIRST, FIRST + timedelta(days=1200), Grain.DAY)
HOURS = split(FIRST, FIRST + timedelta(hours=1200), Grain.HOUR)


def test_a_range_without_a_partition_has_no_predicate() -> None:
    with pytest.raises(ValueError, match="at least one"):
        within("day", (), UTC_DATE)


def test_days_in_a_row_are_two_bounds_however_many_they_are() -> None:
    assert within("day", DAYS, UTC_DATE) == "(\"day\" >= '2013-01-01' AND \"day\" < '2016-04-15')"


def test_days_apart_are_listed_and_hours_apart_are_nested_no_deeper_than_their_logarithm() -> None:
    listed = within("day", DAYS[::2], UTC_DATE)
    assert listed.startswith("\"day\" IN ('2013-01-01', '2013-01-03', ")
    assert listed.count("'") == 2 * 600
    depth = deepest = 0
    for mark in re.findall("[()]", within("at", HOURS[::2], UTC_TIMESTAMP)):
        depth += 1 if mark == "(" else -1
        deepest = max(deepest, depth)
    assert deepest <= 12


@pytest.mark.parametrize(
    ("partitions", "clock", "kind"),
    [(DAYS, UTC_DATE, pa.date32()), (HOURS, UTC_TIMESTAMP, pa.timestamp("us"))],
    ids=["days", "hours"],
)
def test_hundreds_of_partitions_apart_are_replaced_and_those_between_them_stay(
    partitions: tuple[Partition, ...], clock: Clock, kind: pa.DataType, tmp_path: Path
) -> None:
    some = partitions[:400]
    shown = [clock.show(partition.window.start) for partition in some]
    old = pa.table({"at": pa.array(shown, kind), "new": pa.array([False] * len(some))})
    write_deltalake(tmp_path, old)
    new = pa.table({"at": pa.array(shown[::2], kind), "new": pa.array([True] * len(some[::2]))})

    write_deltalake(tmp_path, new, mode="overwrite", predicate=within("at", some[::2], clock))

    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("at")
    assert found["at"].to_pylist() == shown
    assert found["new"].to_pylist() == [number % 2 == 0 for number in range(len(some))]
