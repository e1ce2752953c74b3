"""PostgreSQL behind a pooler in transaction mode, where the next transaction may be served by another connection.

It has fewer connections to the server than there are clients, so what a call left in one would meet the next call.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pooler
import psycopg
import pytest
from contract_engines import Postgres
from postgres_shop import RANGE, Database, Shop, after, beside, clean_server, corrected, days, raised, transaction
from stage_writing import write_one
from steps_world import DAYS, World, fill

from airflow_backfill_provider.errors import BackfillError, LockTimeout
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.warehouses.base import Action, Published, Recompute, Staged
from airflow_backfill_provider.warehouses.postgres import PostgresWarehouse

__all__ = ["clean_server"]

pytestmark = pytest.mark.skipif(not pooler.is_installed(), reason=pooler.NEEDS)
SETTINGS = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name' ORDER BY name"
LEFT = (
    "SELECT 'statement', name FROM pg_prepared_statements "
    "UNION ALL SELECT 'cursor', name FROM pg_cursors "
    "UNION ALL SELECT 'channel', c FROM pg_listening_channels() AS t(c) "
    "UNION ALL SELECT 'lock', mode FROM pg_locks WHERE locktype = 'advisory' "
    "UNION ALL SELECT 'table', relname FROM pg_class WHERE relpersistence = 't'"
)


@pytest.fixture(params=[1, 2], ids=lambda size: f"{size} connections")
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def behind(shop: Shop, address: dict[str, Any], **settings: Any) -> Shop:
    """The same table, reached through a pooler."""
    return Shop.open(Database(shop.database.name, address, shop.database.opened), **settings)


def left_behind(address: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What there is in a connection of the pooler beside what a new one has."""
    with psycopg.connect(**address, autocommit=True, prepare_threshold=None) as connection:
        return connection.execute(SETTINGS).fetchall() + connection.execute(LEFT).fetchall()


def test_a_whole_backfill_with_its_ledger_goes_through_and_leaves_nothing_in_the_connections(
    size: int, tmp_path: Path
) -> None:
    engine = Postgres()
    engine.create(tmp_path).close()
    fill(engine)
    engine.execute("CREATE DATABASE ledger_of_" + engine.database)
    with (
        pooler.pooled(engine.database, size=size) as address,
        pooler.pooled("ledger_of_" + engine.database, size=size) as of_ledger,
    ):
        fresh = left_behind(address)
        warehouse = PostgresWarehouse(lambda: psycopg.connect(**address))
        url = f"postgresql+psycopg://{of_ledger['user']}@127.0.0.1:{of_ledger['port']}/{of_ledger['dbname']}"
        with Ledger(url) as ledger:
            ledger.upgrade()
            world = World(engine, warehouse, ledger)
            old, outside = world.published(), world.outside()

            summary = world.run()

            assert summary.backfill.state is BackfillState.COMPLETED
            assert len([row for row in world.published() if row[2] is None]) == len(DAYS)
            assert world.outside() == outside
            world.rollback()
            assert world.published() == old
            assert not world.rollback().restored
            target = warehouse.describe("analytics.orders", "order_date", ["order_id"])
            assert [one.action for one in warehouse.receipts(target)] == [Action.PUBLISH, Action.ROLLBACK]
        warehouse.close()
        assert left_behind(address) == fresh
        assert left_behind(of_ledger) == fresh


