"""Who is sent what a publish does to a table, and what it leaves in it."""

from __future__ import annotations

import pytest
from partitioned_shop import partitioned
from postgres_shop import RANGE, Shop, clean_server, pytestmark

from airflow_backfill_provider.errors import SpecError

__all__ = ["clean_server", "pytestmark"]


def test_subscribers_are_named_and_are_sent_what_was_said() -> None:
    shop = Shop.create(key="PRIMARY KEY")
    slot = f"cdc_{shop.database.name}"
    shop.database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    try:
        assert [slot in line for line in shop.warehouse.reader_cautions(shop.target)] == [True]
        shop.database.execute(
            "CREATE PUBLICATION sales FOR TABLE analytics.orders",
            "CREATE PUBLICATION news FOR TABLES IN SCHEMA analytics WITH (publish = 'insert')",
        )
        publication = shop.publication(shop.stage(*RANGE))
        shop.rows(f"SELECT count(*) FROM pg_logical_slot_get_changes('{slot}', NULL, NULL)")

        sent, incomplete, read = shop.warehouse.reader_cautions(shop.target)
        shop.warehouse.replace_partitions(shop.target, publication)

        changes = shop.rows(
            f"SELECT xid::text, split_part(data, ' ', 3) FROM pg_logical_slot_get_changes('{slot}', NULL, NULL) "
            "WHERE data LIKE 'table analytics.orders:%'"
        )
    finally:
        shop.database.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    assert "(publication news, sales)" in sent
    assert "one transaction that deletes every row of the range and inserts those that land" in sent
    assert (
        "Publication news does not send deletes, so its subscribers would keep the old rows beside the new"
        in incomplete
    )
    assert f"{slot} (test_decoding, not read now)" in read
    assert len({xid for xid, _ in changes}) == 1
    assert [what for _, what in changes] == ["DELETE:"] * 30 + ["INSERT:"] * 30


def test_nobody_is_said_to_be_sent_a_table_that_nobody_is_sent() -> None:
    shop = Shop.create()
    shop.database.execute(
        "CREATE TABLE analytics.others (id BIGINT)", "CREATE PUBLICATION p FOR TABLE analytics.others"
    )

    assert shop.warehouse.reader_cautions(shop.target) == ()


@pytest.mark.parametrize("through", ["analytics.orders", "analytics.orders_2"])
def test_a_publication_is_found_on_the_table_and_on_its_parts_and_needs_a_replica_identity(through: str) -> None:
    shop = partitioned()
    shop.database.execute(f"CREATE PUBLICATION sales FOR TABLE {through}")

    assert "(publication sales)" in shop.warehouse.reader_cautions(shop.target)[0]
    with pytest.raises(
        SpecError, match=r"publication sales sends deletes of analytics\.orders_2.*REPLICA IDENTITY FULL"
    ):
        Shop.open(shop.database)
    shop.database.execute(
        *(
            f"ALTER TABLE analytics.{name} REPLICA IDENTITY FULL"
            for name in ("orders_1", "orders_2", "orders_3", "orders_rest")
        )
    )
    Shop.open(shop.database).warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))


def test_the_dead_rows_of_a_publish_are_counted_and_autovacuum_or_a_person_takes_them_away() -> None:
    shop = Shop.create()
    shop.database.execute("ALTER TABLE analytics.orders SET (autovacuum_vacuum_scale_factor = 0)")

    def needed(deleted: int) -> str:
        (sentence,) = shop.warehouse.upkeep(shop.target, deleted=deleted)
        return sentence

    assert shop.warehouse.upkeep(shop.target, deleted=0) == ()
    few, many = needed(30), needed(60)
    assert "up to 30, in" in few
    assert (
        "count 0 dead rows now. Autovacuum comes from 50 on, so it may not come for them: run VACUUM (ANALYZE)" in few
    )
    assert "Autovacuum comes from 50 on, so it is due" in many
    shop.database.execute(
        "ALTER TABLE analytics.orders SET (autovacuum_vacuum_threshold = 1000)",
        "DELETE FROM analytics.orders WHERE id < 20; SELECT pg_stat_force_next_flush()",
    )
    assert "count 21 dead rows now. Autovacuum comes from 1,000 on" in needed(60)
    shop.database.execute("ALTER TABLE analytics.orders SET (autovacuum_enabled = off)")
    assert "Autovacuum is off for it, so nothing takes them away until you run VACUUM (ANALYZE)" in needed(60)


def test_the_parts_of_a_table_are_vacuumed_one_by_one_and_the_whole_is_never_analyzed() -> None:
    shop = partitioned()

    (sentence,) = shop.warehouse.upkeep(shop.target, deleted=30)

    assert 'never analyzes the table as a whole: run ANALYZE "analytics"."orders"' in sentence
