"""Exchanging children while others read and write the table, twice, two at once, and ended at every step."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from partitioned_shop import DAILY, files, fill, held, partitioned, way_back
from postgres_shop import (
    AMOUNTS,
    RANGE,
    beside,
    clean_server,
    process,
    pytestmark,
    raised,
    run_process,
    transaction,
)

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, TargetMoved
from airflow_backfill_provider.warehouses.postgres import swap
from airflow_backfill_provider.warehouses.postgres.swap import Exchange
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Replacement

__all__ = ["clean_server", "pytestmark"]

APPEND = "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-03', 5, 'late')"
DIRECT = "INSERT INTO analytics.orders_2 VALUES (999, DATE '2024-01-03', 5, 'late')"
DELETE = "DELETE FROM analytics.orders WHERE id = 25"
STEPS: dict[str, Any] = {
    "lock_alone": swap,
    "pair": Exchange,
    "refuse_moved": Replacement,
    "write": Receipts,
    "lock_out": Exchange,
}
"""The steps of an exchange that nobody can write between, and where each is."""


def _after(step: str, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(STEPS[step], step)

    def then_act(*given: Any) -> Any:
        result = original(*given)
        act()
        return result

    monkeypatch.setattr(STEPS[step], step, then_act)


@pytest.mark.parametrize("write", [APPEND, DIRECT, DELETE])
@pytest.mark.parametrize("step", STEPS)
def test_a_writer_at_any_step_waits_for_the_commit_and_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, step: str, write: str
) -> None:
    shop = partitioned()
    publication = fill(shop)
    old = shop.amounts()
    waited: list[bool] = []

    def race() -> None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            shop.database.execute("SET lock_timeout = 50", write)
        waited.append(True)

    _after(step, race, monkeypatch)
    shop.warehouse.swap_children(shop.target, publication)
    assert waited
    assert shop.amounts() == raised(old)
    shop.database.execute(write)

    changed = {APPEND: (11, 5), DIRECT: (11, 5), DELETE: (9, -26)}[write]
    assert shop.amounts()[1][1:] == (changed[0], raised(old)[1][2] + changed[1])


@pytest.mark.parametrize("write", [APPEND, DIRECT, DELETE])
def test_a_write_that_commits_while_the_exchange_waits_for_it_is_found(write: str) -> None:
    shop = partitioned(lock_timeout=timedelta(seconds=20))
    publication, before = fill(shop), files(shop)
    with (
        transaction(shop.database, write) as writer,
        beside(lambda: shop.warehouse.swap_children(shop.target, publication)) as published,
    ):
        while not shop.database.rows("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"):
            time.sleep(0.02)
        writer.commit()

    assert isinstance(published[0], TargetMoved)
    assert list(published[0].moved) == ["2024-01-03"]
    assert files(shop) == before
    assert shop.warehouse.receipts(shop.target) == ()
    assert [item.kind for item in shop.warehouse.storage()] == ["spare", "stage"]


@pytest.mark.parametrize("write", [APPEND, DELETE])
def test_a_write_since_the_tables_were_filled_is_refused_naming_the_partition(write: str) -> None:
    shop = partitioned()
    publication = fill(shop)
    shop.database.execute(write)
    found = shop.amounts()

    with pytest.raises(TargetMoved, match="2024-01-03"):
        shop.warehouse.swap_children(shop.target, publication)

    assert shop.amounts() == found


def test_a_write_beside_the_range_stops_nothing_and_stays() -> None:
    shop = partitioned()
    publication = fill(shop)
    shop.database.execute(
        "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-09', 5, 'beside'), (998, NULL, 5, 'none')"
    )
    outside = shop.outside()

    shop.warehouse.swap_children(shop.target, publication)

    assert shop.outside() == outside


def test_publishing_twice_exchanges_once() -> None:
    shop = partitioned()
    old, baseline = shop.amounts(), shop.fingerprint(*RANGE)
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)

    with pytest.raises(PublishRefused, match=r"no spare at spare_b1_.*exchanged before"):
        shop.warehouse.swap_children(shop.target, publication)

    assert shop.amounts() == raised(old)
    assert held(shop, publication) == baseline
    assert len(shop.warehouse.receipts(shop.target)) == 1


BODY = """
from partitioned_shop import *
shop = Shop.open(database)
print('ready', flush=True)
sys.stdin.readline()
try:
    shop.warehouse.swap_children(shop.target, fill(shop))
    print('published', flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def test_two_attempts_of_one_backfill_at_once_fill_one_set_of_tables_and_publish_once() -> None:
    shop = partitioned(bounds=DAILY, size=2_000)
    old, baseline = shop.amounts(), shop.fingerprint(*RANGE)

    with ExitStack() as stack:
        children = [stack.enter_context(process(shop.database, BODY)) for _ in range(2)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        results = sorted(child.communicate(timeout=90)[0].strip() for child in children)

    assert results[1] == "published", results
    assert results[0] in {"PublishRefused", "TargetMoved"}
    assert shop.amounts() == raised(old)
    assert len(shop.warehouse.receipts(shop.target)) == 1
    (backup,) = [item for item in shop.warehouse.storage() if item.kind != "stage"]
    assert backup.kind == "backup"
    publication = shop.publication(swap.Backup(backup.location), before=baseline, after=baseline)
    assert held(shop, publication) == baseline


_DYING = """
import signal
from airflow_backfill_provider.warehouses.postgres.session import Session
from partitioned_shop import *
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED = f"""{_DYING}
from airflow_backfill_provider.warehouses.relational.replacement import Replacement
from airflow_backfill_provider.warehouses.postgres import swap
from airflow_backfill_provider.warehouses.postgres.spare import Spare
OWNERS |= {{{{"lock_alone": swap, "fill_children": PostgresWarehouse, **dict.fromkeys(("_pour", "fill"), Spare)}}}}
OWNERS |= {{{{**dict.fromkeys(("take_spare", "pair", "lock_out"), swap.Exchange), "refuse_moved": Replacement}}}}
shop = Shop.open(database)
owner, step = OWNERS[{{step!r}}], getattr(OWNERS[{{step!r}}], {{step!r}})
setattr(owner, {{step!r}}, lambda *given: (step(*given), die()))
shop.warehouse.swap_children(shop.target, fill(shop))
"""
LAST = f"""{_DYING}
shop = Shop.open(database)
publication = fill(shop)
original = Session.run
def run(session, sql):
    if sql == "COMMIT" and exchanged and {{before}}:
        die()
    exchanged.extend(["yes"] if "DETACH PARTITION" in sql else [])
    result = original(session, sql)
    if sql == "COMMIT" and exchanged:
        die()
    return result
exchanged = []
Session.run = run
shop.warehouse.swap_children(shop.target, publication)
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (KILLED.format(step="_pour"), []),
        (KILLED.format(step="fill"), []),
        *((KILLED.format(step=step), ["spare"]) for step in ("fill_children", "take_spare", "lock_alone", "pair")),
        *((KILLED.format(step=step), ["spare"]) for step in ("refuse_moved", "write", "lock_out")),
        (LAST.format(before=True), ["spare"]),
    ],
)
def test_killed_before_the_commit_it_leaves_the_old_rows_and_a_second_publish_converges(
    body: str, left: list[str]
) -> None:
    shop = partitioned(bounds=DAILY)
    old, outside, before, baseline = shop.amounts(), shop.outside(), files(shop), shop.fingerprint(*RANGE)

    killed = run_process(shop.database, body)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    while shop.database.running():
        time.sleep(0.02)
    assert shop.amounts() == old
    assert files(shop) == before
    assert shop.warehouse.receipts(shop.target) == ()
    assert [item.kind for item in shop.warehouse.storage() if item.kind != "stage"] == left
    publication = fill(shop)
    shop.warehouse.swap_children(shop.target, publication)
    assert shop.amounts() == raised(old)
    assert shop.outside() == outside
    assert held(shop, publication) == baseline
    assert shop.rows("SELECT count(*) FROM pg_class WHERE relname ~ '^spare_' AND relkind IN ('r', 'p')") == [(4,)]


