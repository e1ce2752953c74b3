from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

import pytest
from stage_writing import write_one

from airflow_backfill_provider.errors import TargetMoved, WarehouseError
from airflow_backfill_provider.warehouses.base import (
    Action,
    Fingerprint,
    Publication,
    Published,
    Rows,
    Staged,
    Target,
    Warehouse,
)
from airflow_backfill_provider.warehouses.memory import MemoryWarehouse
from airflow_backfill_provider.windows import Grain, Partition, partition_at

DAY = partition_at(date(2024, 1, 2), Grain.DAY)


@pytest.fixture
def warehouse() -> MemoryWarehouse:
    return MemoryWarehouse({"mart.orders": {"id": "BIGINT NOT NULL", "d": "DATE", "amount": "DECIMAL(12,2)"}})


def test_it_is_a_warehouse(warehouse: MemoryWarehouse) -> None:
    checked: Warehouse = warehouse

    assert checked.capabilities.engine.startswith("memory")


def test_it_can_be_cancelled_and_used_afterwards(warehouse: MemoryWarehouse) -> None:
    warehouse.cancel()

    assert warehouse.rows("mart.orders") == []


def test_rows_are_inserted_and_read_by_name(warehouse: MemoryWarehouse) -> None:
    warehouse.insert("mart.orders", [{"d": date(2024, 1, 2), "id": 1}, {"id": 2, "amount": "1.5"}][:1])

    assert warehouse.rows("mart.orders") == [{"id": 1, "d": date(2024, 1, 2), "amount": None}]
    assert warehouse.query("SELECT count(*) AS n FROM mart.orders WHERE amount IS NULL") == [(1,)]


@pytest.mark.parametrize("row", [{"d": date(2024, 1, 2)}, {"id": 1, "amount": Decimal("0.001")}, {"id": 1, "nope": 1}])
def test_a_row_that_does_not_fit_is_refused_and_none_is_kept(
    warehouse: MemoryWarehouse, row: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="column"):
        warehouse.insert("mart.orders", [{"id": 7}, row])

    assert warehouse.rows("mart.orders") == []


def test_a_null_where_none_is_allowed_is_not_staged(warehouse: MemoryWarehouse) -> None:
    target = warehouse.describe("mart.orders", "d", ["id"])

    with warehouse.open_stage(target, "b1", "x") as writer, pytest.raises(WarehouseError, match="'id' takes no NULL"):
        write_one(writer, DAY, "SELECT NULL AS id, DATE '2024-01-02' AS d, 1 AS amount")


def test_a_stage_can_be_read_by_the_statement_of_a_report(warehouse: MemoryWarehouse) -> None:
    target = warehouse.describe("mart.orders", "d", ["id"])
    with warehouse.open_stage(target, "b1", "x") as writer:
        staged = write_one(writer, DAY, "SELECT 1 AS id, DATE '2024-01-02' AS d, 1 AS amount")

    assert warehouse.query(f'SELECT id FROM "{staged.location}/{DAY.key}"') == [(1,)]


def test_readers_see_the_old_rows_or_the_new_rows_and_never_a_mixture(warehouse: MemoryWarehouse) -> None:
    target = warehouse.describe("mart.orders", "d", ["id"])
    stages = []
    for number in range(2):
        select = " UNION ALL ".join(
            f"SELECT {key} AS id, DATE '2024-01-02' AS d, {number} AS amount" for key in range(20 + 10 * number)
        )
        with warehouse.open_stage(target, "b1", "x") as writer:
            stages.append(write_one(writer, DAY, select))
    seen: set[tuple[int, frozenset[object]]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            rows = warehouse.rows("mart.orders")
            seen.add((len(rows), frozenset(row["amount"] for row in rows)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(60):
            staged = stages[number % 2]
            warehouse.replace_partitions(
                target,
                Publication(
                    backfill_id="b1",
                    action=Action.PUBLISH,
                    plan_hash="p1",
                    partitions=(DAY,),
                    rows=Staged((staged,)),
                    before=warehouse.fingerprint(target, Published(), [DAY]),
                    after={DAY.key: staged.fingerprint},
                ),
            )
    finally:
        done.set()
        reader.join()

    assert seen <= {(0, frozenset()), (20, frozenset({Decimal(0)})), (30, frozenset({Decimal(1)}))}
    assert [receipt.sequence for receipt in warehouse.receipts(target)] == list(range(1, 61))


class _Unhurried(MemoryWarehouse):
    """Lets the other thread run between the check of the range and its replacement."""

    def fingerprint(self, target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        answer = super().fingerprint(target, rows, partitions)
        time.sleep(0.02)
        return answer


def test_a_range_cannot_move_between_its_check_and_its_replacement() -> None:
    warehouse = _Unhurried({"mart.orders": {"id": "BIGINT", "d": "DATE"}})
    target = warehouse.describe("mart.orders", "d", ["id"])
    with warehouse.open_stage(target, "b1", "x") as writer:
        staged = write_one(writer, DAY, "SELECT 1 AS id, DATE '2024-01-02' AS d")
    before = warehouse.fingerprint(target, Published(), [DAY])
    publication = Publication(
        "b1", Action.PUBLISH, "p1", (DAY,), Staged((staged,)), before, {DAY.key: staged.fingerprint}
    )
    refused: list[TargetMoved] = []
    start = threading.Barrier(3)

    def publish() -> None:
        start.wait()
        try:
            warehouse.replace_partitions(target, publication)
        except TargetMoved as error:
            refused.append(error)

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 2
    assert len(warehouse.receipts(target)) == 1


def test_a_row_inserted_while_a_range_is_replaced_is_not_lost() -> None:
    warehouse = _Unhurried({"mart.orders": {"id": "BIGINT", "d": "DATE"}})
    target = warehouse.describe("mart.orders", "d", ["id"])
    with warehouse.open_stage(target, "b1", "x") as writer:
        staged = write_one(writer, DAY, "SELECT 1 AS id, DATE '2024-01-02' AS d")
    before = warehouse.fingerprint(target, Published(), [DAY])
    publication = Publication(
        "b1", Action.PUBLISH, "p1", (DAY,), Staged((staged,)), before, {DAY.key: staged.fingerprint}
    )
    publisher = threading.Thread(target=warehouse.replace_partitions, args=(target, publication))
    publisher.start()
    for number in range(20):
        warehouse.insert("mart.orders", [{"id": 100 + number, "d": date(2024, 1, 9)}])
    publisher.join()

    assert len(warehouse.rows("mart.orders")) == 21
