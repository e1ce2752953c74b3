"""Staging and backing up with a DuckDB file, with real processes."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from duckdb_shop import RANGE, SHORT, Shop, corrected, day, days, process, run_process
from stage_writing import write_one

from airflow_backfill_provider.errors import LockTimeout, PartitionOverrun, WarehouseError
from airflow_backfill_provider.warehouses.base import Published, Staged, StagedPartition
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.create(tmp_path)


def test_rows_outside_the_partition_are_refused_with_their_count_and_span(shop: Shop) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        kept = write_one(stage, day(2), corrected(day(2)))
        with pytest.raises(
            PartitionOverrun, match=r"91 of its 102 rows.* 2024-01-01 to 2024-01-10, and 1 have no day"
        ) as refused:
            write_one(stage, day(3), "SELECT * FROM analytics.orders UNION ALL SELECT -2, DATE '2024-01-01', 0, ''")
        assert "2024-01-03" in str(refused.value)

    found = shop.warehouse.fingerprint(
        shop.target, Staged((kept, StagedPartition(day(3), stage.location, kept.fingerprint))), days(2, 3)
    )
    assert found == {day(2).key: kept.fingerprint, day(3).key: shop.fingerprint(day(20))[day(20).key]}


def test_rows_that_belong_to_a_partition_staged_before_are_an_overrun_too(shop: Shop) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        write_one(stage, day(2), corrected(day(2)))
        with pytest.raises(PartitionOverrun, match="10 of its 10 rows"):
            write_one(stage, day(3), corrected(day(2)))


@pytest.mark.parametrize(
    ("select", "named"),
    [
        ("SELECT id, day, amount FROM analytics.orders", "note"),
        ("SELECT *, 1 AS more FROM analytics.orders", "more"),
        ("SELECT id, day, amount, note, id FROM analytics.orders", "id"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("DELETE FROM analytics.orders", "one SELECT"),
        ("SELECT * FROM analytics.orders) AS s; DELETE FROM analytics.orders; --", "failed"),
        ("WITH gone AS (DELETE FROM analytics.orders RETURNING *) SELECT * FROM gone", "top level"),
        ("SELECT id, day, 'many' AS amount, note FROM analytics.orders", "Could not convert"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_file(shop: Shop, select: str, named: str) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage, pytest.raises(WarehouseError, match=named):
        write_one(stage, day(2), select)

    assert shop.warehouse.storage() == ()
    assert shop.rows("SELECT count(*) FROM analytics.orders") == [(101,)]


def test_writing_a_partition_again_replaces_what_the_attempt_wrote(shop: Shop) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        write_one(stage, day(2), corrected(day(2)))
        again = write_one(stage, day(2), corrected(day(2)) + " LIMIT 3")

    assert again.fingerprint.rows == 3
    assert shop.warehouse.fingerprint(shop.target, Staged((again,)), days(2)) == {day(2).key: again.fingerprint}


def test_the_warehouse_is_free_between_partitions(shop: Shop, tmp_path: Path) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        write_one(stage, day(2), corrected(day(2)))
        wrote = run_process(
            tmp_path,
            "duckdb.connect(str(folder / 'shop.duckdb')).execute(\"INSERT INTO analytics.orders VALUES (500, '2024-01-03', 0, '')\")",
        )
        staged = write_one(stage, day(3), corrected(day(3)))

    assert wrote.returncode == 0
    assert staged.fingerprint.rows == 11


def test_names_with_the_file_s_own_database_mean_the_warehouse(shop: Shop) -> None:
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        staged = write_one(stage, day(2), corrected(day(2)).replace("analytics.orders", "shop.analytics.orders"))

    assert staged.fingerprint.rows == 10


def test_a_file_called_memory_works(tmp_path: Path) -> None:
    Shop.create(tmp_path).path.rename(tmp_path / "memory.duckdb")
    warehouse = DuckDBWarehouse(tmp_path / "memory.duckdb")

    assert warehouse.describe("analytics.orders", "day", ["id"]).clock.kind == "date"


def test_a_process_that_has_the_file_open_already_can_stage_and_publish(shop: Shop) -> None:
    with duckdb.connect(str(shop.path)) as own:
        own.execute("INSERT INTO analytics.orders VALUES (500, '2024-01-03', 0, '')")
        staged = shop.stage(*RANGE)
        backup, baseline = shop.warehouse.back_up(shop.target, "b1", RANGE, label="x")
        counted = shop.warehouse.count_rows(
            shop.target, Staged(staged.partitions[1:2]), "FROM stage ANTI JOIN analytics.orders USING (id, amount)"
        )
        shop.warehouse.replace_partitions(shop.target, shop.publication(staged))

        assert own.execute(
            "SELECT count(*), sum(amount) FROM analytics.orders WHERE day = '2024-01-03'"
        ).fetchone() == (11, 256)
        assert own.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall() == [("shop",)]
        with pytest.raises(WarehouseError, match="top level"):
            shop.warehouse.count_rows(
                shop.target,
                Staged(staged.partitions[:1]),
                "WITH w AS (DELETE FROM analytics.orders RETURNING *) FROM w",
            )
    assert counted == 11
    assert shop.warehouse.fingerprint(shop.target, backup, RANGE) == baseline


def test_a_missing_warehouse_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path / "nope.duckdb")

    with pytest.raises(WarehouseError, match=r"no DuckDB file at .*nope\.duckdb"):
        warehouse.describe("analytics.orders", "day", ["id"])
    assert not (tmp_path / "nope.duckdb").exists()


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000])
def test_a_file_that_is_no_database_is_an_error_at_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.duckdb").write_bytes(content)

    with pytest.raises(WarehouseError, match="not a valid DuckDB database"):
        DuckDBWarehouse(tmp_path / "broken.duckdb").describe("analytics.orders", "day", ["id"])
    assert (tmp_path / "broken.duckdb").read_bytes() == content


def test_a_held_file_is_waited_for_and_the_holder_is_named(shop: Shop, tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(shop.path, lock_timeout=SHORT)
    publication = shop.publication(shop.stage(*RANGE))
    with process(
        tmp_path, "c = duckdb.connect(str(folder / 'shop.duckdb')); print('held', flush=True); time.sleep(60)"
    ) as holder:
        with pytest.raises(LockTimeout, match=rf"PID {holder.pid}"):
            warehouse.fingerprint(shop.target, Published(), RANGE)
        with pytest.raises(LockTimeout, match=rf"PID {holder.pid}"):
            warehouse.replace_partitions(shop.target, publication)


def test_a_file_that_is_let_go_in_time_is_read(shop: Shop, tmp_path: Path) -> None:
    with process(
        tmp_path,
        "c = duckdb.connect(str(folder / 'shop.duckdb')); print('held', flush=True); time.sleep(1); c.close(); time.sleep(60)",
    ):
        assert shop.fingerprint(day(2))[day(2).key].rows == 10


def test_locations_hold_nothing_of_the_host_and_nothing_outside_is_touched(shop: Shop, tmp_path: Path) -> None:
    staged = shop.stage(day(2))
    outside = tmp_path / "stage-precious.duckdb"
    outside.write_bytes(b"precious")
    (tmp_path / "shop.duckdb.backfill" / "b2").symlink_to(tmp_path)

    assert staged.partitions[0].location.startswith("b1/stage-batch-1-")
    for location in (
        "../stage-precious.duckdb",
        str(outside),
        "b2/stage-precious.duckdb",
        "b1/../../stage-precious.duckdb",
        "gate",
        "",
    ):
        with pytest.raises(WarehouseError, match="not the location"):
            shop.warehouse.drop(location)
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize("word", ["", "../x", "a b", "x" * 65, "a/b", "é"])
def test_an_id_or_label_that_is_no_plain_word_is_refused(shop: Shop, word: str) -> None:
    for backfill_id, label in ((word, "x"), ("b1", word)):
        with (
            pytest.raises(WarehouseError, match="cannot name a file"),
            shop.warehouse.open_stage(shop.target, backfill_id, label),
        ):
            pass


def test_only_the_owner_can_read_stages(shop: Shop) -> None:
    shop.stage(day(2))

    assert shop.path.with_name("shop.duckdb.backfill").stat().st_mode & 0o077 == 0


def test_a_dropped_stage_is_gone_with_its_log_and_says_so(shop: Shop) -> None:
    staged = shop.stage(day(2))
    location = staged.partitions[0].location
    log = shop.path.with_name("shop.duckdb.backfill") / (location + ".wal")
    log.write_bytes(b"")

    shop.warehouse.drop(location)
    shop.warehouse.drop(location)

    assert not log.exists()
    with pytest.raises(WarehouseError, match="is gone"):
        shop.warehouse.fingerprint(shop.target, staged, days(2))


def test_a_partition_that_is_not_in_the_backup_is_an_error_not_an_empty_partition(shop: Shop) -> None:
    backup, _ = shop.warehouse.back_up(shop.target, "b1", days(2, 3), label="x")

    with pytest.raises(WarehouseError, match="2024-01-04 is not in"):
        shop.warehouse.fingerprint(shop.target, backup, RANGE)


def test_the_host_s_zone_does_not_change_what_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Shop.create(tmp_path)
    select = corrected(day(2)).replace(
        "note FROM", "CAST(CAST(TIMESTAMPTZ '2024-01-02 00:00:00+00' AS DATE) AS VARCHAR) AS note FROM"
    )
    body = f"""
