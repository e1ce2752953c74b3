"""Publishing into PostgreSQL while others write the table: between any two steps, before the first, two at once."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from postgres_shop import (
    AMOUNTS,
    MERGE_STEPS,
    RANGE,
    STEPS,
    Database,
    Shop,
    after,
    beside,
    clean_server,
    days,
    process,
    pytestmark,
    raised,
    transaction,
)

from airflow_backfill_provider.errors import PublishRefused, TargetMoved
from airflow_backfill_provider.warehouses.base import Published
from airflow_backfill_provider.warehouses.relational import compare

__all__ = ["clean_server", "pytestmark"]

APPEND = "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-03', 5, 'late')"
DELETE = "DELETE FROM analytics.orders WHERE id = 25"
UPDATE = "UPDATE analytics.orders SET amount = 0 WHERE id = 25"
RACES = [*(("replace_partitions", step) for step in STEPS), *(("merge", step) for step in MERGE_STEPS)]


@pytest.fixture
def shop() -> Shop:
    return Shop.create(lock_timeout=timedelta(seconds=20))


@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
@pytest.mark.parametrize(("mechanism", "step"), RACES)
def test_a_writer_at_any_step_waits_for_the_commit_and_is_not_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, mechanism: str, step: str, write: str
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    waited: list[bool] = []

    def race() -> None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            shop.database.execute("SET lock_timeout = 50", write)
        waited.append(True)

    after(step, race, monkeypatch)
    getattr(shop.warehouse, mechanism)(shop.target, publication)
    assert waited
    assert shop.amounts() == raised(old)
    shop.database.execute(write)

    changed = {APPEND: (11, 5), DELETE: (9, -26), UPDATE: (10, -26)}[write]
    assert shop.amounts()[1][1:] == (changed[0], raised(old)[1][2] + changed[1])


@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
def test_a_write_that_commits_while_the_publish_waits_for_it_is_found(shop: Shop, write: str, mechanism: str) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    with (
        transaction(shop.database, write) as writer,
        beside(lambda: getattr(shop.warehouse, mechanism)(shop.target, publication)) as published,
    ):
        while not shop.database.rows("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"):
            time.sleep(0.02)
        writer.commit()
    found = shop.amounts()

    assert isinstance(published[0], TargetMoved)
    assert list(published[0].moved) == ["2024-01-03"]
    assert shop.amounts() == found
    assert shop.warehouse.receipts(shop.target) == ()


@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
def test_a_write_after_the_baseline_is_refused_naming_the_partition(shop: Shop, write: str) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.database.execute(write)
    found = shop.amounts()

    with pytest.raises(TargetMoved, match="2024-01-03") as refused:
        shop.warehouse.replace_partitions(shop.target, publication)

    assert list(refused.value.moved) == ["2024-01-03"]
    assert shop.amounts() == found
    assert shop.warehouse.receipts(shop.target) == ()


def test_a_write_outside_the_range_does_not_stop_the_publish(shop: Shop) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.database.execute("INSERT INTO analytics.orders VALUES (999, DATE '2024-01-09', 5, 'beside')")
    outside = shop.outside()

    shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.outside() == outside


PUBLISH = """
shop = Shop.open(database)
publication = shop.publication(shop.stage(*{range}), {range})
print('ready', flush=True)
sys.stdin.readline()
try:
    shop.warehouse.{mechanism}(shop.target, publication)
    print('published', flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def _together(database: Database, *bodies: str) -> list[str]:
    """What processes print that were let go at the same moment."""
    with ExitStack() as stack:
        children = [stack.enter_context(process(database, body)) for body in bodies]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        return sorted(child.communicate(timeout=90)[0].strip() for child in children)


@pytest.mark.parametrize("mechanism", ["replace_partitions", "merge"])
def test_two_publishers_of_one_range_without_a_unique_key_publish_once(mechanism: str) -> None:
    shop = Shop.create(size=2_000)
    old = shop.amounts()

    results = _together(shop.database, *[PUBLISH.format(range="RANGE", mechanism=mechanism)] * 2)

    assert results == ["TargetMoved", "published"]
    assert shop.amounts() == raised(old)
    assert len(shop.warehouse.receipts(shop.target)) == 1


def test_two_backfills_of_different_ranges_of_one_table_both_publish_on_an_empty_database() -> None:
    shop = Shop.create(size=2_000)
    old = shop.fingerprint(*days(1, 2, 3, 4, 5, 6, 7))
    total = shop.rows("SELECT count(*), sum(amount) FROM analytics.orders")[0]

    results = _together(
        shop.database,
        *(PUBLISH.format(range=f"days{chosen}", mechanism="replace_partitions") for chosen in ((2, 3), (5, 6))),
    )

    assert results == ["published", "published"]
    assert shop.rows("SELECT count(*), sum(amount) FROM analytics.orders")[0] == (total[0], total[1] + 8_000)
    assert [receipt.sequence for receipt in shop.warehouse.receipts(shop.target)] == [1, 2]
    new = shop.fingerprint(*days(1, 2, 3, 4, 5, 6, 7))
    assert [key for key in old if old[key] != new[key]] == ["2024-01-02", "2024-01-03", "2024-01-05", "2024-01-06"]


def test_eight_first_stagers_at_once_each_keep_their_own_rows() -> None:
    shop = Shop.create()
    body = """
shop = Shop.open(database)
print('ready', flush=True)
sys.stdin.readline()
try:
    print(shop.stage(day({day})).partitions[0].location, flush=True)
except Exception as error:
    print('error', error, flush=True)
"""

    locations = _together(shop.database, *(body.format(day=number) for number in range(1, 9)))

    assert len(set(locations)) == 8
    assert sorted(item.location for item in shop.warehouse.storage()) == locations
    staged = [shop.rows(f'SELECT DISTINCT day FROM safe_backfill_staging."{location}"') for location in locations]
    assert sorted(staged) == [[(partition.window.start.date(),)] for partition in days(1, 2, 3, 4, 5, 6, 7, 8)]


def test_the_first_publish_of_two_tables_at_once_makes_the_receipts_once() -> None:
    shop = Shop.create()
    shop.database.execute("CREATE TABLE analytics.others AS SELECT * FROM analytics.orders")
    body = PUBLISH.format(range="RANGE", mechanism="replace_partitions")
    other = body.replace(
        "shop = Shop.open(database)\n",
        "shop = Shop.open(database)\nshop.target = shop.warehouse.describe('analytics.others', 'day', ['id'])\n",
    )

    assert _together(shop.database, body, other) == ["published", "published"]
    assert shop.rows("SELECT table_name, sequence FROM safe_backfill.receipts ORDER BY 1") == [
        ("orders", 1),
        ("others", 1),
    ]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_whatever_isolation_the_server_has_by_default_the_second_of_two_publishers_finds_that_the_range_moved(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create()
    shop.database.execute(f"ALTER DATABASE {shop.database.name} SET default_transaction_isolation = '{isolation}'")
    first, second = (Shop.open(shop.database) for _ in range(2))
    publications = [one.publication(one.stage(*RANGE)) for one in (first, second)]
    old = shop.amounts()
    outcomes: list[Any] = []

    def wait_behind() -> None:
        if not outcomes:
            outcomes.append(
                stack.enter_context(beside(lambda: second.warehouse.replace_partitions(second.target, publications[1])))
            )
            while not shop.database.rows("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"):
                time.sleep(0.01)

    after("lock_alone", wait_behind, monkeypatch)
    with ExitStack() as stack:
        first.warehouse.replace_partitions(first.target, publications[0])

    assert [type(outcome) for outcome in outcomes[0]] == [TargetMoved]
    assert shop.amounts() == raised(old)
    assert len(shop.warehouse.receipts(shop.target)) == 1


def test_a_second_publish_while_a_reader_from_before_the_first_is_still_open_disturbs_neither() -> None:
    shop = Shop.create(key="PRIMARY KEY")
    old = shop.amounts()
    with transaction(shop.database, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", AMOUNTS) as reader:
        for _ in range(2):
            shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
            assert reader.execute(AMOUNTS.encode()).fetchall() == old

    assert shop.amounts() == raised(old, 2)


def test_readers_see_only_the_old_or_only_the_new_rows_of_thirty_days_and_are_never_held() -> None:
    shop = Shop.create(size=2_000)
    shop.database.execute(
        "INSERT INTO analytics.orders SELECT i, DATE '2024-01-01' + i / 2000, i, 'n' || i FROM generate_series(20000, 59999) AS t(i)"
    )
    month = days(*range(1, 31))
    publication = shop.publication(shop.stage(*month), month)
    whole = "SELECT count(*), sum(amount)::bigint, count(DISTINCT day) FROM analytics.orders WHERE day IS NOT NULL"
    ((rows, amount, _),) = old = shop.rows(whole)
    new = [(rows, amount + rows, 30)]
    answers: list[tuple[float, list[tuple[Any, ...]]]] = []
    stop = threading.Event()

    def read() -> None:
        with shop.database.connect(autocommit=True) as connection:
            connection.execute("SET lock_timeout = 1")
            while not stop.is_set():
                answers.append((time.monotonic(), list(connection.execute(whole.encode()).fetchall())))

    with beside(read) as outcome:
        while not answers:
            time.sleep(0.01)
        started = time.monotonic()
        shop.warehouse.replace_partitions(shop.target, publication)
        ended = time.monotonic()
        while answers[-1][0] < ended:
            time.sleep(0.01)
        time.sleep(0.2)
        stop.set()

    assert outcome == [None]
    assert [answer for _, answer in answers if answer not in (old, new)] == []
    assert answers[-1][1] == new
    assert any(started < at < ended for at, _ in answers)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
            "CREATE TRIGGER late BEFORE INSERT ON analytics.orders FOR EACH ROW EXECUTE FUNCTION f()",
            "late",
        ),
        (
            "ALTER TABLE analytics.orders ADD UNIQUE (id); "
            "CREATE TABLE lines (order_id BIGINT CONSTRAINT spreads REFERENCES analytics.orders (id) ON DELETE CASCADE)",
            "spreads",
        ),
        ("CREATE RULE odd AS ON INSERT TO analytics.orders DO INSTEAD NOTHING", "odd"),
        ("ALTER TABLE analytics.orders ADD COLUMN more INTEGER", "more"),
    ],
)
def test_what_was_added_to_the_table_since_the_plan_is_refused_before_anything_is_written(
    shop: Shop, change: str, named: str
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.database.execute(change)
    old = shop.amounts()

    with pytest.raises(PublishRefused, match=named):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.amounts() == old


def test_numbers_that_are_held_against_each_other_are_read_from_one_snapshot(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = shop.stage(*RANGE)
    original = compare.differences

    def late(*given: Any) -> str:
        shop.database.execute(APPEND)
        return original(*given)

    monkeypatch.setattr(compare, "differences", late)
    diffs = shop.warehouse.compare(shop.target, Published(), staged, RANGE)

    assert [(diff.old, diff.changed, diff.removed) for diff in diffs.values()] == [(10, 10, 0)] * 3