def test_killed_right_after_the_commit_it_leaves_the_new_rows_with_receipt_and_backup() -> None:
    shop = partitioned(bounds=DAILY)
    old, outside = shop.amounts(), shop.outside()

    killed = run_process(shop.database, LAST.format(before=False))

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert shop.amounts() == raised(old)
    assert shop.outside() == outside
    assert [receipt.keys for receipt in shop.warehouse.receipts(shop.target)] == [tuple(one.key for one in RANGE)]
    assert [item.kind for item in shop.warehouse.storage()] == ["backup", "stage"]
    with pytest.raises(PublishRefused, match="published before"):
        fill(shop)


def test_what_an_earlier_attempt_filled_is_used_again_and_other_rows_are_filled_anew() -> None:
    shop = partitioned()
    first = fill(shop)
    names = "SELECT relname, oid::bigint FROM pg_class WHERE relname ~ '^spare_' AND relkind = 'r' ORDER BY 1"
    filled = shop.rows(names)

    fill(shop)
    assert shop.rows(names) == filled
    shop.database.execute("UPDATE analytics.orders SET amount = amount + 5 WHERE id = 25")
    again = fill(shop)

    assert shop.rows(names) != filled
    assert len(shop.rows(names)) == 2
    assert first.rows == again.rows
    shop.warehouse.swap_children(shop.target, again)


