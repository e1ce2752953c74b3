"""What was published and is not what a recompute would give now: the source moved since, or something overwrote it."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from datetime import timedelta

import pytest
from contract_engines import Delta
from sqlalchemy import text
from steps_world import DAYS, NOW, PER_DAY, World, make_spec

from airflow_backfill_provider.errors import RequestError, SourceMoved
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.stale import Stale, Staleness, _published, find_stale

WATERMARKED = {"table": "raw.orders", "partition_by": "order_date", "watermark": "ingested_at"}


class Lent:
    """The world's warehouse, which stays open."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __getattr__(self, name: str) -> object:
        return getattr(self.world.warehouse, name)

    def close(self) -> None:
        pass


def stale(world: World) -> Staleness:
    return find_stale(world.ledger, "orders", lambda _: Lent(world))


def lines(world: World) -> dict[str, str]:
    return {one.key: "; ".join(filter(None, (one.source_moved, one.overwritten))) for one in stale(world).stale}


@pytest.fixture
def watermarked(world: World) -> World:
    world.engine.execute(
        "ALTER TABLE raw.orders ADD COLUMN ingested_at TIMESTAMP DEFAULT TIMESTAMP '2024-05-01 08:00:00'"
    )
    world.spec = make_spec(source=WATERMARKED)
    return world


def test_nothing_is_stale_right_after_a_publish_and_what_arrived_since_is(watermarked: World) -> None:
    world = watermarked
    world.run()
    assert stale(world) == Staleness(len(DAYS), ())
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[1]}', 1, 'late', FALSE, TIMESTAMP '2024-06-02 09:00:00')",
        f"UPDATE raw.orders SET amount = 0, ingested_at = TIMESTAMP '2024-06-03 09:00:00' WHERE order_date = DATE '{DAYS[4]}'",
    )
    assert lines(world) == {
        DAYS[
            1
        ]: f"raw.orders has {PER_DAY + 1} rows, had {PER_DAY}; its newest ingested_at is 2024-06-02T09:00:00, was 2024-05-01T08:00:00",
        DAYS[4]: "its newest ingested_at is 2024-06-03T09:00:00, was 2024-05-01T08:00:00",
    }


def test_the_printed_request_recomputes_exactly_those_and_then_nothing_is_stale(watermarked: World) -> None:
    world = watermarked
    world.run()
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[1]}', 1, 'late', FALSE, TIMESTAMP '2024-06-02 09:00:00')",
        f"DELETE FROM analytics.orders WHERE order_id = {5 * 100 + 1}",
    )
    found = stale(world)
    assert [one.key for one in found.stale] == [DAYS[1], DAYS[5]]
    (request,) = map(json.loads, found.requests)
    assert request["reason"] == "stale: 1 whose source moved, 1 overwritten"
    world.run_id, world.spec = "run 2", make_spec(source=WATERMARKED, compare=[])
    world.run(**request)
    assert stale(world) == Staleness(len(DAYS), ())
    assert world.amounts(DAYS[1])[777] == 1


def test_more_keys_than_one_argument_of_a_command_holds_are_asked_for_by_several() -> None:
    keys = [f"2024-{number:06d}T00" for number in range(8760)]
    requests = Staleness(8760, tuple(Stale(key, "0123456789ab", "moved", "") for key in keys)).requests
    assert all(len(request) < 128 * 1024 for request in requests)
    asked = [json.loads(request) for request in requests]
    assert [key for request in asked for key in request["partitions"]] == keys
    assert {request["reason"] for request in asked} == {
        "stale: 8760 whose source moved, 0 overwritten".removesuffix(", 0 overwritten")
    }


def test_a_publish_from_a_host_whose_clock_is_slow_is_the_newest_all_the_same(world: World) -> None:
    world.run()
    world.run_id = "run 2"
    world.engine.execute("UPDATE raw.orders SET amount = amount + 1 WHERE NOT refunded")
    world.spec = make_spec(compare=[])
    world.run()
    with world.ledger._engine.write() as connection:
        connection.execute(
            text("UPDATE safe_backfill_partition SET updated_at = '2001-01-01 00:00:00' WHERE backfill_id = :id"),
            {"id": world.id},
        )
    assert lines(world) == {}
    assert [found for found, _, _ in _published(world.ledger, "orders")] == [world.id]


def test_a_backfill_that_stopped_between_two_units_counts_for_those_it_published(world: World) -> None:
    world.run()
    world.run_id = "run 2"
    world.engine.execute("UPDATE raw.orders SET amount = amount + 1 WHERE NOT refunded")
    world.spec = make_spec(compare=[])
    world.prepare()
    world.engine.execute(f"UPDATE analytics.orders SET amount = amount + 1 WHERE order_date = DATE '{DAYS[0]}'")
    world.ledger.move_partitions(world.id, [DAYS[0]], PartitionState.PUBLISHED, by="tester")
    assert lines(world) == {}
    assert sorted(len(own) for _, _, own in _published(world.ledger, "orders")) == [1, len(DAYS) - 1]


