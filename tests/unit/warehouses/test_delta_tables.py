"""Delta tables as others make them: features that delta-rs cannot write, odd partition values, types, time zones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from delta_shop import Shop, corrected, day, rows_of
from deltalake import DeltaTable, write_deltalake
from stage_writing import write_one

from airflow_backfill_provider.errors import PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Action, Publication, Published, Staged, Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.delta import DeltaWarehouse
from airflow_backfill_provider.windows import Grain, Partition, parse_key


def rewrite_log(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the table's only commit, action by action."""
    log = path / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("\n".join(map(json.dumps, actions)))


def protocol(
    *features: str, readers: tuple[str, ...] | None = None, version: int = 7
) -> Callable[[dict[str, Any]], None]:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            wanted: dict[str, Any] = {"minReaderVersion": 1 if readers is None else 3, "minWriterVersion": version}
            if version == 7:
                wanted["writerFeatures"] = list(features)
            if readers is not None:
                wanted["readerFeatures"] = list(readers)
            action["protocol"] = wanted

    return change


def metadata(field: dict[str, Any] | None = None, **configuration: str) -> Callable[[dict[str, Any]], None]:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"] = {f"delta.{key}": value for key, value in configuration.items()}
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = field or {}
            action["metaData"]["schemaString"] = json.dumps(schema)

    return change


REFUSED = {
    "appendOnly": [metadata(appendOnly="true")],
    "columnMapping": [protocol(version=5), metadata(**{"columnMapping.mode": "name"})],
    "deletionVectors": [protocol("deletionVectors", readers=("deletionVectors",))],
    "identity columns": [protocol(version=6)],
    "identityColumns": [protocol("identityColumns")],
    "an identity column": [protocol("appendOnly"), metadata({"delta.identity.start": 1})],
    "a generated column": [protocol("generatedColumns"), metadata({"delta.generationExpression": "amount"})],
    "allowColumnDefaults": [protocol("allowColumnDefaults")],
    "rowTracking": [protocol("rowTracking")],
    "clustering": [protocol("clustering")],
    "inCommitTimestamp": [protocol("inCommitTimestamp")],
    "v2Checkpoint": [protocol("v2Checkpoint", readers=("v2Checkpoint",))],
    "typeWidening": [protocol("typeWidening", readers=("typeWidening",))],
    "icebergCompatV1": [protocol("icebergCompatV1")],
}


@pytest.mark.parametrize(("feature", "changes"), REFUSED.items(), ids=REFUSED)
def test_a_table_with_a_feature_that_cannot_be_written_is_refused_by_its_name(
    tmp_path: Path, feature: str, changes: list[Callable[[dict[str, Any]], None]]
) -> None:
    shop = Shop.create(tmp_path)
    for change in changes:
        rewrite_log(shop.path, change)

    with pytest.raises(SpecError, match=feature):
        shop.warehouse.describe("analytics.orders", "day", ["id"])


@pytest.mark.parametrize(
    "feature", ["appendOnly", "changeDataFeed", "checkConstraints", "invariants", "generatedColumns"]
)
def test_a_feature_that_delta_rs_honours_is_no_obstacle(tmp_path: Path, feature: str) -> None:
    shop = Shop.create(tmp_path)
    rewrite_log(shop.path, protocol(feature))
    shop = Shop.open(tmp_path)
    old = shop.amounts()

    shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*map(day, (2, 3, 4)))))

    assert shop.amounts() == [(date, rows, amount + rows) for date, rows, amount in old]


def test_a_table_with_a_change_data_feed_says_what_changed(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    rewrite_log(shop.path, metadata(enableChangeDataFeed="true"))
    rewrite_log(shop.path, protocol(version=4))
    shop = Shop.open(tmp_path)
    streams, told = shop.warehouse.reader_cautions(shop.target)
    assert "a Spark stream ends with an error" in streams
    assert "every row of the range is deleted and those that land are inserted" in told
    shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*map(day, (2, 3, 4)))))

    feed = pyarrow.table(shop.table.load_cdf(starting_version=1).read_all()).to_pylist()
    assert sorted(row["id"] for row in feed if row["_change_type"] == "delete") == list(range(10, 40))
    assert sorted(row["id"] for row in feed if row["_change_type"] == "insert") == list(range(10, 40))


