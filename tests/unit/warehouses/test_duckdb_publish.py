"""Publishing into a DuckDB file: killed at any moment, raced, tampered with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_shop import AMOUNTS, RANGE, Shop, process
from stage_writing import write_one

from airflow_backfill_provider.errors import BackfillError, LockTimeout, PublishRefused, StageChanged, TargetMoved
from airflow_backfill_provider.warehouses.base import Action, Receipt, Staged
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse, publish
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.relational.receipts import Receipts
from airflow_backfill_provider.warehouses.relational.replacement import Replacement
from airflow_backfill_provider.warehouses.relational.tables import Place

KEY = ["", "PRIMARY KEY"]

PUBLISH = """
shop = Shop.open(folder)
publication = shop.publication(shop.stage(*RANGE))
"""
OWNERS: dict[str, Any] = {
    "guard": publish,
    **dict.fromkeys(("refuse_other_columns", "refuse_moved", "delete", "insert", "refuse_changed"), Replacement),
    "write": Receipts,
    "commit": Session,
}
STEPS = tuple(OWNERS)[:-1]
"""The steps before the commit, in their order."""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.create(tmp_path)


def test_killed_at_any_moment_it_leaves_old_or_new_and_never_a_mixture(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, key="PRIMARY KEY", size=20_000)
    old = shop.amounts()
    seen = set()
    for milliseconds in (0, 20, 40, 80, 120, 200, 400):
        body = f"{PUBLISH}print('ready', flush=True)\nshop.warehouse.replace_partitions(shop.target, publication)\ntime.sleep(60)"
        with process(tmp_path, body) as child:
            time.sleep(milliseconds / 1000)
            child.kill()
            child.wait()
        found, receipts = shop.amounts(), shop.warehouse.receipts(shop.target)
        generation = len(receipts)
        seen.add(generation)
        assert found == [(date, rows, amount + generation * rows) for date, rows, amount in old]
        assert shop.rows("SELECT count(*), count(DISTINCT id) FROM analytics.orders") == [(200_001, 200_001)]
    assert seen


def test_readers_in_the_process_see_only_the_old_or_only_the_new_rows(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, size=50_000)
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    answers: list[list[tuple[Any, ...]]] = []
    stop = threading.Event()

    def read() -> None:
        with duckdb.connect(str(shop.path)) as connection:
            while not stop.is_set():
                answers.append(connection.execute(AMOUNTS).fetchall())

    reader = threading.Thread(target=read)
    reader.start()
    while not answers:
        time.sleep(0.01)
    shop.warehouse.replace_partitions(shop.target, publication)
    published_after = len(answers)
    while len(answers) < published_after + 2:
        time.sleep(0.01)
    stop.set()
    reader.join()

    new = [(date, rows, amount + rows) for date, rows, amount in old]
    assert [answer for answer in answers if answer not in (old, new)] == []
    assert answers[0] == old
    assert answers[-1] == new


APPEND = "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-03', 5, 'late')"
DELETE = "DELETE FROM analytics.orders WHERE id = 25"
UPDATE = "UPDATE analytics.orders SET amount = 0 WHERE id = 25"


def racing(step: str, race: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``race`` happen right after the step."""
    original = getattr(OWNERS[step], step)

    def then_race(*given: Any) -> Any:
        result = original(*given)
        race()
        return result

    monkeypatch.setattr(OWNERS[step], step, then_race)


@pytest.mark.parametrize("key", KEY)
@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
@pytest.mark.parametrize("step", STEPS)
def test_a_writer_between_guard_and_commit_and_the_publish_never_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, write: str, key: str
) -> None:
    shop = Shop.create(tmp_path, key=key)
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    with duckdb.connect(str(shop.path)) as writer:
        wrote: list[bool] = []

        def race() -> None:
            try:
                writer.execute(write)
                wrote.append(True)
            except duckdb.Error:
                wrote.append(False)

        racing(step, race, monkeypatch)
        try:
            shop.warehouse.replace_partitions(shop.target, publication)
            published = True
        except (LockTimeout, TargetMoved):
            published = False

    assert len(wrote) == 1
    assert published != wrote[0]
    if published:
        assert shop.amounts() == [(date, rows, amount + rows) for date, rows, amount in old]
    else:
        assert shop.warehouse.receipts(shop.target) == ()