shop = Shop.open(folder)
with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
    print(write_one(stage, day(2), {select!r}).fingerprint.digest)
"""
    digests = set()
    for zone in ("UTC", "America/Chicago", "Asia/Kolkata"):
        monkeypatch.setenv("TZ", zone)
        digests.add(run_process(tmp_path, body).stdout)

    assert len(digests) == 1
    assert digests != {""}


def test_a_statement_that_runs_too_long_is_ended_and_says_so(shop: Shop) -> None:
    warehouse = DuckDBWarehouse(shop.path, statement_timeout=timedelta(seconds=0.5))
    slow = "SELECT id, day, sum(hash(a.i, b.i)) AS amount, note FROM analytics.orders, range(1000000) a(i), range(1000000) b(i) GROUP BY ALL"
    with warehouse.open_stage(shop.target, "b1", "x") as stage:
        with pytest.raises(WarehouseError, match="statement_timeout"):
            write_one(stage, day(2), slow)
        assert write_one(stage, day(2), corrected(day(2))).fingerprint.rows == 10


def test_tasks_that_share_a_host_share_its_cores_and_the_users_setting_comes_first(shop: Shop) -> None:
    def threads(**settings: Any) -> int:
        with DuckDBWarehouse(shop.path, **settings).open_stage(shop.target, "b1", "x") as stage:
            write_one(stage, day(2), corrected(day(2)))
            ((number,),) = stage._session.run("SELECT current_setting('threads')")
            return int(number)

    cores = len(os.sched_getaffinity(0))
    assert threads() == cores
    assert threads(sharers=cores) == threads(sharers=1000) == 1
    assert threads(sharers=cores, config={"threads": 3}) == 3


def test_a_stage_leaves_the_session_as_it_was(shop: Shop) -> None:
    groups = "SELECT current_setting('write_buffer_row_group_count')"
    with shop.warehouse._door.session() as session:
        before = session.run(groups)
    with shop.warehouse.open_stage(shop.target, "b1", "x") as stage:
        write_one(stage, day(2), corrected(day(2)))
        assert stage._session.run(groups) == [(1,)]

    assert stage._session.run(groups) == before