def test_a_source_that_cannot_be_read_is_named_with_its_feature(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    write_deltalake(tmp_path / "raw" / "events", rows_of("SELECT 1 AS id"))
    rewrite_log(tmp_path / "raw" / "events", protocol("deletionVectors", readers=("deletionVectors",)))

    with pytest.raises(WarehouseError, match="deletionVectors"):
        shop.stage(day(2), select=lambda _: f"{corrected(day(2))} AND id IN (SELECT id FROM raw.events)")


def test_only_the_files_that_the_rows_may_be_in_are_opened(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    for name in ("by_day", "by_file"):
        for number in range(1, 4):
            rows = f"SELECT {number} AS id, DATE '2024-01-0{number}' AS day, 'eu' AS region, 1 AS amount"
            by = "day" if name == "by_day" else None
            write_deltalake(tmp_path / "raw" / name, rows_of(rows), mode="append", partition_by=by)
        gone = [
            uri for uri in DeltaTable(tmp_path / "raw" / name).file_uris(file_pruning_predicate="day = '2024-01-01'")
        ]
        assert len(gone) == 1
        Path(gone[0]).unlink()

        select = f"SELECT * FROM raw.{name} WHERE day >= DATE '2024-01-02' AND day < DATE '2024-01-03'"
        assert shop.stage(day(2), select=lambda _, sql=select: sql).partitions[0].fingerprint.rows == 1
        with pytest.raises(WarehouseError, match="parquet"):
            shop.stage(day(2), select=lambda _, name=name: f"SELECT * FROM raw.{name}")


def test_a_time_below_the_millisecond_that_the_log_rounds_to_is_found(tmp_path: Path) -> None:
    write_deltalake(
        tmp_path / "analytics" / "t", rows_of("SELECT 1 AS id, TIMESTAMP '2024-01-02 23:59:59.999999' AS at")
    )
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "at", ["id"])

    with warehouse.open_stage(target, "b1", "x") as writer:
        late = "SELECT * FROM analytics.t WHERE \"at\" > TIMESTAMP '2024-01-02 23:59:59.9995'"
        assert write_one(writer, day(2), late).fingerprint.rows == 1


def test_columns_that_have_other_names_in_the_files_are_not_read_as_absent(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    write_deltalake(tmp_path / "raw" / "events", rows_of("SELECT 1 AS id"))
    rewrite_log(tmp_path / "raw" / "events", metadata(**{"columnMapping.mode": "name"}))

    with pytest.raises(WarehouseError, match=r"columnMapping.mode = name"):
        shop.stage(day(2), select=lambda _: f"{corrected(day(2))} AND id IN (SELECT id FROM raw.events)")


def replace(warehouse: DeltaWarehouse, target: Target, partition: Partition, select: str) -> None:
    before = warehouse.fingerprint(target, Published(), [partition])
    with warehouse.open_stage(target, "b1", "batch-1") as writer:
        entry = write_one(writer, partition, select)
    after = {partition.key: entry.fingerprint}
    warehouse.replace_partitions(
        target, Publication("b1", Action.PUBLISH, "p1", (partition,), Staged((entry,)), before, after)
    )
    assert warehouse.fingerprint(target, Published(), [partition]) == after


ODD = (
    "eu west",
    "x/y",
    "%25",
    "é€😀",
    "a=b",
    "it's",
    " lead",
    "tr ",
    "a\\b",
    'a"b',
    "a:b?c#d",
    "null",
    "NaN",
    "new\nline",
)


def test_odd_and_absent_partition_values_survive_a_publish_of_another_column_s_range(tmp_path: Path) -> None:
    rows = pyarrow.table(
        {
            "id": pyarrow.array(range(2 * len(ODD) + 2), pyarrow.int64()),
            "day": pyarrow.array([datetime(2024, 1, 2), datetime(2024, 1, 3)] * (len(ODD) + 1), pyarrow.date32()),  # noqa: DTZ001
            "region": [text for text in (*ODD, None) for _ in range(2)],
        }
    )
    write_deltalake(tmp_path / "analytics" / "t", rows, partition_by="region")
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "day", ["id"])

    replace(warehouse, target, day(2), "SELECT id + 1000 AS id, day, region FROM analytics.t WHERE day = '2024-01-02'")

    found = DeltaTable(tmp_path / "analytics" / "t").to_pyarrow_table().sort_by("id").to_pylist()
    expected = [row | {"id": row["id"] + 1000 * (row["id"] % 2 == 0)} for row in rows.to_pylist()]
    assert found == sorted(expected, key=lambda row: row["id"])


@pytest.mark.parametrize("partition_by", [None, "region"])
@pytest.mark.parametrize("key", ["eu", "eu-west 1", "a/b:c@d+e.f", "é"])
def test_a_value_of_a_list_is_replaced_and_nothing_that_looks_like_it(
    tmp_path: Path, partition_by: str | None, key: str
) -> None:
    others = [key.upper() + "x", key[:-1] + "_", key + "/", None, "%" + key]
    rows = pyarrow.table({"id": pyarrow.array(range(6), pyarrow.int64()), "region": [key, *others]})
    write_deltalake(tmp_path / "analytics" / "t", rows, partition_by=partition_by)
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "region", ["id"], Reading(by_value=True))

    replace(warehouse, target, parse_key(key, Grain.LIST), f"SELECT 100 AS id, '{key}' AS region")

    found = DeltaTable(tmp_path / "analytics" / "t").to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["region"]) for row in found] == [*enumerate(others, 1), (100, key)]


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_delta_would_read_back_as_null_is_refused_before_it_is_staged(tmp_path: Path, text: str) -> None:
    shop = Shop.create(tmp_path, partition_by="region")

    with pytest.raises(WarehouseError, match="would keep NULL"):
        shop.stage(
            day(2), select=lambda _: f"SELECT 1 AS id, DATE '2024-01-02' AS day, '{text}' AS region, 1 AS amount"
        )
    assert shop.warehouse.storage() == ()