def test_a_plan_that_kept_no_newest_arrival_is_judged_by_its_rows(
    watermarked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_backfill_provider.source_reading.SourceReading.newest_arrivals", lambda *_: {})
    watermarked.run()
    monkeypatch.undo()
    assert lines(watermarked) == {}
    watermarked.engine.execute(f"DELETE FROM raw.orders WHERE order_id = 100 AND order_date = DATE '{DAYS[1]}'")
    assert lines(watermarked) == {DAYS[1]: f"raw.orders has {PER_DAY - 1} rows, had {PER_DAY}"}


def test_a_late_task_that_wrote_the_old_rows_back_is_told_from_a_source_that_moved(world: World) -> None:
    world.run()
    world.engine.execute(
        f"UPDATE analytics.orders SET amount = 310 WHERE order_id = 300 AND order_date = DATE '{DAYS[3]}'"
    )
    (one,) = stale(world).stale
    assert (one.key, one.backfill_id, one.source_moved) == (DAYS[3], world.id, "")
    assert one.overwritten == f"overwritten since it was published: {PER_DAY} rows, published were {PER_DAY}"


def test_rows_that_a_cutoff_left_out_make_their_partition_stale(watermarked: World) -> None:
    world = watermarked
    world.spec = make_spec(
        source={"table": "raw.orders", "partition_by": "order_date", "cutoff": {"column": "ingested_at"}}
    )
    scoped = world.scope()
    late = (NOW + timedelta(minutes=5)).replace(tzinfo=None)
    world.engine.execute(f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[2]}', 1, 'late', FALSE, TIMESTAMP '{late}')")
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    assert list(lines(world)) == [DAYS[2]]


def test_what_was_rolled_back_is_nobodys_and_an_unknown_name_is_an_error(world: World) -> None:
    world.run()
    world.rollback()
    assert stale(world) == Staleness(0, ())
    with pytest.raises(RequestError, match="no backfill of 'flights'"):
        find_stale(world.ledger, "flights", lambda _: Lent(world))


@pytest.mark.parametrize("world", [Delta], ids=["delta"], indirect=True)
def test_with_versions_an_unmoved_source_is_not_even_read_and_without_a_source_the_table_is_named(world: World) -> None:
    pytest.importorskip("deltalake")
    world.spec = make_spec(source=None, compare=[])
    world.run()
    assert stale(world) == Staleness(len(DAYS), ())
    world.engine.execute(f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[1]}', 1, 'late', FALSE)")
    assert set(lines(world)) == set(DAYS)
    assert lines(world)[DAYS[0]].startswith("raw.orders is at version ")


@pytest.mark.parametrize("world", [Delta], ids=["delta"], indirect=True)
def test_what_a_rebase_left_as_it_was_staged_is_of_the_version_before(world: World) -> None:
    pytest.importorskip("deltalake")
    world.spec = make_spec(source=None, compare=[])
    world.prepare()
    world.engine.execute(
        f"UPDATE raw.orders SET amount = 0 WHERE order_date = DATE '{DAYS[5]}'",
        f"UPDATE analytics.orders SET amount = 0 WHERE order_date = DATE '{DAYS[2]}'",
    )
    world.run(rebase=True)
    assert set(lines(world)) == set(DAYS) - {DAYS[2]}


def test_a_rebase_recomputes_what_was_changed_in_place_when_a_watermark_tells(watermarked: World) -> None:
    world = watermarked
    world.prepare()
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[2]}', 1, 'late', FALSE, TIMESTAMP '2024-06-02 09:00:00')",
        f"UPDATE raw.orders SET amount = 0, ingested_at = TIMESTAMP '2024-06-03 09:00:00' WHERE order_date = DATE '{DAYS[5]}'",
    )
    world.spec = make_spec(source=WATERMARKED, compare=[])
    world.run(rebase=True)
    assert {amount for amount in world.amounts(DAYS[5]).values() if amount is not None} == {0}
    assert stale(world) == Staleness(len(DAYS), ())


def test_a_watermark_that_is_added_later_counts_nothing_anew(watermarked: World) -> None:
    world = watermarked
    world.spec = make_spec(source={"table": "raw.orders", "partition_by": "order_date"}, compare=[])
    world.prepare()
    world.engine.execute(
        f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[1]}', 1, 'late', FALSE, TIMESTAMP '2024-06-02 09:00:00')"
    )
    world.spec = make_spec(source=WATERMARKED, compare=[])
    with pytest.raises(SourceMoved, match=DAYS[1]):
        world.run()


def test_the_command_prints_the_request_and_fails_when_it_is_asked_to(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow_backfill_provider.cli import staleness

    class Kept:
        def __enter__(self) -> object:
            return world.ledger

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(staleness, "open_ledger", Kept)
    monkeypatch.setattr(
        staleness, "warehouse_for", lambda spec: Lent(world) if isinstance(spec, BackfillSpec) else None
    )
    world.run()
    capsys.readouterr()
    staleness.stale(Namespace(name="orders", fail=True))
    assert capsys.readouterr().out == f"None of {len(DAYS)} published partitions of orders is stale.\n"
    world.engine.execute(f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[1]}', 1, 'late', FALSE)")
    staleness.stale(Namespace(name="orders", fail=False))
    with pytest.raises(SystemExit) as ended:
        staleness.stale(Namespace(name="orders", fail=True))
    assert ended.value.code == 1
    request = f'{{"partitions": ["{DAYS[1]}"], "reason": "stale: 1 whose source moved"}}'
    assert f"airflow dags trigger backfill__orders --conf '{request}'" in capsys.readouterr().out
    quoted = Staleness(1, (Stale("l'été", "b", "moved", ""),))
    monkeypatch.setattr(staleness, "find_stale", lambda *_: quoted)
    staleness.stale(Namespace(name="orders", fail=False))
    command = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(shlex.split(command)[-1])["partitions"] == ["l'été"]
