"""Selection, staging and deletion mean the same rows, for every kind of partition column, grain and zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from contract_engines import Engine
from stage_writing import write_one

from airflow_backfill_provider.errors import PartitionOverrun, SpecError, WarehouseError
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.warehouses.base import (
    Action,
    Publication,
    Published,
    Source,
    Staged,
    Target,
    Warehouse,
)
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.windows import Grain, Partition, parse_key

CHICAGO, KOLKATA, NEW_YORK = "America/Chicago", "Asia/Kolkata", "America/New_York"


@dataclass(frozen=True)
class Case:
    """A column, the partition to replace, and rows: each the column's value and whether the partition holds it."""

    type: str
    grain: Grain
    key: str
    rows: tuple[tuple[str | int, bool], ...]
    reading: Reading

    @property
    def partition(self) -> Partition:
        return parse_key(self.key, self.grain, self.reading.timezone)


def column(kind: str, grain: Grain, key: str, inside: Sequence[Any], outside: Sequence[Any], **reading: Any) -> Case:
    rows = tuple([(value, True) for value in inside] + [(value, False) for value in outside])
    return Case(kind, grain, key, rows, Reading(**reading))


CASES = {
    "day on date": column(
        "date", Grain.DAY, "2024-03-10", ["2024-03-10"], ["2024-03-09", "2024-03-11"], timezone=CHICAGO
    ),
    "day on timestamp in UTC": column(
        "timestamp", Grain.DAY, "2024-03-10", ["2024-03-10 00:00:00", "2024-03-10 23:59:59.999999"],
        ["2024-03-09 23:59:59.999999", "2024-03-11 00:00:00"],
    ),
    "local day on timestamp that means UTC": column(
        "timestamp", Grain.DAY, "2024-03-10", ["2024-03-10 05:00:00", "2024-03-11 03:59:59.999999"],
        ["2024-03-10 04:59:59.999999", "2024-03-11 04:00:00"], timezone=NEW_YORK,
    ),
    "local day on timestamp that means the zone": column(
        "timestamp", Grain.DAY, "2024-03-10", ["2024-03-10 00:00:00", "2024-03-10 23:59:59.999999"],
        ["2024-03-09 23:59:59.999999", "2024-03-11 00:00:00"], timezone=NEW_YORK, column_timezone=NEW_YORK,
    ),
    "a day with midnight twice": column(
        "timestamp", Grain.DAY, "2024-11-03", ["2024-11-03 00:00:00", "2024-11-03 00:30:00", "2024-11-03 23:59:59"],
        ["2024-11-02 23:59:59", "2024-11-04 00:00:00"], timezone="America/Havana", column_timezone="America/Havana",
    ),
    "day of one zone on timestamp of another": column(
        "timestamp", Grain.DAY, "2024-03-10", ["2024-03-10 10:30:00", "2024-03-11 09:29:59"],
        ["2024-03-10 10:29:59", "2024-03-11 09:30:00"], timezone=NEW_YORK, column_timezone=KOLKATA,
    ),
    "UTC day on timestamp of another zone": column(
        "timestamp", Grain.DAY, "2024-03-10", ["2024-03-10 05:30:00", "2024-03-11 05:29:59"],
        ["2024-03-10 05:29:59", "2024-03-11 05:30:00"], column_timezone=KOLKATA,
    ),
    "local day on timestamptz": column(
        "zoned", Grain.DAY, "2024-03-10", ["2024-03-10 05:00:00+00", "2024-03-10 22:59:59.999999-05"],
        ["2024-03-10 04:59:59.999999+00", "2024-03-11 04:00:00+00"], timezone=NEW_YORK,
    ),
    "hour on timestamptz, the second of two": column(
        "zoned", Grain.HOUR, "2024-11-03T01-0500", ["2024-11-03 06:00:00+00", "2024-11-03 01:59:59-05"],
        ["2024-11-03 01:59:59-04", "2024-11-03 07:00:00+00"], timezone=NEW_YORK,
    ),
    "hour on timestamp": column(
        "timestamp", Grain.HOUR, "2024-03-10T00", ["2024-03-09 18:30:00", "2024-03-09 19:29:59"],
        ["2024-03-09 18:29:59", "2024-03-09 19:30:00"], timezone=KOLKATA,
    ),
    "week on date": column(
        "date", Grain.WEEK, "2024-03-11 (W11)", ["2024-03-11", "2024-03-17"], ["2024-03-10", "2024-03-18"]
    ),
    "month on date": column("date", Grain.MONTH, "2024-02", ["2024-02-01", "2024-02-29"], ["2024-01-31", "2024-03-01"]),
    "year on timestamp": column(
        "timestamp", Grain.YEAR, "2024", ["2024-01-01 00:00:00", "2024-12-31 23:59:59"],
        ["2023-12-31 23:59:59", "2025-01-01 00:00:00"],
    ),
    "day on yyyymmdd": column(
        "integer", Grain.DAY, "2024-02-29", [20240229], [20240228, 20240301], column_format="yyyymmdd", timezone=CHICAGO
    ),
    "month on yyyymmdd": column(
        "integer", Grain.MONTH, "2024-02", [20240201, 20240229], [20240131, 20240301], column_format="yyyymmdd"
    ),
    "month on yyyymm": column("integer", Grain.MONTH, "2024-12", [202412], [202411, 202501], column_format="yyyymm"),
    "year on yyyymm": column("integer", Grain.YEAR, "2024", [202401, 202412], [202312, 202501], column_format="yyyymm"),
    "year on yyyy": column("integer", Grain.YEAR, "2024", [2024], [2023, 2025], column_format="yyyy"),
    "day on iso date": column(
        "text", Grain.DAY, "2024-02-29", ["2024-02-29"], ["2024-02-28", "2024-03-01"], column_format="iso_date"
    ),
    "week on iso date": column(
        "text", Grain.WEEK, "2024-03-11 (W11)", ["2024-03-11", "2024-03-17"], ["2024-03-10", "2024-03-18"],
        column_format="iso_date",
    ),
    "month on iso month": column(
        "text", Grain.MONTH, "2024-02", ["2024-02"], ["2024-01", "2024-03"], column_format="iso_month"
    ),
    "day on yyyymmdd as text": column(
        "text", Grain.DAY, "2024-02-29", ["20240229"], ["20240228", "20240301"], column_format="yyyymmdd"
    ),
    "a region": column("text", Grain.LIST, "eu-west 1", ["eu-west 1"], ["eu", "EU-WEST 1", "eu-west 2"], by_value=True),
    "a tenant": column("integer", Grain.LIST, "-42", [-42], [42, -43, 0], by_value=True),
}  # fmt: skip


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest, engine: Engine) -> Case:
    if request.param.type in engine.lacks:
        pytest.skip("the engine has no such type")
    return request.param


