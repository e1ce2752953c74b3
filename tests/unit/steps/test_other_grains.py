"""The whole life on tables that are not cut into UTC days: regions, months of a local zone, hours, integer dates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from contract_engines import DuckDB, Memory
from ledger_file import new_ledger
from steps_world import World, make_spec

from airflow_backfill_provider.errors import PartitionOverrun, RangeLocked, RequestError, SpecError, WarehouseError
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.tried import trial_of
from airflow_backfill_provider.windows import Value

REGIONAL = {"table": "analytics.sales", "partition_by": "region", "key": ["id"], "grain": "list"}
BY_REGION = "SELECT id, region, amount * 2 AS amount FROM raw.sales WHERE region = '{{ partition_value }}'"
MONTHLY = {
    "table": "analytics.sales",
    "partition_by": "sold_at",
    "key": ["id"],
    "grain": "month",
    "timezone": "America/New_York",
}
BY_INSTANT = (
    "SELECT id, sold_at, amount * 2 AS amount FROM raw.sales "
    "WHERE sold_at >= TIMESTAMP '{{ data_interval_start.to_datetime_string() }}' "
    "AND sold_at < TIMESTAMP '{{ data_interval_end.to_datetime_string() }}'"
)
DAILY_BY_NUMBER = {
    "table": "analytics.sales",
    "partition_by": "date_id",
    "key": ["id"],
    "column_format": "yyyymmdd",
    "timezone": "Asia/Tokyo",
}
BY_NUMBER = (
    "SELECT id, date_id, amount * 2 AS amount FROM raw.sales "
    "WHERE date_id = {{ data_interval_start.in_timezone('Asia/Tokyo') | ds_nodash }}"
)


@pytest.fixture(params=[DuckDB, Memory], ids=["duckdb", "memory"])
def empty_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """An engine with nothing in it, and a ledger."""
    engine = request.param()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        yield World(engine, warehouse, ledger)
    warehouse.close()


def fill(world: World, column: str, kind: str, values: list[Any]) -> None:
    """Two tables with one row for each value: the published amounts are half of what the transform gives."""
    if world.engine.name == "duckdb":
        world.engine.execute("CREATE SCHEMA IF NOT EXISTS raw")
    for table in ("analytics.sales", "raw.sales"):
        world.engine.execute(
            f"CREATE TABLE {table} (id BIGINT, {column} {world.engine.types[kind]}, amount BIGINT)",
            *(
                f"INSERT INTO {table} SELECT {number}, CAST({'NULL' if value is None else repr(value)} AS "
                f"{world.engine.types[kind]}), {number + 1}"
                for number, value in enumerate(values)
            ),
        )


def amounts(world: World) -> list[int]:
    return [amount for (amount,) in world.engine.rows("SELECT amount FROM analytics.sales ORDER BY id")]


def spec(target: dict[str, Any], sql: str, **changes: Any) -> Any:
    source = {"table": "raw.sales", "partition_by": target["partition_by"]} | (
        {"column_format": target["column_format"]} if "column_format" in target else {}
    )
    return make_spec(
        target=target,
        transform={"sql": sql},
        source=source,
        checks=[],
        compare=[{"row_count": {"against": "source", "max_abs_change": 0}}],
        **changes,
    )


def test_two_regions_are_rebuilt_and_restored_and_nothing_else(empty_world: World) -> None:
    world = empty_world
    fill(world, "region", "text", ["eu: west", "us", "eu: west", "asia", None])
    world.spec = spec(REGIONAL, BY_REGION)

    summary = world.run(partitions=["us", "eu: west"])

    assert summary.backfill.state is BackfillState.COMPLETED
    assert amounts(world) == [2, 4, 6, 4, 5]
    assert summary.plan.keys == ("eu: west", "us")
    assert summary.plan.source_rows == {"eu: west": 2, "us": 1}
    assert {key: record.span for key, record in world.ledger.partitions(world.id).items()} == {
        "eu: west": Value("eu: west"),
        "us": Value("us"),
    }
    world.rollback()
    assert amounts(world) == [1, 2, 3, 4, 5]


def test_a_list_plan_says_which_values_and_which_rows_are_in_none(empty_world: World) -> None:
    world = empty_world
    fill(world, "region", "text", ["eu", "us", None])
    world.spec = spec(REGIONAL, BY_REGION)

    plan = world.scope(mode="plan", partitions=["us", "eu"]).plan

    assert "2 values of region: eu, us" in preview(plan)
    assert "1 published rows have no region" in preview(plan)
    assert "region = 'eu'" in plan.first_sql
    assert not [line for line in plan.warnings if "partition_bound" in line]
    assert type(plan).from_document(plan.document()) == plan


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({"start_date": "2024-01-01", "end_date": "2024-01-02"}, "no date bounds"),
        ({"partitions": ["eu"], "exclude": ["us"]}, "does not hold"),
        ({"partitions": ["eu' OR '1'='1"]}, "cannot be a list partition"),
    ],
)
def test_a_request_that_does_not_fit_a_list_is_refused(empty_world: World, conf: dict[str, Any], told: str) -> None:
    world = empty_world
    fill(world, "region", "text", ["eu"])
    world.spec = spec(REGIONAL, BY_REGION)
    with pytest.raises(RequestError, match=told):
        world.scope(**conf)
    assert world.ledger.backfills() == []


def test_two_backfills_of_one_value_collide_and_of_different_values_do_not(empty_world: World) -> None:
    world = empty_world
    fill(world, "region", "text", ["eu", "us", "asia"])
    world.spec = spec(REGIONAL, BY_REGION)
    world.scope(partitions=["eu", "us"])
    owner, world.run_id = world.id, "run 2"
    with pytest.raises(RangeLocked, match="the value 'us'") as refused:
        world.scope(partitions=["us", "asia"])
    assert refused.value.owner == owner
    world.run_id = "run 3"
    assert world.run(partitions=["asia"]).backfill.state is BackfillState.COMPLETED


def test_sql_that_forgets_the_value_is_an_overrun_that_names_how_to_bound_it(empty_world: World) -> None:
    world = empty_world
    fill(world, "region", "text", ["eu", "us"])
    world.spec = spec(REGIONAL, "SELECT id, region, amount FROM raw.sales")
    scoped = world.scope(partitions=["eu"])
    assert any("no_partition_bound" in line and "partition_value" in line for line in scoped.plan.warnings)
    with pytest.raises(WarehouseError, match=r"1 of its 2 rows lie outside the value 'eu'") as failed:
        world.stage(scoped)
    assert isinstance(failed.value.__cause__, PartitionOverrun)
    assert amounts(world) == [1, 2]


def test_integer_tenants_are_a_list_too(empty_world: World) -> None:
    world = empty_world
    fill(world, "tenant", "integer", [7, 42, 42])
    target = REGIONAL | {"partition_by": "tenant"}
    world.spec = spec(target, BY_REGION.replace("region", "tenant").replace("'", ""))
    assert world.run(partitions=["42"]).rows_new == 2
    assert amounts(world) == [1, 4, 6]
    world.run_id = "run 2"
    with pytest.raises(SpecError, match=r"cannot be cut on tenant: partition eu: 'eu' is not a value of an integer"):
        world.scope(partitions=["eu"])


def test_months_of_a_local_zone_end_at_local_midnight(empty_world: World) -> None:
    world = empty_world
    inside = ["2024-03-01 05:00:00", "2024-04-01 03:59:59"]  # UTC, as the column shows it
    fill(world, "sold_at", "timestamp", ["2024-03-01 04:59:59", *inside, "2024-04-01 04:00:00", None])
    world.spec = spec(MONTHLY, BY_INSTANT)

    summary = world.run(start_date="2024-03", end_date="2024-03")

    assert summary.plan.keys == ("2024-03",)
    assert amounts(world) == [1, 4, 6, 4, 5]
    assert "1 of one month in America/New_York: 2024-03" in preview(summary.plan)
    assert "[2024-03-01T05:00:00Z, 2024-04-01T04:00:00Z)" in preview(summary.plan)


def test_days_written_as_numbers_are_days_of_the_zone(empty_world: World) -> None:
    world = empty_world
    fill(world, "date_id", "integer", [20240228, 20240229, 20240301, 20240302])
    world.spec = spec(DAILY_BY_NUMBER, BY_NUMBER)
    assert world.run(start_date="2024-02-29", end_date="2024-03-01").plan.source_rows == {
        "2024-02-29": 1,
        "2024-03-01": 1,
    }
    assert amounts(world) == [1, 4, 6, 4]


def test_a_date_in_utc_under_local_days_stages_nothing_wrong_and_is_warned_of(empty_world: World) -> None:
    world = empty_world
    fill(world, "date_id", "integer", [20240228, 20240229])
    world.spec = spec(DAILY_BY_NUMBER, BY_NUMBER.replace(".in_timezone('Asia/Tokyo')", ""))
    scoped = world.scope(start_date="2024-02-29", end_date="2024-02-29")
    assert any("utc_date" in line and "in_timezone('Asia/Tokyo')" in line for line in scoped.plan.warnings)
    with pytest.raises(WarehouseError, match="1 of its 1 rows lie outside"):
        world.stage(scoped)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({**DAILY_BY_NUMBER, "grain": "hour"}, "tells one day from the next"),
        ({**DAILY_BY_NUMBER, "column_format": "yyyymm"}, "tells one month from the next"),
    ],
)
def test_a_column_that_cannot_tell_the_partitions_apart_is_refused_before_anything_is_written(
    empty_world: World, target: dict[str, Any], told: str
) -> None:
    world = empty_world
    fill(world, "date_id", "integer", [20240229])
    world.spec = spec(target, BY_NUMBER)
    with pytest.raises(SpecError, match=rf"analytics.sales cannot be cut on date_id: partition .*{told}"):
        world.scope(start_date="2024-02-29", end_date="2024-02-29")
    assert world.ledger.backfills() == []


def test_a_source_that_cannot_be_cut_is_refused_by_its_name(empty_world: World) -> None:
    world = empty_world
    fill(world, "date_id", "integer", [20240229])
    document = spec(DAILY_BY_NUMBER, BY_NUMBER).model_dump(mode="json")
    document["source"]["column_format"] = "yyyymm"
    world.spec = type(world.spec).model_validate(document)
    with pytest.raises(SpecError, match=r"source raw.sales by date_id: .*tells one month"):
        world.scope(start_date="2024-02-29", end_date="2024-02-29")


def test_a_relative_range_is_frozen_and_a_resume_days_later_says_what_it_would_be_now(world: World) -> None:
    world.now = datetime(2024, 3, 8, 12, tzinfo=UTC)
    first = world.scope(start_date="-3d")
    assert first.plan.keys == ("2024-03-05", "2024-03-06", "2024-03-07")
    assert (first.plan.request.start_date, first.plan.request.end_date) == ("-3d", None)
    assert any("-3d to the last that is over was resolved to 2024-03-05 … 2024-03-07" in w for w in first.plan.warnings)
    world.now = datetime(2024, 3, 11, 12, tzinfo=UTC)

    again = world.scope(start_date="-3d")

    assert again.plan == first.plan
    assert "stays as it was planned, 2024-03-05 … 2024-03-07" in again.note
    assert "3 partitions up to 2024-03-10" in again.note


def test_an_edited_check_keeps_the_frozen_range_and_what_was_said_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("a planned range is never resolved anew, not even as of then")

    world.now = datetime(2024, 3, 8, 12, tzinfo=UTC)
    first = world.scope(start_date="-3d")
    world.stage(first)
    world.now = datetime(2024, 3, 11, 12, tzinfo=UTC)
    world.spec = make_spec(checks=[{"not_null": {"column": "note"}}])
    monkeypatch.setattr("airflow_backfill_provider.planning.resolve", forbidden)

    again = world.scope(start_date="-3d")

    assert again.plan.resolution == first.plan.resolution
    assert again.plan.request == first.plan.request
    assert set(first.plan.notes) <= set(again.plan.warnings)


def test_an_interrupted_list_backfill_goes_on_where_it_was(empty_world: World) -> None:
    world = empty_world
    fill(world, "region", "text", ["eu", "us"])
    world.spec = spec(REGIONAL, BY_REGION, compute={"conn_id": "warehouse", "partitions_per_task": 1})
    scoped = world.scope(partitions=["eu", "us"])
    world.stage(scoped)
    assert [result.reused for result in world.stage(scoped)] == [1, 1]
    world.validate(scoped)
    world.publish()
    assert conclude(world.work()).counts[PartitionState.PUBLISHED] == 2


def test_values_of_a_list_are_recomputed_one_by_one_even_with_scope_range(empty_world: World) -> None:
    world = empty_world
    fill(world, "region", "text", ["asia", "eu", "us"])
    document = spec(REGIONAL, BY_REGION).model_dump(mode="json")
    document["transform"]["scope"] = "range"
    world.spec = type(world.spec).model_validate(document)
    assert world.run(partitions=["asia", "eu", "us"]).backfill.state is BackfillState.COMPLETED
    assert amounts(world) == [2, 4, 6]


def test_a_value_of_a_list_is_tried_beside_its_neighbours_in_the_plan(empty_world: World) -> None:
    fill(empty_world, "region", "text", ["ap", "eu", "us", None])
    empty_world.spec = spec(REGIONAL, BY_REGION, trial={"partition": "eu"})
    scoped, before = empty_world.scope(partitions=["ap", "eu", "us"]), amounts(empty_world)
    assert empty_world.try_one().tried
    trial = trial_of(empty_world.ledger, scoped.plan)
    assert trial is not None
    assert trial.rehearsal.neighbours == ("ap", "us")
    assert amounts(empty_world) == before
