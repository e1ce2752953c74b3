"""What keeps PostgreSQL from doing more than it must: what the planner is told, and what need not be read at all."""

from __future__ import annotations

import psycopg
import pytest
from postgres_shop import RANGE, Database, Shop, before_statement, clean_server, pytestmark, raised
from stage_writing import write_one

from airflow_backfill_provider.errors import PublishRefused
from airflow_backfill_provider.warehouses.base import Staged

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


def test_a_write_into_a_stage_reads_nothing_of_what_was_staged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create(size=1_000)
    statements = before_statement(0, lambda session: None, monkeypatch)
    location = shop.stage(*RANGE).partitions[0].location

    named = [sql.split()[0] for sql in statements if f'"{location}"' in sql]
    assert named == ["CREATE", "COMMENT", "SELECT", *["WITH"] * 3, "ANALYZE"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", "i"),
        ("numeric(30,4)", "i + 0.0001"),
        ("numeric", "CASE WHEN i > 35 THEN 'NaN' ELSE i::numeric END"),
        ("date", "DATE '2000-01-01' + i"),
        ("timestamp", "TIMESTAMP '2000-01-01 00:00:00.000001' + i * INTERVAL '1 s'"),
        ("timestamptz", "TIMESTAMPTZ '2000-01-01 00:00:00.000001+03' + i * INTERVAL '1 s'"),
        ("text", "'Ä' || i"),
        ("uuid", "md5(i::text)::uuid"),
    ],
)  # fmt: skip
def test_every_staged_key_that_is_published_outside_the_range_is_found_whatever_its_type(kind: str, value: str) -> None:
    database = Database.create()
    database.execute(
        f"CREATE TABLE t (k {kind}, day date)",
        f"INSERT INTO t SELECT {value}, DATE '2024-01-01' + i / 10 FROM generate_series(0, 99) AS i",
        # The first and the last key of the range, on another day; one on no day.
        f"INSERT INTO t SELECT {value}, DATE '2024-01-09' FROM (VALUES (10), (39)) AS v (i)",
        f"INSERT INTO t SELECT {value}, NULL FROM (VALUES (20)) AS v (i)",
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "day", ["k"]))

    assert warehouse.key_conflicts(shop.target, _unchanged(shop)).outside == 3


def test_a_stage_without_any_key_conflicts_with_nothing() -> None:
    database = Database.create()
    database.execute(
        "CREATE TABLE t (k bigint, day date)", "INSERT INTO t VALUES (NULL, '2024-01-02'), (1, '2024-01-09')"
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "day", ["k"]))

    assert warehouse.key_conflicts(shop.target, _unchanged(shop)).outside == 0


@pytest.mark.parametrize(
    ("index", "spares"),
    [
        ("UNIQUE (k)", True),
        ("PRIMARY KEY (k)", True),
        ("UNIQUE (j, k) DEFERRABLE INITIALLY DEFERRED", True),
        ("UNIQUE (k, j, note)", False),
        ("UNIQUE (k, day)", False),
    ],
)
def test_the_table_is_not_read_for_keys_that_an_index_keeps_unique_and_that_stand_in_the_range(
    index: str, spares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.create()
    database.execute(
        f"CREATE TABLE t (k integer, j integer, day date, note text, {index})",
        "INSERT INTO t SELECT i, 1, DATE '2024-01-01' + i / 10, 'n' FROM generate_series(0, 99) AS i",
    )
    warehouse = database.warehouse()
    shop = Shop(database, warehouse, warehouse.describe("t", "day", ["k", "j"]))
    staged = _unchanged(shop)
    statements = before_statement(0, lambda session: None, monkeypatch)

    assert warehouse.key_conflicts(shop.target, staged, no_new_keys=True).outside == 0
    assert any('FROM "public"."t" AS r' in sql for sql in statements) is not spares
    assert warehouse.key_conflicts(shop.target, staged).outside == 0
    assert any('FROM "public"."t" AS r' in sql for sql in statements)


@pytest.mark.parametrize(("key", "searches"), [("PRIMARY KEY", 0), ("", 2)])
def test_no_writer_waits_for_a_search_through_the_table_where_an_index_keeps_keys_unique(
    key: str, searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(key=key)
    old, publication = shop.amounts(), shop.publication(shop.stage(*RANGE))
    statements = before_statement(0, lambda session: None, monkeypatch)

    assert shop.warehouse.replace_partitions(shop.target, publication).inserted == 30
    locked = next(number for number, sql in enumerate(statements) if "IN SHARE ROW EXCLUSIVE" in sql)
    deleted = next(number for number, sql in enumerate(statements) if sql.startswith("DELETE"))
    between = [sql for sql in statements[locked:deleted] if '"id"' in sql]
    assert len(between) == searches
    assert shop.amounts() == raised(old)


@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
@pytest.mark.parametrize("key", ["PRIMARY KEY", "UNIQUE DEFERRABLE INITIALLY DEFERRED", ""])
def test_a_key_that_stands_outside_the_range_is_refused_with_an_index_as_without(key: str, mechanism: str) -> None:
    shop = Shop.create(key=key)
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    shop.database.execute("DELETE FROM analytics.orders WHERE id = 15")
    shop.database.execute("INSERT INTO analytics.orders VALUES (15, '2024-01-09', 1, 'elsewhere')")
    publication = shop.publication(publication.rows, after=publication.after)

    with pytest.raises(PublishRefused, match=r"(?s)outside the .*nothing was written.*Find out which"):
        getattr(shop.warehouse, mechanism)(shop.target, publication)
    assert [row[1] for row in shop.amounts()] == [rows - (number == 0) for number, (_, rows, _) in enumerate(old)]
    assert shop.warehouse.receipts(shop.target) == ()


@pytest.mark.parametrize("index", ["(id) WHERE note = 'n1'", "(id, day)", "(id, abs(amount))"])
def test_an_index_that_lets_a_key_stand_twice_spares_nothing(index: str) -> None:
    shop = Shop.create()
    shop.database.execute(
        f"CREATE UNIQUE INDEX ON analytics.orders {index}", "UPDATE analytics.orders SET id = 25 WHERE id = 95"
    )

    assert shop.warehouse.key_conflicts(shop.target, shop.stage(*RANGE), no_new_keys=True).outside == 1


def test_an_index_that_could_not_be_built_spares_nothing() -> None:
    shop = Shop.create()
    shop.database.execute("UPDATE analytics.orders SET id = 25 WHERE id = 95")
    with pytest.raises(psycopg.errors.UniqueViolation):
        shop.database.execute("CREATE UNIQUE INDEX CONCURRENTLY ON analytics.orders (id)")

    assert shop.warehouse.key_conflicts(shop.target, shop.stage(*RANGE), no_new_keys=True).outside == 1


def _unchanged(shop: Shop) -> Staged:
    """The published rows of the range, as a stage of two locations."""
    staged = []
    for days in (RANGE[:1], RANGE[1:]):
        with shop.warehouse.open_stage(shop.target, "b1", "same") as stage:
            staged += [
                write_one(stage, day, f"SELECT * FROM {shop.target.table} WHERE day = '{day.key}'") for day in days
            ]
    return Staged(tuple(staged))
