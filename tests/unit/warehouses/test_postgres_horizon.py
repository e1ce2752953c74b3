"""What was read before the table's lock is not read again with it, and nothing that was written in between is missed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from postgres_shop import (
    RANGE,
    Database,
    Shop,
    after,
    before_statement,
    clean_server,
    pytestmark,
    raised,
    transaction,
)

from airflow_backfill_provider.errors import StageChanged, TargetMoved
from airflow_backfill_provider.warehouses.postgres.horizon import Horizon

__all__ = ["clean_server", "pytestmark"]

LOCK = 'LOCK TABLE "analytics"."orders" IN SHARE ROW EXCLUSIVE MODE'
MOVE_A_PARTITION = """
BEGIN;
DELETE FROM analytics.orders WHERE id IN (25, 26);
ALTER TABLE analytics.orders ATTACH PARTITION aside FOR VALUES FROM ('2024-01-04') TO ('2024-01-05');
COMMIT
"""


def _locked(statements: list[str]) -> list[str]:
    """Those that ran while writers were kept out."""
    return statements[statements.index(LOCK) + 1 : statements.index("COMMIT", statements.index(LOCK))]


@pytest.mark.parametrize(("mechanism", "hashes"), [("replace_partitions", 0), ("merge", 1)])
def test_with_the_lock_no_row_is_hashed_again_but_those_that_a_merge_left(
    mechanism: str, hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create()
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    statements = before_statement(0, lambda session: None, monkeypatch)

    receipt = getattr(shop.warehouse, mechanism)(shop.target, publication)

    read = [sql for sql in _locked(statements) if "sum(h)" in sql]
    assert len(read) == hashes
    assert shop.amounts() == raised(old)
    assert timedelta() < receipt.write_block < timedelta(seconds=30)
    assert shop.warehouse.receipts(shop.target)[0].write_block is None


@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-03', 5, 'late')",
        "DELETE FROM analytics.orders WHERE id = 25",
        "UPDATE analytics.orders SET amount = 0 WHERE id = 25",
        "UPDATE analytics.orders SET day = CASE id WHEN 25 THEN DATE '2024-01-09' ELSE DATE '2024-01-03' END WHERE id IN (25, 95)",
        "BEGIN; SAVEPOINT a; UPDATE analytics.orders SET amount = 0 WHERE id = 25; RELEASE a; COMMIT",
        "BEGIN; CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT id, day, amount + 1, note FROM analytics.orders; "
        "DELETE FROM analytics.orders; INSERT INTO analytics.orders SELECT * FROM kept; COMMIT",
    ],
)
@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
def test_what_is_written_between_the_reading_and_the_lock_is_found(
    write: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create()
    publication = shop.publication(shop.stage(*RANGE))
    after("read", lambda: shop.database.execute(*write.split("; ")), monkeypatch)

    with pytest.raises(TargetMoved, match="2024-01-03"):
        getattr(shop.warehouse, mechanism)(shop.target, publication)

    assert shop.warehouse.receipts(shop.target) == ()


def test_a_write_beside_the_range_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create()
    publication = shop.publication(shop.stage(*RANGE))
    beside = "UPDATE analytics.orders SET amount = 0 WHERE day = '2024-01-09' OR day IS NULL"
    after("read", lambda: shop.database.execute(beside), monkeypatch)
    statements = before_statement(0, lambda session: None, monkeypatch)

    shop.warehouse.replace_partitions(shop.target, publication)

    assert not any("sum(h)" in sql for sql in _locked(statements))


def test_a_transaction_elsewhere_that_runs_for_long_makes_the_range_be_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop.create()
    with transaction(shop.database, "SELECT pg_current_xact_id()"):
        shop.database.execute("UPDATE analytics.orders SET note = 'new' WHERE id = 25")
        publication = shop.publication(shop.stage(*RANGE))
        old = shop.amounts()
        statements = before_statement(0, lambda session: None, monkeypatch)

        shop.warehouse.replace_partitions(shop.target, publication)

    assert sum("sum(h)" in sql for sql in _locked(statements)) == 1
    assert shop.amounts() == raised(old)


def test_as_many_rows_of_another_partition_are_not_taken_for_those_that_were_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = Database.create()
    columns = "id BIGINT, day DATE, amount BIGINT, note VARCHAR"
    database.execute(
        "CREATE SCHEMA analytics",
        f"CREATE TABLE analytics.orders ({columns}) PARTITION BY RANGE (day)",
        "CREATE TABLE early PARTITION OF analytics.orders FOR VALUES FROM ('2024-01-01') TO ('2024-01-04')",
        "INSERT INTO analytics.orders SELECT i, DATE '2024-01-01' + i / 10, i, 'n' FROM generate_series(0, 29) AS i",
        f"CREATE TABLE aside ({columns})",
        "INSERT INTO aside VALUES (1001, '2024-01-04', 1, 'old'), (1002, '2024-01-04', 1, 'old')",
    )
    shop = Shop.open(database)
    publication = shop.publication(shop.stage(*RANGE))
    after("read", lambda: database.execute(*MOVE_A_PARTITION.split(";\n")), monkeypatch)

    with pytest.raises(TargetMoved, match="2024-01-04"):
        shop.warehouse.replace_partitions(shop.target, publication)


def test_another_table_that_took_the_name_is_read_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create()
    shop.database.execute("CREATE TABLE analytics.other AS SELECT * FROM analytics.orders")
    publication = shop.publication(shop.stage(*RANGE))
    made = Horizon.__init__

    def then_renamed(horizon: Horizon, *given: Any) -> None:
        made(horizon, *given)
        shop.database.execute(
            "ALTER TABLE analytics.orders RENAME TO gone", "ALTER TABLE analytics.other RENAME TO orders"
        )

    monkeypatch.setattr(Horizon, "__init__", then_renamed)
    statements = before_statement(0, lambda session: None, monkeypatch)

    shop.warehouse.replace_partitions(shop.target, publication)

    assert sum("sum(h)" in sql for sql in _locked(statements)) == 1


def test_nobody_can_change_what_lands_once_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create()
    staged = shop.stage(*RANGE)
    publication = shop.publication(staged)
    old = shop.amounts()
    stage = f'safe_backfill_staging."{staged.partitions[0].location}"'
    refused: list[bool] = []

    def write() -> None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            shop.database.execute("SET lock_timeout = 50", f"UPDATE {stage} SET amount = 0")
        refused.append(True)

    after("read", write, monkeypatch)
    shop.warehouse.replace_partitions(shop.target, publication)

    assert refused
    assert shop.amounts() == raised(old)


def test_what_lands_is_held_against_the_validated_before_anybody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create()
    staged = shop.stage(*RANGE)
    publication = shop.publication(staged)
    shop.database.execute(
        f'UPDATE safe_backfill_staging."{staged.partitions[0].location}" SET amount = 0 WHERE id = 25'
    )
    statements = before_statement(0, lambda session: None, monkeypatch)

    with pytest.raises(StageChanged, match="2024-01-03"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert LOCK not in statements