COLUMNS = {
    "date": ("DATE", ["2024-01-01", "2024-01-02", "2024-01-03"], "2024-01-02", Grain.DAY, Reading()),
    "timestamp": (
        "TIMESTAMP",
        ["2024-01-01 23:59:59.999999", "2024-01-02 00:00:00", "2024-01-02 23:59:59.999999", "2024-01-03 00:00:00"],
        "2024-01-02",
        Grain.DAY,
        Reading(),
    ),
    "zoned": (
        "TIMESTAMPTZ",
        [
            "2024-03-10 04:59:59.999999+00",
            "2024-03-10 05:00:00+00",
            "2024-03-11 03:59:59.999999+00",
            "2024-03-11 04:00:00+00",
        ],
        "2024-03-10",
        Grain.DAY,
        Reading("America/New_York"),
    ),
    "short": ("SMALLINT", ["2023", "2024", "2025"], "2024", Grain.YEAR, Reading(column_format="yyyy")),
    "long": (
        "BIGINT",
        ["20240101", "20240102", "20240103"],
        "2024-01-02",
        Grain.DAY,
        Reading(column_format="yyyymmdd"),
    ),
    "tenant": ("TINYINT", ["42", "-42", "0"], "-42", Grain.LIST, Reading(by_value=True)),
    "text": ("VARCHAR", ["2024-01", "2024-02", "2024-03"], "2024-02", Grain.MONTH, Reading(column_format="iso_month")),
}


@pytest.mark.parametrize("files", ["one file", "a file for each row"])
@pytest.mark.parametrize("stored_by", [None, "p", "other"])
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_delta_rs_replaces_exactly_the_rows_that_duckdb_selects(
    tmp_path: Path, column: Any, stored_by: str | None, files: str
) -> None:
    kind, values, key, grain, reading = column
    selects = [
        f"SELECT {number}::BIGINT AS id, CAST({value} AS {kind}) AS p, 'a' AS other"
        for number, value in enumerate([*(f"'{value}'" for value in values), "NULL"])
    ]
    for select in [" UNION ALL ".join(selects)] if files == "one file" else selects:
        write_deltalake(tmp_path / "analytics" / "t", rows_of(select), mode="append", partition_by=stored_by)
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "p", ["id"], reading)
    partition = parse_key(key, grain, reading.timezone)
    held = warehouse.fingerprint(target, Published(), [partition])[partition.key].rows
    assert 0 < held < len(values)

    replace(warehouse, target, partition, "SELECT 100 AS id, p, other FROM analytics.t WHERE id = 1")

    ids = DeltaTable(tmp_path / "analytics" / "t").to_pyarrow_table()["id"].to_pylist()
    assert sorted(ids) == sorted([number for number in range(len(selects)) if not 1 <= number <= held] + [100])


def test_every_type_of_delta_is_staged_published_and_kept(tmp_path: Path) -> None:
    values = (
        "1::TINYINT AS t, 1::SMALLINT AS s, 1::INTEGER AS i, 1::BIGINT AS b, 1.5::FLOAT AS f, 2.5::DOUBLE AS d, "
        "1.25::DECIMAL(12,2) AS m, 7::DECIMAL(38,10) AS n, TRUE AS flag, 'x'::BLOB AS raw, 'é' AS text, "
        "TIMESTAMP '9999-12-31 23:59:59.999999' AS last, TIMESTAMPTZ '2024-01-02 05:00:00+00' AS zoned, "
        "[1, NULL] AS list, {'a': 1, 'b': [{'c': 'x'}]} AS struct, MAP {'a': 1.5::DOUBLE} AS map"
    )
    row = f"SELECT 1::BIGINT AS id, DATE '2024-01-02' AS day, {values}"
    write_deltalake(tmp_path / "analytics" / "t", rows_of(row))
    before = DeltaTable(tmp_path / "analytics" / "t").to_pyarrow_table()
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "day", ["id"])
    mark = warehouse.fingerprint(target, Published(), [day(2)])

    replace(warehouse, target, day(2), "SELECT * FROM analytics.t")

    assert warehouse.fingerprint(target, Published(), [day(2)]) == mark
    assert DeltaTable(tmp_path / "analytics" / "t").to_pyarrow_table() == before