def literal(value: str | int | None) -> str:
    return "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"


def create(engine: Engine, name: str, case: Case) -> None:
    """Every row once, and one without a partition value; ``v`` is 1 in rows that the partition holds."""
    kind = engine.types.get(case.type, "TIMESTAMP WITH TIME ZONE")
    engine.execute(f"CREATE TABLE {name} (id BIGINT, p {kind}, v BIGINT)")
    rows = [*case.rows, (None, False)]
    for number, (value, inside) in enumerate(rows):
        engine.execute(f"INSERT INTO {name} SELECT {number}, CAST({literal(value)} AS {kind}), {int(inside)}")


def publish(warehouse: Warehouse, target: Target, partition: Partition, staged: Staged) -> tuple[int, int]:
    (entry,) = staged.partitions
    before = warehouse.fingerprint(target, Published(), [partition])
    receipt = warehouse.replace_partitions(
        target,
        Publication("b1", Action.PUBLISH, "p1", (partition,), staged, before, {partition.key: entry.fingerprint}),
    )
    return receipt.deleted, receipt.inserted


def test_exactly_the_rows_of_the_partition_are_selected_staged_and_replaced(
    engine: Engine, warehouse: Warehouse, case: Case
) -> None:
    create(engine, "analytics.t", case)
    create(engine, "analytics.s", case)
    target = warehouse.describe("analytics.t", "p", ["id"], case.reading)
    partition, held = case.partition, sum(inside for _, inside in case.rows)

    assert warehouse.fingerprint(target, Published(), [partition])[partition.key].rows == held
    source = Source("analytics.s", "p", case.reading)
    assert warehouse.measure(target, source, [partition], [ROWS])[partition.key] == {ROWS: held}
    with warehouse.open_stage(target, "b1", partition.label) as writer:
        with pytest.raises(PartitionOverrun, match="1 have no p"):
            write_one(writer, partition, "SELECT * FROM analytics.t")
        entry = write_one(writer, partition, "SELECT id, p, v + 10 AS v FROM analytics.t WHERE v = 1")
    staged = Staged((entry,))
    assert warehouse.measure(target, staged, [partition], [ROWS])[partition.key] == {ROWS: held}
    assert warehouse.compare(target, Published(), staged, [partition])[partition.key].changed == held
    backup, marks = warehouse.back_up(target, "b1", [partition], label="publish")

    assert publish(warehouse, target, partition, staged) == (held, held)

    assert engine.rows("SELECT v, count(*) FROM analytics.t GROUP BY v ORDER BY v") == [
        (0, len(case.rows) - held + 1),
        (11, held),
    ]
    assert marks == warehouse.fingerprint(target, backup, [partition])
    assert warehouse.outside_rows(target).null_partition == 1


def test_the_sql_shown_for_a_metric_counts_the_rows_of_the_partition(
    engine: Engine, warehouse: Warehouse, case: Case
) -> None:
    create(engine, "analytics.t", case)
    target = warehouse.describe("analytics.t", "p", ["id"], case.reading)

    for rows in (Published(), Source("analytics.t", "p", case.reading)):
        shown = warehouse.metric_sql(target, rows, [case.partition], ROWS)
        assert engine.rows(shown) == [(sum(inside for _, inside in case.rows),)]


