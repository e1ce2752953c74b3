"""A DAG that reads the table waits, outside of any worker, while a backfill restates what it reads."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.errors import LedgerUnavailable
from airflow_backfill_provider.operators import settled
from airflow_backfill_provider.operators.settled import PartitionSettledSensor, PartitionSettledTrigger


def consumer(shop: Shop, **arguments: Any) -> DAG:
    with DAG("digest", schedule=None) as dag:
        PartitionSettledSensor(task_id="settled", spec=shop.spec_file, **arguments)
    return dag


def planned(shop: Shop) -> HandRun:
    backfill = HandRun(wired(shop.spec, request=OF_THE_DAY))
    backfill.execute("plan_it")
    return backfill


def deferred(shop: Shop, **arguments: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as wait:
        HandRun(consumer(shop, **arguments)).execute("settled")
    return wait.value


async def first(trigger: PartitionSettledTrigger) -> dict[str, str]:
    return (await anext(aiter(trigger.run()))).payload


def test_it_goes_on_at_once_when_no_backfill_owns_what_the_run_reads(shop: Shop) -> None:
    assert set(HandRun(consumer(shop)).run().values()) == {"success"}
    planned(shop)
    assert set(HandRun(consumer(shop, partitions=["{{ data_interval_end | ds }}"])).run().values()) == {"success"}
    DagSerialization.from_dict(DagSerialization.to_dict(consumer(shop)))


def test_it_waits_in_the_triggerer_until_the_backfill_has_ended(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = planned(shop)
    wait = deferred(shop, poke_interval=1, timeout=timedelta(hours=12))
    path, arguments = wait.trigger.serialize()
    assert path == f"{PartitionSettledTrigger.__module__}.PartitionSettledTrigger"
    assert arguments["every"] == 10, "a shorter deferral gets lost"
    assert (wait.method_name, wait.timeout) == ("go_on", timedelta(hours=12))
    ran = []

    async def until_it_ended(seconds: float) -> None:
        ran.append(seconds)
        await asyncio.to_thread(backfill.run)

    monkeypatch.setattr("airflow_backfill_provider.operators.settled.asyncio.sleep", until_it_ended)
    event = asyncio.run(first(PartitionSettledTrigger(**arguments)))
    assert ran == [10]
    assert shop.corrected() == [4]
    dag = consumer(shop)
    dag.task_dict["settled"].go_on({}, event)


def test_a_ledger_that_cannot_be_read_is_not_taken_for_settled(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(shop)
    wait = deferred(shop)
    monkeypatch.setenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER", '{"conn_type": "sqlite", "host": "relative.db"}')
    with pytest.raises(AirflowException, match="give an absolute path") as first_look:
        HandRun(consumer(shop)).execute("settled")
    assert not isinstance(first_look.value, AirflowFailException), "a retry may find it"
    event = asyncio.run(first(wait.trigger))
    with pytest.raises(AirflowException, match="give an absolute path"):
        consumer(shop).task_dict["settled"].go_on({}, event)


def test_a_ledger_that_is_away_for_some_minutes_is_asked_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill, wait = planned(shop), deferred(shop)
    looks: list[str] = []

    def away(target: str, spans: Any) -> Any:
        looks.append(target)
        if len(looks) < 4:
            raise LedgerUnavailable("The ledger is away.")
        return look(target, spans)

    async def passing(seconds: float) -> None:
        clock.append(clock[-1] + seconds)

    look, clock = settled._restating, [0.0]
    monkeypatch.setattr(settled, "_restating", away)
    monkeypatch.setattr(settled.asyncio, "sleep", passing)
    monkeypatch.setattr(settled, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    backfill.run()
    assert "settled" in asyncio.run(first(wait.trigger))

    monkeypatch.setattr(settled, "_restating", lambda *_: away("", ()) if looks.clear() is None else None)
    assert asyncio.run(first(wait.trigger)) == {"error": "The ledger is away."}
    assert 300 < clock[-1] < 600


@pytest.mark.parametrize("spans", [[["2024-03-04T00:00:00+00:00", "2024-03-05T00:00:00+00:00"]], ["eu", "us"]])
def test_the_trigger_survives_being_stored(spans: list[Any]) -> None:
    trigger = PartitionSettledTrigger(target="analytics.orders", spans=spans, every=60)
    _, arguments = trigger.serialize()
    assert PartitionSettledTrigger(**arguments).serialize() == trigger.serialize()