@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
@pytest.mark.parametrize("step", OWNERS)
def test_a_transaction_opened_before_the_guard_does_not_slip_in(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, write: str
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    with duckdb.connect(str(shop.path)) as writer:
        writer.execute("BEGIN")
        writer.execute(write)
        wrote: list[bool] = []

        def race() -> None:
            try:
                writer.execute("COMMIT")
                wrote.append(True)
            except duckdb.Error:
                wrote.append(False)

        racing(step, race, monkeypatch)
        try:
            shop.warehouse.replace_partitions(shop.target, publication)
            published = True
        except (LockTimeout, TargetMoved):
            published = False
            if not wrote:
                race()

    assert published != wrote[0]
    new = [(date, rows, amount + rows) for date, rows, amount in old]
    assert (shop.amounts() == new) == published


@pytest.mark.parametrize(
    "write", [APPEND, DELETE, UPDATE, "DELETE FROM analytics.orders WHERE day = DATE '2024-01-03'"]
)
def test_a_write_after_the_baseline_is_refused_naming_the_partition(shop: Shop, write: str) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.rows(write)
    found = shop.amounts()

    with pytest.raises(TargetMoved, match="2024-01-03") as refused:
        shop.warehouse.replace_partitions(shop.target, publication)

    assert list(refused.value.moved) == ["2024-01-03"]
    assert refused.value.moved["2024-01-03"][0] == 10
    assert shop.amounts() == found
    assert shop.warehouse.receipts(shop.target) == ()


@pytest.mark.parametrize(
    "tamper",
    [
        "INSERT INTO staged_rows BY NAME SELECT 999 AS id, DATE '2024-01-03' AS day, 5 AS amount, 'late' AS note",
        "DELETE FROM staged_rows WHERE id = 25",
        "UPDATE staged_rows SET amount = 0 WHERE id = 25",
        "UPDATE staged_rows SET day = DATE '2024-01-04' WHERE id = 25",
    ],
)
def test_a_stage_that_changed_after_it_was_fingerprinted_is_refused(shop: Shop, tamper: str) -> None:
    staged = shop.stage(*RANGE)
    publication = shop.publication(staged)
    old = shop.amounts()
    with duckdb.connect(str(shop.path) + ".backfill/" + staged.partitions[0].location) as stage:
        stage.execute(tamper)

    with pytest.raises(StageChanged, match="2024-01-03") as refused:
        shop.warehouse.replace_partitions(shop.target, publication)

    assert refused.value.changed["2024-01-03"][0] == 10
    assert shop.amounts() == old


@pytest.mark.parametrize(
    ("step", "beside", "error"),
    [
        ("delete", "DELETE FROM analytics.orders WHERE day = DATE '2024-01-08'", TargetMoved),
        ("insert", "INSERT INTO analytics.orders VALUES (999, DATE '2024-01-08', 5, 'beside')", StageChanged),
    ],
)
def test_a_statement_that_also_changes_rows_outside_the_range_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, beside: str, error: type[BackfillError]
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    everything = "SELECT * FROM analytics.orders ORDER BY ALL"
    old = shop.rows(everything)
    right = getattr(Replacement, step)

    def too_much(self: Replacement) -> int:
        ((more,),) = self._session.run(beside)
        return int(right(self)) + int(more)

    monkeypatch.setattr(Replacement, step, too_much)
    with pytest.raises(error, match="were expected"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.rows(everything) == old


def test_a_stage_that_is_gone_is_refused_with_nothing_written(shop: Shop) -> None:
    staged = shop.stage(*RANGE)
    publication = shop.publication(staged)
    old = shop.amounts()
    shop.warehouse.drop(staged.partitions[0].location)

    with pytest.raises(BackfillError, match="is gone"):
        shop.warehouse.replace_partitions(shop.target, publication)
    assert shop.amounts() == old


def test_two_publishers_at_once_publish_once(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, size=20_000)
    old = shop.amounts()
    body = (
        PUBLISH
        + """
print('ready', flush=True)
go = folder / 'go'
while not go.exists():
    time.sleep(0.005)
try:
    shop.warehouse.replace_partitions(shop.target, publication)
    print('published', flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""
    )
    with process(tmp_path, body) as first, process(tmp_path, body) as second:
        (tmp_path / "go").touch()
        results = sorted(child.communicate(timeout=60)[0].strip() for child in (first, second))

    assert results == ["TargetMoved", "published"]
    assert shop.amounts() == [(date, rows, amount + rows) for date, rows, amount in old]
    assert len(shop.warehouse.receipts(shop.target)) == 1


def test_the_comment_of_the_table_stays(shop: Shop) -> None:
    shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))

    assert shop.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'orders'") == [("it's the orders",)]


def test_a_comment_that_changes_just_before_the_guard_is_not_lost(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    with duckdb.connect(str(shop.path)) as other:
        guard = publish.guard

        def late(session: Session, place: Place, text: str | None) -> None:
            other.execute("COMMENT ON TABLE analytics.orders IS 'newer'")
            guard(session, place, text)

        monkeypatch.setattr(publish, "guard", late)
        with pytest.raises(LockTimeout, match="newer"):
            shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'orders'") == [("newer",)]


def test_a_row_that_breaks_a_constraint_of_the_table_is_refused_with_nothing_written(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, key="PRIMARY KEY")
    old = shop.amounts()
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        staged = Staged(
            tuple(
                write_one(stage, partition, f"SELECT 999 AS id, DATE '{partition.key}' AS day, 2 AS amount, '' AS note")
                for partition in RANGE
            )
        )

    with pytest.raises(PublishRefused, match="constraint"):
        shop.warehouse.replace_partitions(shop.target, shop.publication(staged))
    assert shop.amounts() == old


def test_a_table_with_every_kind_of_column_and_constraint_is_published_twice_and_undone(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("""
            CREATE TYPE mood AS ENUM ('sad', 'fine');
            CREATE SCHEMA "Select";
            CREATE TABLE "Select"."Order" (
                "Id" BIGINT PRIMARY KEY, "at" DATE NOT NULL, "a ""b" DECIMAL(12,2) DEFAULT 3 CHECK ("a ""b" >= 0),
                twice BIGINT GENERATED ALWAYS AS ("Id" * 2), m mood, s STRUCT(x INTEGER, "y z" VARCHAR[]), k MAP(VARCHAR, INTEGER),
                u UUID, b BLOB, z TIMESTAMPTZ, i INTERVAL, n VARCHAR UNIQUE, "group" BOOLEAN, h HUGEINT, j JSON);
            CREATE INDEX by_at ON "Select"."Order" ("at");
            INSERT INTO "Select"."Order" SELECT
                i, DATE '2024-01-01' + CAST(i // 10 AS INTEGER), i, 'sad', {'x': i, 'y z': ['a']}, MAP {'k': i},
                uuid(), 'ab'::BLOB, TIMESTAMPTZ '2024-01-01 00:00:00+00', INTERVAL 1 DAY, 'n' || i, TRUE, i, '{"a": 1}'
                FROM range(100) AS t(i);
        """)
    warehouse = DuckDBWarehouse(path)
    shop = Shop(path, warehouse, warehouse.describe("select.order", "AT", ["id"]))
    everything = 'SELECT * FROM "Select"."Order" ORDER BY "Id"'
    old = shop.rows(everything)
    names = ", ".join(f'"{name}"'.replace('"a "b"', '"a ""b" + 1 AS "a ""b"') for name in shop.target.column_names)

    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        select = f'SELECT {names} FROM "Select"."Order" WHERE "at" = DATE '
        staged = Staged(tuple(write_one(stage, partition, f"{select}'{partition.key}'") for partition in RANGE))
    backup, baseline = shop.warehouse.back_up(shop.target, "b1", RANGE, label="x")
    publication = shop.publication(staged)
    shop.warehouse.replace_partitions(shop.target, publication)
    new = shop.rows(everything)
    undo = replace(publication, action=Action.ROLLBACK, rows=backup, before=publication.after, after=baseline)
    shop.warehouse.replace_partitions(shop.target, undo)

    assert [row[2] - before[2] for row, before in zip(new, old, strict=True)] == [0] * 10 + [1] * 30 + [0] * 60
    assert shop.rows(everything) == old
    assert [receipt.action for receipt in shop.warehouse.receipts(shop.target)] == ["publish", "rollback"]


def test_a_receipt_reads_back_as_it_was_returned(shop: Shop) -> None:
    publication = replace(shop.publication(shop.stage(*RANGE)), backfill_id="it's", plan_hash='"; --')

    receipt = shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.warehouse.receipts(shop.target) == (receipt,)
    assert isinstance(receipt, Receipt)


def test_a_failed_publish_leaves_nothing_attached_and_the_next_one_works(shop: Shop) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    with duckdb.connect(str(shop.path)) as own:
        with pytest.raises(TargetMoved):
            shop.warehouse.replace_partitions(shop.target, replace(publication, before=publication.after))
        assert own.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall() == [("shop",)]

    assert shop.warehouse.replace_partitions(shop.target, publication).inserted == 30


def test_fingerprints_of_another_version_are_refused(shop: Shop) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    older = {key: replace(fingerprint, method="duckdb-1.9") for key, fingerprint in publication.before.items()}

    with pytest.raises(PublishRefused, match=r"duckdb-1\.9"):
        shop.warehouse.replace_partitions(shop.target, replace(publication, before=older))
