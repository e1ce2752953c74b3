from __future__ import annotations

from datetime import UTC, datetime, timedelta

from contract_engines import Engine
from contract_world import World, create_orders, day, days
from stage_writing import write_one

from airflow_backfill_provider.warehouses.base import Published, Staged


def test_a_table_that_was_never_published_to_has_no_receipt(orders: World) -> None:
    tables = orders.engine.tables()

    assert orders.warehouse.receipts(orders.target) == ()
    assert orders.engine.tables() == tables


def test_receipts_come_oldest_first_and_are_numbered_upwards(orders: World) -> None:
    started = datetime.now(UTC) - timedelta(seconds=1)
    for number, key in enumerate(("2024-01-03", "2024-01-02", "2024-01-03")):
        staged = orders.stage_corrected(key)
        orders.warehouse.replace_partitions(
            orders.target, orders.publication(staged, [key], backfill_id=f"b{number}", plan_hash=f"p{number}")
        )

    receipts = orders.warehouse.receipts(orders.target)

    assert [receipt.backfill_id for receipt in receipts] == ["b0", "b1", "b2"]
    assert [receipt.plan_hash for receipt in receipts] == ["p0", "p1", "p2"]
    assert [receipt.keys for receipt in receipts] == [("2024-01-03",), ("2024-01-02",), ("2024-01-03",)]
    sequences = [receipt.sequence for receipt in receipts]
    assert sequences == sorted(set(sequences))
    times = [receipt.committed_at for receipt in receipts]
    assert times == sorted(times)
    assert started <= times[0]
    assert times[-1] <= datetime.now(UTC) + timedelta(seconds=1)


def test_a_receipt_names_every_partition_however_many(orders: World) -> None:
    keys = [f"2024-03-{number:02}" for number in range(1, 32)]
    orders.warehouse.replace_partitions(
        orders.target, orders.publication(orders.stage_rows({key: [] for key in keys}), keys)
    )

    assert orders.warehouse.receipts(orders.target)[0].keys == tuple(keys)


def test_each_table_has_receipts_of_its_own(engine: Engine, orders: World) -> None:
    engine.execute(create_orders(engine, "analytics.twin"))
    twin = orders.warehouse.describe("analytics.twin", orders.partition_by, ["order_id"])
    staged = orders.stage_corrected("2024-01-02")
    orders.warehouse.replace_partitions(orders.target, orders.publication(staged, ["2024-01-02"]))
    before = orders.warehouse.fingerprint(twin, Published(), days("2024-01-02"))
    with orders.warehouse.open_stage(twin, "b2", "batch-1") as writer:
        twin_staged = Staged((write_one(writer, day("2024-01-02"), orders.select("2024-01-02")),))
    orders.warehouse.replace_partitions(
        twin, orders.publication(twin_staged, ["2024-01-02"], before=before, backfill_id="b2")
    )

    assert [receipt.backfill_id for receipt in orders.warehouse.receipts(orders.target)] == ["b1"]
    assert [receipt.backfill_id for receipt in orders.warehouse.receipts(twin)] == ["b2"]
