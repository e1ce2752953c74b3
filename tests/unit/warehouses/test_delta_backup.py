"""A backup copies the table's files where each lies in the range as a whole, and their rows where not."""

from __future__ import annotations

import time
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from delta_shop import RANGE, Shop, day, rows_of
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Backup
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.delta import DeltaWarehouse
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.delta.session import Sessions
from airflow_backfill_provider.windows import Grain, parse_key

ODD = ("a/b", "eu 1", "d+e:f@g.h", "é")


def contents(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in folder.rglob("*.parquet"))


def kept_in(shop: Shop, backup: Backup) -> Path:
    return shop.path.parents[1] / "_safe_backfill" / backup.location


def test_days_that_have_files_of_their_own_are_kept_as_those_very_files(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, partition_by="day")
    backup, marks = shop.warehouse.back_up(shop.target, "b1", RANGE, label="publish")

    own = [path.read_bytes() for one in RANGE for path in shop.path.glob(f"day={one.key}/*.parquet")]
    assert len(own) == 3
    assert contents(kept_in(shop, backup)) == sorted(own)
    assert marks == shop.fingerprint(*RANGE)
    assert DeltaTable(kept_in(shop, backup)).metadata().description == "backup of backfill b1"


@pytest.mark.parametrize("partition_by", [None, "region"])
def test_files_with_rows_of_other_days_are_not_kept_but_their_rows_of_the_range_are(
    tmp_path: Path, partition_by: str | None
) -> None:
    shop = Shop.create(tmp_path, partition_by=partition_by)
    backup, marks = shop.warehouse.back_up(shop.target, "b1", RANGE, label="publish")

    assert DeltaTable(kept_in(shop, backup)).to_pyarrow_table().num_rows == 30
    assert marks == shop.fingerprint(*RANGE)


def test_values_that_no_folder_can_be_named_after_come_back_from_a_copied_file(tmp_path: Path) -> None:
    rows = pyarrow.table({"id": pyarrow.array(range(len(ODD) + 1), pyarrow.int64()), "region": [*ODD, None]})
    write_deltalake(tmp_path / "analytics" / "t", rows, partition_by="region")
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "region", ["id"], Reading(by_value=True))

    backup, _ = warehouse.back_up(target, "b1", [parse_key(key, Grain.LIST) for key in ODD], label="publish")

    kept = DeltaTable(tmp_path / "_safe_backfill" / backup.location).to_pyarrow_table().sort_by("id")
    assert kept.select(["id", "region"]).to_pylist() == rows.to_pylist()[:-1]


def test_a_table_may_be_partitioned_by_a_column_named_as_one_might_call_ours(tmp_path: Path) -> None:
    days = pyarrow.array([date(2024, 1, 1), date(2024, 1, 2)])
    rows = pyarrow.table({"id": pyarrow.array([1, 2], pyarrow.int64()), "file": days})
    write_deltalake(tmp_path / "analytics" / "t", rows, partition_by="file")
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "file", ["id"])

    backup, _ = warehouse.back_up(target, "b1", [day(2)], label="publish")

    kept = DeltaTable(tmp_path / "_safe_backfill" / backup.location).to_pyarrow_table()
    assert kept.to_pylist() == [{"id": 2, "file": date(2024, 1, 2)}]


def test_a_table_of_two_partition_columns_keeps_both_values_of_each_file(tmp_path: Path) -> None:
    sql = "SELECT i AS id, DATE '2024-01-01' + CAST(i // 4 AS INTEGER) AS day, CASE i % 3 WHEN 0 THEN '100 %' WHEN 1 THEN 'e=f''s/x' END AS kind FROM range(20) AS t(i)"
    write_deltalake(tmp_path / "analytics" / "t", rows_of(sql), partition_by=["kind", "day"])
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "day", ["id"])

    backup, _ = warehouse.back_up(target, "b1", [day(2), day(4)], label="publish")

    kept = DeltaTable(tmp_path / "_safe_backfill" / backup.location).to_pyarrow_table()
    expected = duckdb.sql(f"SELECT * FROM ({sql}) WHERE day IN ('2024-01-02', '2024-01-04') ORDER BY id").fetchall()
    assert [tuple(row[name] for name in ("id", "day", "kind")) for row in kept.sort_by("id").to_pylist()] == expected


def test_a_copy_that_is_cancelled_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create(tmp_path, partition_by="day")
    copy_files = fs.copy_files

    def cancelled(*args: object, **kwargs: object) -> None:
        copy_files(*args, **kwargs)
        shop.warehouse.cancel()

    monkeypatch.setattr("airflow_backfill_provider.warehouses.delta.storage.fs.copy_files", cancelled)
    monkeypatch.setattr("airflow_backfill_provider.warehouses.delta.storage._COPIES_AT_ONCE", 1)
    with pytest.raises(WarehouseError, match="cancelled"):
        shop.warehouse.back_up(shop.target, "b1", RANGE, label="publish")

    assert shop.warehouse.storage() == ()


def test_a_file_that_was_vacuumed_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, partition_by="day")
    (gone,) = shop.path.glob("day=2024-01-03/*.parquet")
    gone.unlink()

    with pytest.raises(WarehouseError, match=gone.name):
        shop.warehouse.back_up(shop.target, "b1", RANGE, label="publish")

    assert shop.warehouse.storage() == ()


def test_a_copy_of_files_that_takes_too_long_is_not_put_down_to_the_transform(tmp_path: Path) -> None:
    sessions = Sessions(Root(str(tmp_path), None), timedelta(milliseconds=20), threads=1)

    def copy() -> None:
        with sessions.session() as session, session.in_steps("Copying files") as go_on:
            while True:
                go_on()
                time.sleep(0.01)

    with pytest.raises(WarehouseError, match=r"^Copying files ran longer .* Raise compute\.statement_timeout\.$"):
        copy()