def test_readers_see_only_the_old_or_only_the_new_rows_and_wait_for_a_moment_only() -> None:
    shop = partitioned(bounds=DAILY, size=2_000)
    old = shop.amounts()
    publication = fill(shop)
    answers: list[tuple[float, float, list[tuple[Any, ...]]]] = []
    stop = threading.Event()

    def read() -> None:
        with shop.database.connect(autocommit=True) as connection:
            while not stop.is_set():
                began = time.monotonic()
                rows = list(connection.execute(AMOUNTS).fetchall())
                answers.append((began, time.monotonic() - began, rows))

    with beside(read) as first, beside(read) as second:
        while not answers:
            time.sleep(0.01)
        began = time.monotonic()
        for one in (publication, way_back(publication)):
            shop.warehouse.swap_children(shop.target, one)
            committed = time.monotonic()
            while answers[-1][0] < committed:
                time.sleep(0.01)
        stop.set()

    assert (first, second) == ([None], [None])
    assert [rows for _, _, rows in answers if rows not in (old, raised(old))] == []
    assert raised(old) in [rows for _, _, rows in answers]
    assert answers[-1][2] == old
    assert any(at > began for at, _, _ in answers)
    assert max(took for _, took, _ in answers) < 3


def test_a_reader_that_stays_is_named_and_others_are_not_held_behind_us_for_long() -> None:
    shop = partitioned(lock_timeout=timedelta(seconds=4))
    publication, old = fill(shop), shop.amounts()
    waits: list[float] = []

    with transaction(shop.database, AMOUNTS, application_name="long report") as reader:
        began = time.monotonic()
        with beside(lambda: shop.warehouse.swap_children(shop.target, publication)) as outcome:
            while not outcome:
                asked = time.monotonic()
                assert shop.amounts() == old
                waits.append(time.monotonic() - asked)
                time.sleep(0.01)
        took = time.monotonic() - began
        holding = f"Process {reader.info.backend_pid} of {reader.info.user} (long report) holds it"

    assert isinstance(outcome[0], LockTimeout)
    assert holding in str(outcome[0])
    assert 2 < took < 8
    assert max(waits) < 2
    shop.warehouse.swap_children(shop.target, publication)
    assert shop.amounts() == raised(old)


def test_a_transaction_that_read_the_table_and_then_writes_it_is_let_go_first() -> None:
    shop = partitioned(lock_timeout=timedelta(seconds=20))
    publication, old = fill(shop), shop.amounts()
    with (
        transaction(shop.database, AMOUNTS) as other,
        beside(lambda: shop.warehouse.swap_children(shop.target, publication)) as published,
    ):
        while not shop.database.rows(
            "SELECT 1 FROM pg_locks WHERE granted AND mode = 'ShareRowExclusiveLock' AND relation = 'analytics.orders'::regclass"
        ):
            time.sleep(0.02)
        time.sleep(0.3)
        began = time.monotonic()
        other.execute("INSERT INTO analytics.orders VALUES (999, DATE '2024-01-09', 5, 'beside')")
        other.commit()
        took = time.monotonic() - began

    assert took < 4
    assert published[0].inserted == 30
    assert shop.amounts() == raised(old)
    assert shop.rows("SELECT count(*) FROM analytics.orders WHERE id = 999") == [(1,)]


def test_a_view_of_the_data_from_before_the_new_rows_is_waited_for_because_it_would_find_none() -> None:
    shop = partitioned(lock_timeout=timedelta(seconds=2))
    old = shop.amounts()
    with shop.database.connect() as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1 FROM pg_class LIMIT 1")
        publication = fill(shop)

        with pytest.raises(LockTimeout, match=f"Process {other.info.backend_pid} .* sees the data as it was"):
            shop.warehouse.swap_children(shop.target, publication)
        assert other.execute(AMOUNTS).fetchall() == old

    shop.warehouse.swap_children(shop.target, publication)
    assert shop.amounts() == raised(old)
