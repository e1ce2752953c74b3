"""The copy that a trial rehearses on, on PostgreSQL's own kinds of tables."""

from __future__ import annotations

import pytest
from postgres_shop import Database, clean_server, day, days, pytestmark

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.warehouses.base import Action, Publication, Published, Recompute, Staged

__all__ = ["clean_server", "pytestmark"]

RICH = """
CREATE SCHEMA analytics;
CREATE TYPE analytics.mood AS ENUM ('good', 'bad');
CREATE TABLE analytics.customers (id BIGINT PRIMARY KEY);
INSERT INTO analytics.customers VALUES (1);
CREATE TABLE analytics.orders (
    id BIGINT GENERATED ALWAYS AS IDENTITY, day DATE NOT NULL, amount NUMERIC(10, 2) CHECK (amount >= 0),
    doubled NUMERIC GENERATED ALWAYS AS (amount * 2) STORED, customer BIGINT REFERENCES analytics.customers,
    mood analytics.mood, number SERIAL, "odd "" name" TEXT, UNIQUE (id, day)
) PARTITION BY RANGE (day);
CREATE TABLE analytics.orders_all PARTITION OF analytics.orders FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
INSERT INTO analytics.orders (day, amount, customer, mood)
    SELECT DATE '2024-01-01' + i / 3, i, 1, 'good' FROM generate_series(0, 29) AS t(i);
"""
LEFT = (
    "SELECT relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE nspname = 'safe_backfill_staging' AND relkind = 'r' AND relname LIKE 'shadow%'"
)


def test_a_partitioned_table_with_identity_generated_columns_and_references_is_rehearsed() -> None:
    database = Database.create()
    database.execute(RICH)
    warehouse = database.warehouse()
    target = warehouse.describe("analytics.orders", "day", ["id"])
    select = (
        'SELECT id, day, amount + 1 AS amount, customer, mood, number, "odd "" name" FROM analytics.orders '
        "WHERE day = DATE '2024-01-03'"
    )
    with warehouse.open_stage(target, "b1", "x") as writer:
        (staged,) = writer.write(Recompute(days(3), select))
    before = database.rows("SELECT * FROM analytics.orders ORDER BY id")
    with warehouse.open_shadow(target, "b1", days(2, 3, 4)) as shadow:
        original = shadow.warehouse.fingerprint(shadow.target, Published(), days(2, 3, 4))
        assert original == warehouse.fingerprint(target, Published(), days(2, 3, 4))
        forth = Publication(
            "b1",
            Action.PUBLISH,
            "p1",
            days(3),
            Staged((staged,)),
            {day(3).key: original[day(3).key]},
            {day(3).key: staged.fingerprint},
        )
        assert shadow.warehouse.replace_partitions(shadow.target, forth).inserted == 3
        found = shadow.warehouse.fingerprint(shadow.target, Published(), days(2, 3, 4))
        assert found == {**original, day(3).key: staged.fingerprint}
        assert [receipt.backfill_id for receipt in shadow.warehouse.receipts(shadow.target)] == ["b1"]
        assert warehouse.receipts(target) == ()
        assert len(database.rows(LEFT)) == 2, "the copy, and its own receipts"
    assert database.rows(LEFT) == []
    assert database.rows("SELECT * FROM analytics.orders ORDER BY id") == before


def test_published_rows_that_no_rollback_could_put_back_are_found_before_the_publish() -> None:
    database = Database.create()
    database.execute(
        "CREATE SCHEMA analytics; CREATE TABLE analytics.orders (id BIGINT, day DATE, amount BIGINT);"
        "INSERT INTO analytics.orders VALUES (1, DATE '2024-01-02', -5);"
        "ALTER TABLE analytics.orders ADD CONSTRAINT positive CHECK (amount >= 0) NOT VALID"
    )
    warehouse = database.warehouse()
    target = warehouse.describe("analytics.orders", "day", ["id"])
    with (
        pytest.raises(PublishRefused, match="so no rollback could put them back"),
        warehouse.open_shadow(target, "b1", days(2)),
    ):
        pytest.fail("there is no such copy")
    assert database.rows(LEFT) == []