def test_timestamps_of_older_spark_are_read_beyond_the_year_2262(tmp_path: Path) -> None:
    path = tmp_path / "analytics" / "t"
    rows = pyarrow.table({"id": pyarrow.array([1], pyarrow.int64()), "naive": [datetime(9999, 12, 31, 23, 59, 59)]})  # noqa: DTZ001
    write_deltalake(path, rows)
    (file,) = path.glob("*.parquet")
    pyarrow.parquet.write_table(rows, file, use_deprecated_int96_timestamps=True)
    rewrite_log(path, lambda action: action.get("add", {}).update(size=file.stat().st_size))
    warehouse = DeltaWarehouse(str(tmp_path))
    target = warehouse.describe("analytics.t", "naive", ["id"])

    assert warehouse.fingerprint(target, Published(), [parse_key("9998", Grain.YEAR)])["9998"].rows == 0
    with warehouse.open_stage(target, "b1", "x") as writer:
        earlier = "SELECT id, naive - INTERVAL 1 YEAR AS naive FROM analytics.t WHERE naive > TIMESTAMP '5000-01-01'"
        assert write_one(writer, parse_key("9998", Grain.YEAR), earlier).fingerprint.rows == 1


def test_a_row_that_breaks_a_check_is_refused_and_the_old_rows_stay(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    shop.table.alter.add_constraint({"positive": "amount >= -5"})
    shop = Shop.open(tmp_path)
    old = shop.amounts()
    staged = shop.stage(*map(day, (2, 3, 4)), select=lambda one: corrected(one).replace("amount + 1", "-amount"))

    with pytest.raises(PublishRefused, match="constraint"):
        shop.warehouse.replace_partitions(shop.target, shop.publication(staged))

    assert shop.amounts() == old
    (check,) = shop.target.constraints
    assert (check.name, check.columns) == ("positive", ("amount",))


def test_no_name_leads_out_of_the_root(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path / "root")
    staged = shop.stage(day(2)).partitions[0]
    write_deltalake(tmp_path / "secret" / "t", rows_of("SELECT 1 AS id"))

    for name in ("../secret.t", "analytics.../../secret/t", "_safe_backfill/b1." + staged.location.split("/")[1]):
        with pytest.raises(SpecError, match="There is no table"):
            shop.warehouse.describe(name, "day", ["id"])


def test_names_are_found_in_any_case_and_kept_in_the_folder_s(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)

    assert shop.warehouse.describe("Analytics.ORDERS", "DAY", ["ID"]) == shop.target
    staged = shop.stage(day(2), select=lambda one: corrected(one).replace("analytics.orders", "ANALYTICS.Orders"))
    assert staged.partitions[0].fingerprint.rows == 10


def test_a_root_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    warehouse = open_warehouse("delta", root=str(tmp_path / "absent"))

    with pytest.raises(WarehouseError, match="There is no folder"):
        warehouse.describe("analytics.orders", "day", ["id"])
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_zone_of_a_host_decides_nothing(tmp_path: Path, zone: str) -> None:
    values = "TIMESTAMPTZ '2024-01-02 00:30:00+00' AS zoned, TIMESTAMP '2024-01-02 00:30:00' AS naive"
    write_deltalake(tmp_path / "analytics" / "t", rows_of(f"SELECT 1::BIGINT AS id, {values}"))
    code = f"""
from airflow_backfill_provider.warehouses.base import Published
from airflow_backfill_provider.warehouses.delta import DeltaWarehouse
from airflow_backfill_provider.windows import Grain, parse_key
warehouse = DeltaWarehouse({str(tmp_path)!r})
for column in ("zoned", "naive"):
    target = warehouse.describe("analytics.t", column, ["id"])
    mark = warehouse.fingerprint(target, Published(), [parse_key("2024-01-02", Grain.DAY)])
    with warehouse.open_stage(target, "b1", "x") as writer:
        from airflow_backfill_provider.warehouses.base import Recompute
        part = parse_key("2024-01-02", Grain.DAY)
        cast = "SELECT 1 AS id, CAST(CAST(naive AS TIMESTAMPTZ) AS TIMESTAMPTZ) AS zoned, CAST(zoned AS TIMESTAMP) AS naive FROM analytics.t"
        (entry,) = writer.write(Recompute((part,), cast))
    assert mark == {{"2024-01-02": entry.fingerprint}}, (mark, entry)
    print(mark["2024-01-02"].rows, mark["2024-01-02"].digest)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TZ": zone}, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    here = DeltaWarehouse(str(tmp_path))
    mark = here.fingerprint(
        here.describe("analytics.t", "naive", ["id"]), Published(), [parse_key("2024-01-02", Grain.DAY)]
    )
    assert ran.stdout.split() == ["1", mark["2024-01-02"].digest] * 2
