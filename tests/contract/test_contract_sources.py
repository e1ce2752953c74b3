"""Sources pinned by version: read again as they were, or said to be gone."""

from __future__ import annotations

import pytest
from contract_world import World, day, row_sql

from airflow_backfill_provider.errors import VersionGone, WarehouseError
from airflow_backfill_provider.spec.metric import ROWS
from airflow_backfill_provider.warehouses.base import Recompute, Source, StagedPartition, Versions

DAY = "2024-01-02"
LATER = (99, DAY, "late", "1.00", None, "2024-01-02 10:00:00")


@pytest.fixture
def pinned(orders: World) -> Versions:
    """The versions of what the transform reads, before somebody adds a row to the day."""
    versions = orders.warehouse.source_versions([orders.select(DAY)], ["analytics.orders", "analytics.nothing"])
    orders.engine.execute(f"INSERT INTO analytics.orders {row_sql(LATER)}")
    return versions


@pytest.fixture
def kept(orders: World, pinned: Versions) -> Versions:
    if "versions" in orders.engine.lacks:
        pytest.skip("the engine keeps no versions of its tables")
    return pinned


def stage(world: World, select: str, versions: Versions) -> StagedPartition:
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        (staged,) = writer.write(Recompute((day(DAY),), select, versions=versions))
    return staged


def test_a_table_has_a_version_exactly_where_the_engine_keeps_some(orders: World, pinned: Versions) -> None:
    assert set(pinned) == (set() if "versions" in orders.engine.lacks else {"analytics.orders"})
    orders.warehouse.require_versions(pinned)


def test_a_transform_reads_the_pinned_version_whatever_was_written_since(orders: World, kept: Versions) -> None:
    assert stage(orders, orders.select(DAY), kept).fingerprint.rows == 3
    assert stage(orders, orders.select(DAY), {}).fingerprint.rows == 4


def test_one_stage_may_read_two_versions_one_after_the_other(orders: World, kept: Versions) -> None:
    latest = orders.warehouse.source_versions([orders.select(DAY)], [])

    with orders.warehouse.open_stage(orders.target, "b1", "batch-1") as writer:
        for versions, rows in ((kept, 3), (latest, 4), (kept, 3)):
            (staged,) = writer.write(Recompute((day(DAY),), orders.select(DAY), versions=versions))
            assert staged.fingerprint.rows == rows


def test_published_rows_that_are_kept_are_the_latest_ones(orders: World, kept: Versions) -> None:
    with orders.warehouse.open_stage(orders.target, "b1", "batch-1") as writer:
        (staged,) = writer.write(Recompute((day(DAY),), orders.select(DAY), keep_unmatched=True, versions=kept))

    assert staged.fingerprint == orders.fingerprint(DAY)[DAY]


def test_a_source_is_measured_at_the_pinned_version(orders: World, kept: Versions) -> None:
    for versions, rows in ((kept, 3), ({}, 4)):
        source = Source("analytics.orders", "order_date", versions=versions)
        assert orders.warehouse.measure(orders.target, source, [day(DAY)], [ROWS]) == {DAY: {ROWS: rows}}


def test_a_table_that_the_plan_has_no_version_of_is_not_read_as_it_happens_to_be(orders: World, kept: Versions) -> None:
    orders.engine.execute("CREATE TABLE analytics.extra (x BIGINT)")

    with pytest.raises(WarehouseError, match=r"analytics\.extra"):
        stage(orders, f"{orders.select(DAY)} AND order_id NOT IN (SELECT x FROM analytics.extra)", kept)
    assert orders.warehouse.storage() == ()


def test_a_version_that_never_was_is_named_with_its_table(orders: World, kept: Versions) -> None:
    with pytest.raises(VersionGone, match=r"analytics\.orders can no longer be read at version 99"):
        orders.warehouse.require_versions({"analytics.orders": 99})
    with pytest.raises(VersionGone, match=r"analytics\.nothing"):
        orders.warehouse.require_versions({"analytics.nothing": 0})