def test_whatever_a_call_ends_in_it_leaves_nothing_in_the_connection_that_the_next_client_gets(size: int) -> None:
    direct = Shop.create(key="PRIMARY KEY")
    with pooler.pooled(direct.database.name, size=size) as address:
        fresh = left_behind(address)
        shop = behind(direct, address, lock_timeout=timedelta(seconds=1), statement_timeout=timedelta(seconds=20))

        def staged_badly() -> None:
            with shop.warehouse.open_stage(shop.target, "b1", "bad") as stage:
                write_one(stage, RANGE[0], "SELECT 1/0 AS id, DATE '2024-01-02' AS day, 1 AS amount, '' AS note")

        calls: dict[str, Any] = {
            "bound": lambda: shop.warehouse.select_columns("SELECT 1 AS a"),
            "not bound": lambda: shop.warehouse.select_columns("SELECT nonsense"),
            "staged badly": staged_badly,
            "backed up": lambda: shop.warehouse.back_up(shop.target, "b1", RANGE, label="x"),
            "published": lambda: shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE))),
            "merged": lambda: shop.warehouse.merge(shop.target, shop.publication(shop.stage(*RANGE))),
            "refused": lambda: shop.warehouse.replace_partitions(
                shop.target,
                shop.publication(
                    shop.stage(*RANGE), before=shop.warehouse.fingerprint(shop.target, Published(), days(5, 6, 7))
                ),
            ),
            "compared": lambda: shop.warehouse.compare(shop.target, Published(), shop.stage(*RANGE), RANGE),
            "dropped": lambda: [shop.warehouse.drop(item.location) for item in shop.warehouse.storage()],
        }
        failed = set()
        for name, call in calls.items():
            try:
                call()
            except BackfillError:
                failed.add(name)
            assert left_behind(address) == fresh, name
        assert failed == {"not bound", "staged badly", "refused"}
        with transaction(direct.database, "LOCK TABLE analytics.orders IN SHARE MODE"):
            with pytest.raises(LockTimeout):
                shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
        assert left_behind(address) == fresh


def test_more_workers_than_the_pooler_has_connections_stage_and_publish_their_own_days() -> None:
    direct = Shop.create(size=50)
    outside = direct.rows("SELECT * FROM analytics.orders WHERE day IS NULL OR day = '2024-01-10'")
    groups = [days(number) for number in range(1, 7)]
    errors: list[BaseException] = []
    with pooler.pooled(direct.database.name, size=2) as address:

        def work(number: int) -> None:
            try:
                shop = behind(direct, address)
                with shop.warehouse.open_stage(shop.target, f"b{number}", "batch-1") as stage:
                    (staged,) = stage.write(Recompute(groups[number], corrected(groups[number][0])))
                marks = {staged.partition.key: staged.fingerprint}
                before = shop.fingerprint(*groups[number])
                publication = shop.publication(Staged((staged,)), groups[number], before=before, after=marks)
                shop.warehouse.replace_partitions(shop.target, publication)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(groups))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert errors == []
    assert direct.rows(
        "SELECT count(*), count(*) FILTER (WHERE amount = id + 1), count(*) FILTER (WHERE amount = id) FROM analytics.orders WHERE id >= 0"
    ) == [(500, 300, 200)]
    assert direct.rows("SELECT * FROM analytics.orders WHERE day IS NULL OR day = '2024-01-10'") == outside
    assert [one.sequence for one in direct.warehouse.receipts(direct.target)] == [1, 2, 3, 4, 5, 6]


def test_who_watches_for_blockers_never_holds_up_a_publish_that_has_the_only_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    direct = Shop.create()
    old = direct.amounts()
    with pooler.pooled(direct.database.name, size=1, patience=20) as address:
        shop = behind(direct, address, lock_timeout=timedelta(seconds=1))
        publication = shop.publication(shop.stage(*RANGE))
        # As a large range would: longer than the watch waits before it looks.
        after("insert", lambda: time.sleep(1), monkeypatch)
        started = time.monotonic()

        shop.warehouse.replace_partitions(shop.target, publication)

        assert time.monotonic() - started < 10
    assert direct.amounts() == raised(old)


def test_a_cancel_ends_the_statement_behind_the_pooler() -> None:
    direct = Shop.create()
    slow = "SELECT id, day, amount, note FROM analytics.orders, pg_sleep(30) WHERE day = DATE '2024-01-02'"
    with pooler.pooled(direct.database.name, size=2) as address:
        shop = behind(direct, address)

        def stage() -> None:
            with shop.warehouse.open_stage(shop.target, "b1", "slow") as stage:
                write_one(stage, RANGE[0], slow)

        running = "SELECT 1 FROM pg_stat_activity WHERE query ~ '^WITH landed.*pg_sleep' AND state = 'active'"
        with beside(stage) as outcome:
            while not direct.rows(running):
                time.sleep(0.02)
            started = time.monotonic()
            shop.warehouse.cancel()
        assert time.monotonic() - started < 5
        assert "was cancelled" in str(outcome[0])
        assert direct.rows(running) == []
        assert shop.warehouse.storage() == ()
