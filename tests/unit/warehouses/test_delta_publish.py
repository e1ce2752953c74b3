"""Publishing into a Delta table: other writers between our read and our commit, and answers that get lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from delta_shop import RANGE, Shop, corrected, day, rows_of
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from airflow_backfill_provider.errors import (
    BackfillError,
    LockTimeout,
    PublishRefused,
    StageChanged,
    TargetMoved,
    WarehouseError,
)
from airflow_backfill_provider.warehouses.base import Action, Publication, Recompute, Staged
from airflow_backfill_provider.warehouses.delta import publish, storage
from airflow_backfill_provider.warehouses.relational.replacement import Replacement

Race = Callable[[Shop], Any]


@pytest.fixture(params=[None, "day", "region"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop.create(tmp_path, partition_by=request.param)


def racing(monkeypatch: pytest.MonkeyPatch, race: Callable[[], Any], *, times: int = 1) -> None:
    """Let ``race`` happen after everything was proved and before the commit, in so many attempts."""
    left, commit = iter(range(times)), publish.commit

    def race_then_commit(*given: Any) -> None:
        if next(left, None) is not None:
            race()
        commit(*given)

    monkeypatch.setattr(publish, "commit", race_then_commit)


def order(number: int, date: str) -> str:
    return f"SELECT {number}::BIGINT AS id, DATE '{date}' AS day, 'new' AS region, 7::BIGINT AS amount"


def replace_day(shop: Shop, date: str) -> None:
    write_deltalake(shop.table, rows_of(order(700, date)), mode="overwrite", predicate=f"day = '{date}'")


def compact(shop: Shop) -> None:
    shop.append(order(501, "2024-01-09"))
    shop.append(order(502, "2024-01-09"))
    assert shop.table.optimize.compact()["numFilesRemoved"] > 0


INSIDE: dict[str, Race] = {
    "an append": lambda shop: shop.append(order(500, "2024-01-03")),
    "a replacement": lambda shop: replace_day(shop, "2024-01-03"),
    "a delete": lambda shop: shop.table.delete("id = 25"),
    "an update": lambda shop: shop.table.update(updates={"amount": "0"}, predicate="id = 25"),
    "an overwrite of everything": lambda shop: write_deltalake(
        shop.path, rows_of(order(500, "2024-01-03")), mode="overwrite"
    ),
}
OUTSIDE: dict[str, Race] = {
    "an append": lambda shop: shop.append(order(500, "2024-01-09")),
    "an append without a day": lambda shop: shop.append(order(500, "2024-01-09").replace("DATE '2024-01-09'", "NULL::DATE")),
    "a replacement": lambda shop: replace_day(shop, "2024-01-05"),
    "a delete": lambda shop: shop.table.delete("id = 5"),
    "an update": lambda shop: shop.table.update(updates={"amount": "0"}, predicate="id = 5"),
    "compaction": compact,
    "a property": lambda shop: shop.table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
    "vacuum": lambda shop: shop.table.vacuum(0, dry_run=False, enforce_retention_duration=False),
}  # fmt: skip


@pytest.mark.parametrize("race", INSIDE.values(), ids=INSIDE)
def test_a_writer_inside_the_range_between_our_read_and_our_commit_is_never_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, race: Race
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    racing(monkeypatch, lambda: race(shop))

    with pytest.raises(TargetMoved):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.warehouse.receipts(shop.target) == ()
    twin = Shop.create(shop.path.parents[1] / "twin")
    race(twin)
    assert (shop.amounts(), shop.outside()) == (twin.amounts(), twin.outside())


@pytest.mark.parametrize("race", INSIDE.values(), ids=INSIDE)
def test_a_writer_inside_the_range_between_the_backup_and_the_publish_is_noticed(shop: Shop, race: Race) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")
    race(shop)
    left = shop.rows("SELECT * FROM orders ORDER BY id")

    with pytest.raises(TargetMoved, match="nothing was written"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.rows("SELECT * FROM orders ORDER BY id") == left


def test_a_range_that_was_not_the_baseline_when_it_was_backed_up_is_refused(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    publication = shop.publication(shop.stage(*RANGE))
    shop.append(order(500, "2024-01-03"))
    shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")

    with pytest.raises(TargetMoved, match=r"2024-01-03 \(expected 10 rows, found 11\)"):
        shop.warehouse.replace_partitions(shop.target, publication)


@pytest.mark.parametrize("race", OUTSIDE.values(), ids=OUTSIDE)
def test_a_writer_outside_the_range_is_no_obstacle_and_is_not_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, race: Race
) -> None:
    old = shop.amounts()
    publication = shop.publication(shop.stage(*RANGE))
    racing(monkeypatch, lambda: race(shop))

    receipt = shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.amounts() == [(date, rows, amount + rows) for date, rows, amount in old]
    twin = Shop.create(shop.path.parents[1] / "twin")
    race(twin)
    assert shop.outside() == twin.outside()
    assert shop.warehouse.receipts(shop.target) == (receipt,)
    assert (receipt.deleted, receipt.inserted) == (30, 30)


def test_a_column_that_is_added_between_our_read_and_our_commit_is_noticed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    wide = rows_of(order(500, "2024-01-09") + ", 1 AS extra")
    racing(monkeypatch, lambda: write_deltalake(shop.path, wide, mode="append", schema_mode="merge"))

    with pytest.raises(PublishRefused, match="extra differ"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.warehouse.receipts(shop.target) == ()


def test_a_table_that_became_append_only_is_refused_by_name_rather_than_tried_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    racing(monkeypatch, lambda: shop.table.alter.set_table_properties({"delta.appendOnly": "true"}))

    with pytest.raises(PublishRefused, match="appendOnly"):
        shop.warehouse.replace_partitions(shop.target, publication)


def test_a_version_whose_files_were_vacuumed_is_an_error_and_nothing_is_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = shop.publication(shop.stage(*RANGE))
    rows = shop.table.to_pyarrow_table()

    def rewrite_and_vacuum(replacement: Replacement) -> None:
        write_deltalake(shop.path, rows, mode="overwrite")
        shop.table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    monkeypatch.setattr(Replacement, "refuse_other_columns", rewrite_and_vacuum)
    with pytest.raises(WarehouseError, match="orders"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.table.version() == 3  # the rewrite, and the start and the end of the vacuum
    assert shop.warehouse.receipts(shop.target) == ()


def test_writers_that_never_stop_end_in_a_lock_timeout_within_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shop.create(tmp_path)
    shop = Shop.open(tmp_path, lock_timeout=timedelta(seconds=1))
    old = shop.amounts()
    publication = shop.publication(shop.stage(*RANGE))
    racing(monkeypatch, lambda: compact(shop), times=1000)

    started = time.monotonic()
    with pytest.raises(LockTimeout, match="again and again"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert time.monotonic() - started < 10
    assert shop.amounts() == old
    assert shop.warehouse.receipts(shop.target) == ()


def test_a_publish_that_waits_for_its_next_attempt_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(tmp_path)
    publication = shop.publication(shop.stage(*RANGE))
    racing(monkeypatch, lambda: (compact(shop), shop.warehouse.cancel()), times=1000)

    with pytest.raises(WarehouseError, match="cancelled"):
        shop.warehouse.replace_partitions(shop.target, publication)


def test_a_transform_that_runs_is_ended_by_cancel_and_keeps_nothing(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    endless = "SELECT a.range AS id, DATE '2024-01-02' AS day, NULL AS region, b.range AS amount FROM range(10000000) AS a, range(10000000) AS b"
    stopper = threading.Timer(0.5, shop.warehouse.cancel)
    stopper.start()
    with pytest.raises(WarehouseError, match="cancelled"):
        shop.stage(day(2), select=lambda _: endless)
    stopper.join()
    assert shop.warehouse.storage() == ()


def test_a_statement_that_runs_too_long_is_ended(tmp_path: Path) -> None:
    Shop.create(tmp_path)
    shop = Shop.open(tmp_path, statement_timeout=timedelta(seconds=1))
    endless = "SELECT a.range AS id, DATE '2024-01-02' AS day, NULL AS region, b.range AS amount FROM range(10000000) AS a, range(10000000) AS b"
    with pytest.raises(WarehouseError, match="statement_timeout"):
        shop.stage(day(2), select=lambda _: endless)


def test_a_commit_whose_answer_was_lost_is_found_by_its_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(tmp_path)
    old = shop.amounts()
    publication = shop.publication(shop.stage(*RANGE))

    def commit_and_lose_the_answer(*given: Any, **settings: Any) -> None:
        write_deltalake(*given, **settings)
        raise CommitFailedError("a concurrent transaction added new data")

    monkeypatch.setattr(publish, "write_deltalake", commit_and_lose_the_answer)
    receipt = shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.warehouse.receipts(shop.target) == (receipt,)
    assert shop.amounts() == [(date, rows, amount + rows) for date, rows, amount in old]


def test_what_is_read_is_what_is_written_though_the_stage_changes_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(tmp_path)
    old = shop.amounts()
    staged = shop.stage(*RANGE)
    path = tmp_path / "_safe_backfill" / staged.partitions[0].location
    publication = shop.publication(staged)
    racing(monkeypatch, lambda: DeltaTable(path).delete())

    shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.amounts() == [(date, rows, amount + rows) for date, rows, amount in old]
    with pytest.raises((TargetMoved, StageChanged)):
        shop.warehouse.replace_partitions(shop.target, shop.publication(staged))


def test_a_key_that_also_stands_outside_the_range_is_refused_unless_it_may_repeat(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    old, outside = shop.amounts(), shop.outside()
    staged = shop.stage(*RANGE, select=lambda one: corrected(one).replace("SELECT id", "SELECT id + 30 AS id"))

    with pytest.raises(
        PublishRefused, match=r"rows outside the .* with the same id as rows that would land there; nothing"
    ):
        shop.warehouse.replace_partitions(shop.target, shop.publication(staged))
    assert shop.amounts() == old

    shop.warehouse.replace_partitions(shop.target, shop.publication(staged, keys_may_repeat=True))
    assert shop.amounts() != old
    assert shop.outside() == outside


def test_an_attempt_whose_first_commit_failed_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(tmp_path)

    def commit_and_fail(*given: Any, **settings: Any) -> None:
        write_deltalake(*given, **settings)
        raise OSError("the disk is gone")

    monkeypatch.setattr(storage, "write_deltalake", commit_and_fail)
    with pytest.raises(WarehouseError, match="the disk is gone"):
        shop.stage(day(2))
    with pytest.raises(WarehouseError, match="the disk is gone"):
        shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")

    assert shop.warehouse.storage() == ()


def test_the_right_to_go_on_is_asked_for_before_the_commit(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)

    def lost() -> None:
        raise BackfillError("the claim is gone")

    with pytest.raises(BackfillError, match="the claim is gone"):
        shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE), confirm=lost))
    assert shop.table.version() == 0


def test_the_receipt_is_in_the_commit_where_spark_shows_it_and_commits_of_others_are_none(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    receipt = shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
    for text in ("no JSON", "[1]", '{"safe_backfill": 1}', '{"other": {}}'):
        others = CommitProperties(custom_metadata={"userMetadata": text, "backfill_id": "b9"})
        write_deltalake(shop.path, rows_of(order(500, "2024-01-09")), mode="append", commit_properties=others)

    (commit,) = [entry for entry in shop.table.history() if entry["version"] == receipt.sequence]
    assert commit["backfill_id"] == "b1"
    assert '"plan_hash": "p1"' in commit["userMetadata"]
    assert shop.warehouse.receipts(shop.target) == (receipt,)


def test_days_with_holes_between_them_are_one_version_and_the_holes_stay_as_they_are(shop: Shop) -> None:
    chosen = tuple(map(day, (1, 2, 4, 7, 8, 10)))
    version, before = shop.table.version(), shop.fingerprint(*map(day, range(1, 11)))
    staged = shop.stage(*chosen)
    marks = {entry.partition.key: entry.fingerprint for entry in staged.partitions}

    shop.warehouse.replace_partitions(
        shop.target, Publication("b1", Action.PUBLISH, "p1", chosen, staged, {key: before[key] for key in marks}, marks)
    )

    assert shop.table.version() == version + 1
    assert shop.fingerprint(*map(day, range(1, 11))) == before | marks
    assert shop.rows("SELECT count(*) FROM orders WHERE day IS NULL") == [(2,)]


def test_a_rollback_restores_the_range_alone_and_has_a_receipt_of_its_own(shop: Shop) -> None:
    old = shop.amounts()
    backup, before = shop.warehouse.back_up(shop.target, "b1", RANGE, label="before")
    staged = shop.stage(*RANGE)
    shop.warehouse.replace_partitions(shop.target, shop.publication(staged))
    shop.append(order(500, "2024-01-09"))
    outside = shop.outside()

    undo = shop.publication(backup, action=Action.ROLLBACK, after=before)
    shop.warehouse.replace_partitions(shop.target, undo)

    assert shop.amounts() == old
    assert shop.outside() == outside
    assert [receipt.action for receipt in shop.warehouse.receipts(shop.target)] == [Action.PUBLISH, Action.ROLLBACK]


def test_a_row_in_the_stage_that_lies_outside_the_range_does_not_land(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    staged = shop.stage(*RANGE)
    path = tmp_path / "_safe_backfill" / staged.partitions[0].location
    publication, outside = shop.publication(staged), shop.outside()
    stray = rows_of(f"{order(900, '2024-01-09')}, '2024-01-02' AS safe_backfill_partition")
    write_deltalake(path, stray, mode="append")

    shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.outside() == outside


def test_a_row_that_somebody_adds_to_the_stage_after_it_was_validated_is_not_published(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    staged = shop.stage(*RANGE)
    path = tmp_path / "_safe_backfill" / staged.partitions[0].location
    publication, rows = shop.publication(staged), shop.rows("SELECT * FROM orders ORDER BY id")
    stray = rows_of(f"{order(900, '2024-01-02')}, '2024-01-02' AS safe_backfill_partition")
    write_deltalake(path, stray, mode="append")

    with pytest.raises(StageChanged, match=r"2024-01-02 \(expected 10 rows, found 11\)"):
        shop.warehouse.replace_partitions(shop.target, publication)

    assert shop.rows("SELECT * FROM orders ORDER BY id") == rows
    assert shop.warehouse.receipts(shop.target) == ()


def test_a_second_publish_while_a_reader_of_the_first_versions_is_still_open_disturbs_neither(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    old, reader = shop.amounts(), shop.table
    before = reader.to_pyarrow_table().sort_by("id")

    for _ in range(2):
        shop.warehouse.replace_partitions(shop.target, shop.publication(shop.stage(*RANGE)))
        assert reader.to_pyarrow_table().sort_by("id") == before

    assert shop.amounts() == [(date, rows, amount + 2 * rows) for date, rows, amount in old]


def test_readers_see_only_the_old_or_only_the_new_rows_of_thirty_days(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path, partition_by="day")
    month = tuple(map(day, range(1, 31)))
    shop.append(
        "SELECT i AS id, DATE '2024-01-01' + CAST(i // 10 AS INTEGER) AS day, 'eu' AS region, i AS amount FROM range(100, 300) AS t(i)"
    )
    with shop.warehouse.open_stage(shop.target, "b1", "batch-1") as writer:
        staged = Staged(writer.write(*(Recompute((one,), corrected(one)) for one in month)))
    marks = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
    publication = Publication("b1", Action.PUBLISH, "p1", month, staged, shop.fingerprint(*month), marks)
    whole = "SELECT count(*), sum(amount), count(DISTINCT day) FROM orders WHERE day IS NOT NULL"
    ((rows, amount, _),) = old = shop.rows(whole)
    answers: list[list[tuple[Any, ...]]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            answers.append(shop.rows(whole))

    reader = threading.Thread(target=read)
    reader.start()
    while not answers:
        time.sleep(0.01)
    shop.warehouse.replace_partitions(shop.target, publication)
    seen = len(answers)
    while len(answers) < seen + 2:
        time.sleep(0.01)
    stop.set()
    reader.join()

    new = [(rows, amount + rows, 30)]
    assert [answer for answer in answers if answer not in (old, new)] == []
    assert (answers[0], answers[-1]) == (old, new)


def test_many_stagers_write_their_own_tables_at_once(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    staged: list[Staged] = []
    threads = [threading.Thread(target=lambda d=one: staged.append(shop.stage(d))) for one in RANGE]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    together = Staged(tuple(entry for one in staged for entry in one.partitions))
    shop.warehouse.replace_partitions(shop.target, shop.publication(together))

    assert [rows for _, rows, _ in shop.amounts()] == [10, 10, 10]
    assert len({entry.location for entry in together.partitions}) == 3


def test_the_folder_of_stages_is_its_owner_s_alone(tmp_path: Path) -> None:
    shop = Shop.create(tmp_path)
    shop.stage(day(2), select=corrected)
    assert os.stat(tmp_path / "_safe_backfill").st_mode & 0o077 == 0
