"""Swapping a view in a DuckDB file: raced, and what of the table a new version has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_shop import AMOUNTS, RANGE, Shop
from stage_writing import write_one

from airflow_backfill_provider.errors import LockTimeout, PublishRefused, SpecError, TargetMoved
from airflow_backfill_provider.warehouses.base import Action, Backup, Fingerprint, Publication, Staged
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse, swap
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.swap import Swap
from airflow_backfill_provider.warehouses.relational.receipts import Receipts

OWNERS: dict[str, Any] = {
    "guard": swap,
    **dict.fromkeys(("refuse_other_columns", "refuse_moved"), Swap),
    "create_like": swap,
    "insert": Swap,
    **dict.fromkeys(("dress_like", "point"), swap),
    **dict.fromkeys(("build", "refuse_changed"), Swap),
    "write": Receipts,
    "write_move": swap,
    "commit": Session,
}
STEPS = tuple(OWNERS)[:-1]
"""The steps before the commit, in their order."""
APPEND = "INSERT INTO analytics.orders__v1 VALUES (999, DATE '2024-01-08', 5, 'late')"
DELETE = "DELETE FROM analytics.orders__v1 WHERE id = 75"
UPDATE = "UPDATE analytics.orders__v1 SET amount = 0 WHERE id = 75"
POINT = "CREATE OR REPLACE VIEW analytics.orders AS SELECT * FROM analytics.elsewhere"
EVERYTHING = "SELECT * FROM analytics.orders ORDER BY ALL"
VIEW = "SELECT sql FROM duckdb_views() WHERE view_name = 'orders'"


def create(folder: Path, *, key: str = "", size: int = 10) -> Shop:
    """The shop's table behind a view, and another table that the view could show."""
    shop = Shop.create(folder, key=key, size=size)
    shop.warehouse.close()
    with duckdb.connect(str(shop.path)) as connection:
        connection.execute(
            "ALTER TABLE analytics.orders RENAME TO orders__v1; CREATE TABLE analytics.elsewhere AS FROM analytics.orders__v1; "
            "CREATE VIEW analytics.orders AS SELECT * FROM analytics.orders__v1"
        )
    return Shop.open(folder)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return create(tmp_path)


def swap_in(shop: Shop) -> tuple[Backup, dict[str, Fingerprint]]:
    backup, marks = shop.warehouse.back_up(shop.target, "b1", RANGE, label="publish")
    shop.warehouse.swap_view(shop.target, shop.publication(shop.stage(*RANGE)))
    return backup, marks


def undoing(shop: Shop, backup: Backup, marks: dict[str, Fingerprint]) -> Publication:
    return Publication("b1", Action.ROLLBACK, "p1", RANGE, backup, before=shop.fingerprint(*RANGE), after=marks)


def raised(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(date, count, amount + count) for date, count, amount in rows]


def test_readers_see_only_the_old_or_only_the_new_rows(tmp_path: Path) -> None:
    shop = create(tmp_path, size=20_000)
    backup, marks = shop.warehouse.back_up(shop.target, "b1", RANGE, label="publish")
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.amounts()
    answers: list[list[tuple[Any, ...]]] = []
    stop = threading.Event()

    def read() -> None:
        with duckdb.connect(str(shop.path)) as connection:
            while not stop.is_set():
                answers.append(connection.execute(AMOUNTS).fetchall())

    def read_on() -> None:
        seen = len(answers)
        while len(answers) < seen + 2:
            time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    read_on()
    shop.warehouse.swap_view(shop.target, publication)
    read_on()
    middle = answers[-1]
    shop.warehouse.swap_view(shop.target, undoing(shop, backup, marks))
    read_on()
    stop.set()
    reader.join()

    assert [answer for answer in answers if answer not in (old, raised(old))] == []
    assert (answers[0], middle, answers[-1]) == (old, raised(old), old)