REFUSED = {
    "an hour of a date": ("date", Grain.HOUR, "2024-03-10T05", Reading(), "tells one day from the next"),
    "a day of yyyymm": ("integer", Grain.DAY, "2024-03-01", Reading(column_format="yyyymm"), "tells one month"),
    "a week of iso months": ("text", Grain.WEEK, "2024-03-11", Reading(column_format="iso_month"), "tells one month"),
    "a month of years": ("integer", Grain.MONTH, "2024-03", Reading(column_format="yyyy"), "tells one year"),
    "a day of another zone's dates": (
        "date", Grain.DAY, "2024-03-10", Reading(NEW_YORK, "UTC"), "no other time zone can be cut"
    ),
    "an hour that the clock shows twice": (
        "timestamp", Grain.HOUR, "2024-11-03T01-0500", Reading(NEW_YORK, NEW_YORK), "before and after"
    ),
    "a tenant that is no number": ("integer", Grain.LIST, "eu", Reading(by_value=True), "not a value of an integer"),
    "a tenant with a zero before it": ("integer", Grain.LIST, "042", Reading(by_value=True), "not a value of an integer"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "grain", "key", "reading", "told"), REFUSED.values(), ids=REFUSED)
def test_a_partition_that_the_column_cannot_tell_from_its_neighbour_is_refused_with_the_reason(
    engine: Engine, warehouse: Warehouse, kind: str, grain: Grain, key: str, reading: Reading, told: str
) -> None:
    engine.execute(f"CREATE TABLE analytics.t (id BIGINT, p {engine.types[kind]})")
    target = warehouse.describe("analytics.t", "p", ["id"], reading)
    with pytest.raises(SpecError, match=told):
        warehouse.fingerprint(target, Published(), [parse_key(key, grain, reading.timezone)])


@pytest.mark.parametrize(
    ("kind", "value", "reading"),
    [
        ("integer", 20240230, Reading(column_format="yyyymmdd")),
        ("text", "2024-02-29T10", Reading(column_format="iso_date")),
    ],
)
def test_a_value_that_is_no_day_is_refused_and_shown_rather_than_counted_or_lost(
    engine: Engine, warehouse: Warehouse, kind: str, value: str | int, reading: Reading
) -> None:
    engine.execute(
        f"CREATE TABLE analytics.t (id BIGINT, p {engine.types[kind]})",
        f"INSERT INTO analytics.t VALUES (1, {literal(value)})",
    )
    target = warehouse.describe("analytics.t", "p", ["id"], reading)
    with pytest.raises(WarehouseError, match=f"{value}.*column_format"):
        warehouse.fingerprint(target, Published(), [parse_key("2024-02-29", Grain.DAY)])


def test_several_values_of_a_list_are_told_apart_in_one_statement(engine: Engine, warehouse: Warehouse) -> None:
    engine.execute(
        f"CREATE TABLE analytics.t (id BIGINT, region {engine.types['text']})",
        "INSERT INTO analytics.t VALUES (1, 'eu'), (2, 'us'), (3, 'us'), (4, NULL), (5, 'asia')",
    )
    target = warehouse.describe("analytics.t", "region", ["id"], Reading(by_value=True))
    partitions = [parse_key(key, Grain.LIST) for key in ("us", "eu", "nowhere")]

    marks = warehouse.fingerprint(target, Published(), partitions)

    assert {key: mark.rows for key, mark in marks.items()} == {"us": 2, "eu": 1, "nowhere": 0}


def test_every_hour_of_a_day_on_which_clocks_go_back_has_its_own_rows(engine: Engine, warehouse: Warehouse) -> None:
    """On a column that shows UTC; hour by hour, as the zone counts them."""
    engine.execute(f"CREATE TABLE analytics.t (id BIGINT, p {engine.types['timestamp']})")
    start = datetime(2024, 11, 3, 4)  # noqa: DTZ001 - as the column shows it
    rows = ", ".join(
        f"({hour}, '{start.replace(day=3 + (4 + hour) // 24, hour=(4 + hour) % 24)}')" for hour in range(25)
    )
    engine.execute(f"INSERT INTO analytics.t VALUES {rows}")
    target = warehouse.describe("analytics.t", "p", ["id"], Reading(NEW_YORK))
    keys = [f"2024-11-03T{hour:02d}" for hour in range(24) if hour != 1] + ["2024-11-03T01-0400", "2024-11-03T01-0500"]
    partitions = [parse_key(key, Grain.HOUR, NEW_YORK) for key in keys]

    marks = warehouse.fingerprint(target, Published(), partitions)

    assert {key: mark.rows for key, mark in marks.items()} == dict.fromkeys(keys, 1)
