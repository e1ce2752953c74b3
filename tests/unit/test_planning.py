"""Planning without an engine's help, and with one: 200 real requests, and what a plan says of itself."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from math import ceil
from pathlib import Path

import pytest

from airflow_backfill_provider.batches import deal
from airflow_backfill_provider.errors import RequestError, SpecError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import build_plan
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.resolution import resolve
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.warehouses.memory import MemoryWarehouse
from airflow_backfill_provider.windows import Partition, Window, merge

REQUESTS = list(csv.DictReader(Path(__file__).with_name("requests.csv").read_text(encoding="utf-8").splitlines()))
SQL = (
    "SELECT id, day, amount FROM raw.a "
    "WHERE day >= DATE '{{ data_interval_start | ds }}' AND day < DATE '{{ data_interval_end | ds }}'"
)
NOW = datetime(2024, 6, 1, tzinfo=UTC)


def spec(**changes: object) -> BackfillSpec:
    document: dict[str, object] = {
        "name": "a",
        "target": {"table": "analytics.a", "partition_by": "day", "key": ["id"]},
        "transform": {"sql": SQL},
        "compute": {"conn_id": "c"},
    }
    return BackfillSpec.model_validate(document | changes)


@pytest.mark.parametrize("row", REQUESTS, ids=[f"{n}-{row['table']}" for n, row in enumerate(REQUESTS)])
def test_a_real_request_gives_the_right_days_tasks_and_bounds_without_the_day_being_written(
    row: dict[str, str],
) -> None:
    excluded = [day for day in row["excluded_dates"].replace(";", " ").replace(",", " ").split() if day]
    filed = date.fromisoformat(row["requested_on"])
    now = datetime(filed.year, filed.month, filed.day, 12, tzinfo=UTC)
    first, last = date.fromisoformat(row["start_date"]), date.fromisoformat(row["end_date"])
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    inside = [str(day) for day in days if str(day) in excluded]
    request = Request.from_conf({"start_date": str(first), "end_date": str(last), "exclude": inside})

    resolution = resolve(spec(), request, now)
    partitions, skipped = resolution.partitions, resolution.skipped

    assert [p.key for p in partitions] == [str(day) for day in days if day < filed and str(day) not in excluded]
    live = [skip.key for skip in skipped if skip.reason.startswith("not over")]
    assert live == [str(day) for day in days if day >= filed and str(day) not in excluded]
    assert len(partitions) + len(skipped) == len(days)
    midnights = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (first, last + timedelta(days=1))]
    assert resolution.span == Window(*midnights)
    assert [(span.start.date(), span.end.date()) for span in merge(partitions)] == runs_of(days, partitions)
    assert resolution.notes == ()

    batches = deal(partitions, max_concurrency=4, partitions_per_task="auto", estimated_seconds=0)
    sizes = [len(batch.keys) for batch in batches]
    assert [key for batch in batches for key in batch.keys] == [partition.key for partition in partitions]
    assert len(batches) == min(len(partitions), 4 * ceil(len(partitions) / 512))
    assert not sizes or max(sizes) - min(sizes) <= 1


def runs_of(days: list[date], partitions: Sequence[Partition]) -> list[tuple[date, date]]:
    """First day and day after the last of every unbroken run of planned days."""
    planned = {partition.key for partition in partitions}
    runs: list[tuple[date, date]] = []
    for day in days:
        following = day + timedelta(days=1)
        if str(day) in planned and runs and runs[-1][1] == day:
            runs[-1] = (runs[-1][0], following)
        elif str(day) in planned:
            runs.append((day, following))
    return runs


@pytest.fixture
def warehouse() -> MemoryWarehouse:
    made = MemoryWarehouse(
        {
            "analytics.a": {"id": "BIGINT", "day": "DATE", "amount": "BIGINT"},
            "raw.a": {"id": "BIGINT", "day": "DATE", "amount": "BIGINT"},
        }
    )
    made.insert("analytics.a", [{"id": n, "day": date(2024, 3, 1 + n % 3), "amount": n} for n in range(9)])
    made.insert("analytics.a", [{"id": 99, "day": None, "amount": 1}])
    return made


def plan(warehouse: MemoryWarehouse, of: BackfillSpec | None = None, strict: bool = False, **conf: object) -> Plan:
    request = Request.from_conf({"start_date": "2024-03-01", "end_date": "2024-03-03"} | conf)
    return build_plan(of or spec(), request, warehouse, backfill_id="0" * 12, now=NOW, strict=strict)


def test_a_plan_reads_back_from_the_ledgers_json_as_it_was(warehouse: MemoryWarehouse) -> None:
    made = plan(warehouse, reason="why", exclude=["2024-03-02"])
    again = Plan.from_document(made.document())
    assert again == made
    assert (again.plan_hash, again.intent_hash, again.spec_hash) == (made.plan_hash, made.intent_hash, made.spec_hash)


def test_the_intent_changes_with_the_sql_and_the_keys_and_with_nothing_else(warehouse: MemoryWarehouse) -> None:
    intent = plan(warehouse).intent_hash
    assert plan(warehouse, spec(checks=[{"not_null": {"column": "id"}}])).intent_hash == intent
    assert plan(warehouse, spec(compute={"conn_id": "d", "max_concurrency": 2})).intent_hash == intent
    assert plan(warehouse, spec(transform={"sql": SQL + " "})).intent_hash != intent
    assert plan(warehouse, end_date="2024-03-02").intent_hash != intent


def test_the_plan_hash_changes_with_the_published_rows_and_the_checks(warehouse: MemoryWarehouse) -> None:
    before = plan(warehouse)
    assert plan(warehouse).plan_hash == before.plan_hash
    assert plan(warehouse, spec(checks=[{"not_null": {"column": "id"}}])).plan_hash != before.plan_hash
    warehouse.insert("analytics.a", [{"id": 100, "day": date(2024, 3, 2), "amount": 1}])
    assert plan(warehouse).plan_hash != before.plan_hash
    assert plan(warehouse).intent_hash == before.intent_hash


def test_a_preview_says_everything_a_reviewer_needs(warehouse: MemoryWarehouse) -> None:
    text = preview(plan(warehouse, reason="refunds"))
    for words in (
        "3 of one day in UTC: 2024-03-01 … 2024-03-03",
        "[2024-03-01T00:00:00Z, 2024-03-04T00:00:00Z)",
        "9 published now",
        "two copies of the range",
        "rollback__a restores exactly these partitions",
        "Which range, on what evidence? [written]",
        "How do we validate? [default]",
        "1 published rows have no day",
        "The new rule may be wrong as well",
        "day >= DATE '2024-03-01' AND day < DATE '2024-03-02'",
    ):
        assert words in text, words


def test_a_strict_policy_refuses_a_default_answer_and_names_the_questions(warehouse: MemoryWarehouse) -> None:
    with pytest.raises(SpecError, match="How do we validate"):
        plan(warehouse, strict=True)
    full = spec(
        checks=[{"not_null": {"column": "id"}}],
        compute={"conn_id": "c", "max_concurrency": 2},
        rollback={"keep_for": "30d"},
    )
    assert plan(warehouse, full, strict=True, reason="refunds").partitions


def test_a_check_on_a_column_that_is_not_there_is_refused_naming_what_is(warehouse: MemoryWarehouse) -> None:
    with pytest.raises(SpecError, match=r"nosuch.*amount, day, id"):
        plan(warehouse, spec(checks=[{"not_null": {"column": "nosuch"}}]))


def test_more_than_five_at_once_is_warned_of(warehouse: MemoryWarehouse) -> None:
    assert any(
        "above 5" in line for line in plan(warehouse, spec(compute={"conn_id": "c", "max_concurrency": 6})).warnings
    )


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"start_date": "2024-03-03", "end_date": "2024-03-01"}, "range is empty"),
        ({"exclude": ["2024-04-01"]}, "does not hold"),
        ({"start_date": "2024-03-01T05:00:00+00:00"}, "not the start of a day"),
    ],
)
def test_a_range_that_cannot_be_planned_is_refused(
    warehouse: MemoryWarehouse, conf: dict[str, object], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        plan(warehouse, **conf)


def test_a_datetime_as_end_is_exclusive_and_a_date_inclusive(warehouse: MemoryWarehouse) -> None:
    assert len(plan(warehouse, start_date="2024-03-01", end_date="2024-03-03").partitions) == 3
    until = plan(warehouse, start_date="2024-03-01T00:00:00+00:00", end_date="2024-03-03T00:00:00+00:00")
    assert len(until.partitions) == 2


def test_a_dimension_read_as_it_is_today_is_warned_of_whose_columns_only_the_warehouse_knows(
    warehouse: MemoryWarehouse,
) -> None:
    warehouse.create_table("dim.c", {"c_id": "BIGINT", "valid_from": "DATE", "valid_to": "DATE"})
    joined = (
        "SELECT a.id, a.day, a.amount FROM raw.a AS a JOIN dim.c AS c ON a.id = c.c_id WHERE "
        + SQL.partition("WHERE ")[2]
    )

    today = plan(warehouse, spec(transform={"sql": joined + " AND c.valid_to IS NULL"})).warnings
    then = plan(
        warehouse, spec(transform={"sql": joined + " AND c.valid_from <= a.day AND a.day < c.valid_to"})
    ).warnings

    assert [line for line in today if line.endswith("[as_of_today]")] == [
        "line 1: reads dim.c AS c, which keeps its own history, and compares valid_from with no time of the row: this "
        "rewrites history as of today. Join the version that was valid then, such as valid_from <= the row's time "
        "[as_of_today]"
    ]
    assert not [line for line in then if "as_of_today" in line]


def test_a_plan_whose_commit_would_keep_writers_out_for_too_long_is_refused_naming_the_unit_that_would_not(
    warehouse: MemoryWarehouse,
) -> None:
    rate = warehouse.capabilities.replaced_per_second
    assert rate is not None
    warehouse.insert(
        "analytics.a",
        [{"id": 10_000 + n, "day": date(2024, 3, 1 + n % 28), "amount": 1} for n in range(rate // 100)],
    )
    wanted = {"start_date": "2024-02-01", "end_date": "2024-03-31"}
    of_the_range = plan(warehouse, **wanted).write_block
    assert of_the_range >= timedelta(milliseconds=10)
    assert f"write-block about {of_the_range.total_seconds():,.1f} s" in preview(plan(warehouse, **wanted))

    for limit, told in (("0.9", "publish.unit: week"), ("0.01", "No unit is short enough")):
        seconds = of_the_range.total_seconds() * float(limit)
        with pytest.raises(SpecError, match=told):
            plan(warehouse, spec(publish={"max_write_block": f"PT{seconds:.6f}S"}), **wanted)
    assert plan(warehouse, spec(publish={"max_write_block": "1h"}), **wanted).partitions
    by_day = plan(warehouse, spec(publish={"unit": "day", "max_write_block": "1h"}), **wanted)
    assert by_day.write_block < of_the_range / 10


def test_rows_that_the_source_has_beyond_the_published_ones_count_for_the_write_block(
    warehouse: MemoryWarehouse,
) -> None:
    few = plan(warehouse, start_date="2024-01-01", end_date="2024-01-02")
    many = few.model_copy(update={"source_rows": {"2024-01-01": 10 * (few.replaced_per_second or 0)}})
    assert many.write_block >= timedelta(seconds=10)
    assert many.model_copy(update={"replaced_per_second": None}).write_block == timedelta(0)
