"""What the planner is told: without it, it loops over a stage of many rows as if it had few."""

from __future__ import annotations

from postgres_shop import RANGE, Shop, clean_server, pytestmark

__all__ = ["clean_server", "pytestmark"]


def test_the_planner_knows_how_many_rows_a_stage_and_a_backup_have_as_soon_as_they_are_there() -> None:
    shop = Shop.create(size=1_000)
    stage = shop.stage(*RANGE).partitions[0].location
    backup, _ = shop.warehouse.back_up(shop.target, "b1", RANGE, label="x")

    found = shop.rows(
        f"SELECT relname, reltuples::bigint FROM pg_class WHERE relname IN ('{stage}', '{backup.location}') ORDER BY 1"
    )
    assert found == [(backup.location, 3_000), (stage, 3_000)]
    columns = f"SELECT count(*) FROM pg_stats WHERE tablename = '{stage}' AND attname IN ('id', 'day')"
    assert shop.rows(columns) == [(2,)]