def racing(step: str, race: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``race`` happen right after the step."""
    owner = OWNERS.get(step, Swap)
    original = getattr(owner, step)

    def then_race(*given: Any) -> Any:
        result = original(*given)
        race()
        return result

    monkeypatch.setattr(owner, step, then_race)


def tried(connection: duckdb.DuckDBPyConnection, statement: str, wrote: list[bool]) -> Callable[[], None]:
    def race() -> None:
        try:
            connection.execute(statement)
            wrote.append(True)
        except duckdb.Error:
            wrote.append(False)

    return race


@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE, POINT])
@pytest.mark.parametrize("step", STEPS)
def test_a_write_outside_the_range_between_guard_and_commit_and_the_swap_never_both_succeed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, write: str
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.rows(EVERYTHING)
    wrote: list[bool] = []
    with duckdb.connect(str(shop.path)) as writer:
        racing(step, tried(writer, write, wrote), monkeypatch)
        try:
            shop.warehouse.swap_view(shop.target, publication)
            published = True
        except LockTimeout:
            published = False

    assert len(wrote) == 1
    assert published != wrote[0]
    assert len(shop.rows(EVERYTHING)) == len(old) + (write == APPEND and wrote[0]) - (write == DELETE and wrote[0])
    assert len(shop.warehouse.receipts(shop.target)) == published


@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
@pytest.mark.parametrize("step", OWNERS)
def test_a_transaction_opened_before_the_guard_loses_no_row(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, write: str
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    wrote: list[bool] = []
    with duckdb.connect(str(shop.path)) as writer:
        writer.execute("BEGIN")
        writer.execute(write)
        commit = tried(writer, "COMMIT", wrote)
        racing(step, commit, monkeypatch)
        try:
            shop.warehouse.swap_view(shop.target, publication)
            published = True
        except LockTimeout:
            published = False
            if not wrote:
                commit()

    assert published != wrote[0]


def test_a_view_that_was_pointed_elsewhere_just_before_the_guard_is_not_pointed_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    with duckdb.connect(str(shop.path)) as other:
        comment = swap.comment

        def pointed(*given: Any) -> str | None:
            other.execute(POINT)
            return comment(*given)

        monkeypatch.setattr(swap, "comment", pointed)
        with pytest.raises(LockTimeout, match=r"pointed to analytics\.elsewhere just now"):
            shop.warehouse.swap_view(shop.target, publication)

    assert "elsewhere" in shop.rows(VIEW)[0][0]


@pytest.mark.parametrize("write", [APPEND, DELETE, UPDATE])
@pytest.mark.parametrize("step", ["guard", "_version_before", "_differs_in_the_range_alone", "write"])
def test_a_write_to_the_old_version_while_the_view_is_pointed_back_to_it_is_never_shown(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, write: str
) -> None:
    old = shop.rows(EVERYTHING)
    backup, marks = swap_in(shop)
    publication = undoing(shop, backup, marks)
    wrote: list[bool] = []
    with duckdb.connect(str(shop.path)) as writer:
        racing(step, tried(writer, write, wrote), monkeypatch)
        try:
            shop.warehouse.swap_view(shop.target, publication)
        except LockTimeout:
            assert wrote == [True]
            monkeypatch.undo()
            shop.warehouse.swap_view(shop.target, publication)

    assert shop.rows(EVERYTHING) == old
    assert ("__v1" in shop.rows(VIEW)[0][0]) != wrote[0]


@pytest.mark.parametrize(
    "beside",
    [
        "DELETE FROM {new} WHERE id = 75",
        "UPDATE {new} SET amount = 0 WHERE id = 75",
        "UPDATE {new} SET amount = 0 WHERE day IS NULL",
        "INSERT INTO {new} VALUES (999, NULL, 5, 'beside')",
    ],
)
def test_a_new_version_that_does_not_hold_the_other_rows_as_they_are_is_not_shown(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    old = shop.rows(EVERYTHING)
    insert = Swap.insert

    def spoiled(self: Swap) -> int:
        self._session.run(beside.format(new=self._table.place.sql))
        return insert(self)

    monkeypatch.setattr(Swap, "insert", spoiled)
    with pytest.raises(PublishRefused, match="outside the range as they are"):
        shop.warehouse.swap_view(shop.target, publication)

    assert shop.rows(EVERYTHING) == old
    assert "__v1" in shop.rows(VIEW)[0][0]


def test_a_new_version_has_the_columns_defaults_constraints_indexes_and_comments_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("""
            CREATE TYPE mood AS ENUM ('sad', 'fine');
            CREATE SCHEMA "Se.lect";
            CREATE TABLE "Se.lect".place (id BIGINT PRIMARY KEY);
            INSERT INTO "Se.lect".place VALUES (1);
            CREATE SEQUENCE "Se.lect".numbers;
            CREATE TABLE "Se.lect"."Order (1)__v1" (
                "Id" BIGINT PRIMARY KEY, "at" DATE NOT NULL, "a ""b" DECIMAL(12,2) DEFAULT 3 CHECK ("a ""b" >= 0),
                twice BIGINT GENERATED ALWAYS AS ("Id" * 2), m mood, s STRUCT(x INTEGER, "y z" VARCHAR[]),
                n VARCHAR UNIQUE, c BIGINT DEFAULT nextval('"Se.lect".numbers'),
                place BIGINT REFERENCES "Se.lect".place (id));
            CREATE INDEX "by at__v1" ON "Se.lect"."Order (1)__v1" ("at");
            CREATE UNIQUE INDEX "it's" ON "Se.lect"."Order (1)__v1" (lower(n), "a ""b");
            COMMENT ON TABLE "Se.lect"."Order (1)__v1" IS 'it''s orders';
            COMMENT ON COLUMN "Se.lect"."Order (1)__v1"."a ""b" IS 'money';
            INSERT INTO "Se.lect"."Order (1)__v1" BY NAME SELECT
                i AS "Id", DATE '2024-01-01' + CAST(i // 10 AS INTEGER) AS "at", i AS "a ""b", 'sad' AS m,
                {'x': i, 'y z': ['a']} AS s, 'n' || i AS n, 1 AS place FROM range(100) AS t(i);
            CREATE VIEW "Se.lect"."Order (1)" AS SELECT * FROM "Se.lect"."Order (1)__v1";
            COMMENT ON VIEW "Se.lect"."Order (1)" IS 'what readers see';
            COMMENT ON COLUMN "Se.lect"."Order (1)"."a ""b" IS 'their money';
        """)
    warehouse = DuckDBWarehouse(path)
    shop = Shop(path, warehouse, warehouse.describe("se.lect.order (1)", "AT", ["id"]))

    def like(table: str) -> list[list[tuple[Any, ...]]]:
        """What the catalog says of the table, without its own name and those of its indexes."""
        of = f"table_name = '{table}'"
        return [
            shop.rows(statement)
            for statement in (
                f"SELECT replace(sql, '{table}', ''), comment FROM duckdb_tables() WHERE {of}",
                f"SELECT column_name, comment, column_default FROM duckdb_columns() WHERE {of} ORDER BY column_index",
                f"SELECT is_unique, expressions, split_part(sql, '{table}', 2) FROM duckdb_indexes() WHERE {of} ORDER BY ALL",
                f"SELECT constraint_text FROM duckdb_constraints() WHERE {of} ORDER BY ALL",
            )
        ]

    names = ", ".join(f'"{name}"'.replace('"a "b"', '"a ""b" + 1 AS "a ""b"') for name in shop.target.column_names)
    comments = "SELECT comment FROM duckdb_columns() WHERE table_name = 'Order (1)' AND comment IS NOT NULL"
    for number, backfill in enumerate(("b1", "b2"), start=1):
        selects = {one: f'SELECT {names} FROM "Se.lect"."Order (1)" WHERE "at" = DATE \'{one.key}\'' for one in RANGE}
        with warehouse.open_stage(shop.target, backfill, "x") as stage:
            staged = Staged(tuple(write_one(stage, one, select) for one, select in selects.items()))
        warehouse.swap_view(shop.target, replace(shop.publication(staged), backfill_id=backfill))

        assert like(f"Order (1)__{backfill}") == like("Order (1)__v1")
        assert len(like("Order (1)__v1")[2]) == 2
        indexes = shop.rows(f"SELECT index_name FROM duckdb_indexes() WHERE table_name = 'Order (1)__{backfill}'")
        assert sorted(indexes) == [(f"by at__{backfill}",), (f"it's__{backfill}",)]
        assert shop.rows('SELECT DISTINCT "a ""b" - "Id" FROM "Se.lect"."Order (1)" ORDER BY 1') == [(0,), (number,)]
        assert shop.rows(comments) == [("their money",)]
    assert shop.rows("SELECT comment FROM duckdb_views() WHERE NOT internal") == [("what readers see",)]
    assert shop.rows('SELECT count(*), count(DISTINCT c) FROM "Se.lect"."Order (1)"') == [(100, 100)]
    stored = [item for item in warehouse.storage() if item.kind == "version"]
    assert [item.location for item in stored] == [
        'version:"Se.lect"."Order (1)__v1"',
        'version:"Se.lect"."Order (1)__b1"',
    ]
    for item in stored:
        warehouse.drop(item.location)
    assert shop.rows("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'Order (1)%'") == [(1,)]


@pytest.mark.parametrize(
    ("definition", "named"),
    [
        ("CREATE TABLE t__v1 (id BIGINT PRIMARY KEY, d DATE, up BIGINT REFERENCES t__v1 (id))", "up"),
        (
            "CREATE TABLE t__v1 (id BIGINT PRIMARY KEY, d DATE); CREATE TABLE child (t BIGINT REFERENCES t__v1 (id))",
            "child",
        ),
        ("CREATE TABLE t__v1 (id BIGINT, d DATE, CHECK (t__v1.id > 0))", "CHECK"),
    ],
    ids=["a key to itself", "a key of another table", "a check that names the table"],
)
def test_a_table_whose_name_stands_in_a_constraint_is_refused_when_it_is_planned(
    tmp_path: Path, definition: str, named: str
) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"{definition}; CREATE VIEW t AS SELECT * FROM t__v1")

    with pytest.raises(SpecError, match=rf"its name stands in .*{named}"):
        DuckDBWarehouse(path).describe("t", "d", ["id"])


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW s.v AS FROM s.T__V1",
        "CREATE VIEW s.v AS SELECT * FROM shop.s.t__v1 AS x",
        "USE s; CREATE VIEW s.v AS SELECT * FROM t__v1",
    ],
)
def test_a_table_is_found_however_the_view_writes_its_name(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.t__v1 (id BIGINT, d DATE); CREATE TABLE t__v1 (other DATE)")
        connection.execute(statement)

    version = DuckDBWarehouse(path).describe("s.v", "d", ["id"]).version

    assert version is not None
    assert version.table == "s.t__v1"


def test_a_view_became_a_table_since_it_was_planned_and_nothing_is_written(shop: Shop) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.rows("DROP VIEW analytics.orders")
    shop.rows("CREATE TABLE analytics.orders AS FROM analytics.orders__v1")

    with pytest.raises(PublishRefused, match="is a table now"):
        shop.warehouse.swap_view(shop.target, publication)


def test_a_table_became_a_view_since_it_was_planned_and_nothing_is_written(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    publication = shop.publication(shop.stage(*RANGE))
    shop.rows("ALTER TABLE analytics.orders RENAME TO orders__v1")
    shop.rows("CREATE VIEW analytics.orders AS FROM analytics.orders__v1")
    old = shop.rows(EVERYTHING)

    for change in (shop.warehouse.replace_partitions, shop.warehouse.merge):
        with pytest.raises(PublishRefused, match="is a view now"):
            change(shop.target, publication)

    assert shop.rows(EVERYTHING) == old


def test_a_column_that_came_to_the_table_since_it_was_planned_is_refused(shop: Shop) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.rows("ALTER TABLE analytics.orders__v1 ADD COLUMN surprise BIGINT")

    with pytest.raises(PublishRefused, match="surprise"):
        shop.warehouse.swap_view(shop.target, publication)


def test_an_old_version_with_other_columns_is_not_shown_again(shop: Shop) -> None:
    old = shop.rows(EVERYTHING)
    backup, marks = swap_in(shop)
    shop.rows("ALTER TABLE analytics.orders__v1 ADD COLUMN surprise BIGINT")

    shop.warehouse.swap_view(shop.target, undoing(shop, backup, marks))

    assert shop.rows(EVERYTHING) == old
    assert "__b1" in shop.rows(VIEW)[0][0]


def test_swapping_twice_the_same_is_refused_because_the_range_moved(shop: Shop) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.warehouse.swap_view(shop.target, publication)

    with pytest.raises(TargetMoved, match="2024-01-03"):
        shop.warehouse.swap_view(shop.target, publication)
