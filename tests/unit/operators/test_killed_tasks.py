"""What Airflow does to end a task, by a hand or by a timeout, ends its statement in the warehouse."""

from __future__ import annotations

import threading

import pytest
from airflow.sdk.exceptions import AirflowException
from hand_run import HandRun
from operators_world import SQL, Shop, wired

from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import PartitionState

ENDLESS = SQL.rstrip() + "\n  AND (SELECT sum(sqrt(i)) FROM range(1000000000000) AS t (i)) IS NOT NULL\n"


def test_a_killed_task_ends_its_statement_and_its_partition_can_be_staged_again(shop: Shop) -> None:
    (shop.folder / "orders.sql").write_text(ENDLESS, encoding="utf-8")
    run = HandRun(wired(shop.spec, request={"partitions": ["2024-03-04"]}))
    run.execute("plan_it")
    (batch,) = run.xcoms["plan_it", "return_value"]
    task = run.dag.task_dict["stage"].unmap({"batch": batch})
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.2):  # the first may come before the statement
            task.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(AirflowException):
            task.execute(run.context(task, 0))
    finally:
        over.set()
        killer.join()
    with shop.ledger() as ledger:
        (record,) = ledger.partitions(backfill_id("by_hand", run.run_id)).values()
    assert record.state is PartitionState.STAGING
    assert record.location is None
