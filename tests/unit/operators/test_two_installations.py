"""Two Airflow installations share a ledger: their runs have the same ids, and are never taken for one another."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.exceptions import AirflowException
from hand_run import START, HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.identity import backfill_id, claim_id
from airflow_backfill_provider.ledger.records import AirflowTask
from airflow_backfill_provider.operators.guard import guard

HERE, THERE = START, START + timedelta(milliseconds=1)
"""When each of the two began its run."""


class Write(BaseOperator):
    def execute(self, context: Any) -> None:
        """Writes nothing."""


def daily(shop: Shop) -> DAG:
    with DAG("daily", schedule=None) as dag:
        guard(shop.spec, Write(task_id="publish"), patience=timedelta(0))
    return dag


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda name: monkeypatch.setenv("AIRFLOW__SAFE_BACKFILL__INSTALLATION", name)


def test_of_two_named_installations_one_run_waits_for_the_run_of_the_other(shop: Shop, named: Any) -> None:
    named("east")
    HandRun(daily(shop)).execute("guard_publish")
    named("west")
    with pytest.raises(AirflowException, match=r"of DAG 'daily' .* of installation 'east' is writing"):
        HandRun(daily(shop)).execute("guard_publish")
    assert HandRun(daily(shop)).execute("release_publish") is False
    named("east")
    assert HandRun(daily(shop)).execute("release_publish") is True


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_without_names_a_run_that_began_at_another_moment_takes_over_no_claim(shop: Shop, attempt: int) -> None:
    HandRun(daily(shop), started_at=HERE).execute("guard_publish")
    with pytest.raises(AirflowException, match=re.escape("[safe_backfill] installation")):
        HandRun(daily(shop), started_at=THERE).execute("guard_publish", attempt)
    HandRun(daily(shop), started_at=HERE).execute("guard_publish", attempt=2)


def test_a_run_that_was_cleared_takes_over_the_claim_that_it_left(shop: Shop) -> None:
    HandRun(daily(shop), started_at=HERE).execute("guard_publish")
    HandRun(daily(shop), started_at=THERE, clear_number=1).execute("guard_publish", attempt=2)
    with pytest.raises(AirflowException, match="installation"):
        HandRun(daily(shop), started_at=HERE).execute("guard_publish", attempt=3)


def test_without_names_a_scheduled_backfill_of_the_same_run_id_is_not_resumed(shop: Shop) -> None:
    HandRun(wired(shop.spec, request=OF_THE_DAY), started_at=HERE).execute("plan_it")
    with pytest.raises(AirflowException, match=re.escape("[safe_backfill] installation")):
        HandRun(wired(shop.spec, request=OF_THE_DAY), started_at=THERE).execute("plan_it")
    found = backfill_id("by_hand", "scheduled__2024-03-04")
    with shop.ledger() as ledger:
        assert ledger.backfill(found).origin.run_started_at == HERE
    HandRun(wired(shop.spec, request=OF_THE_DAY), started_at=THERE, clear_number=1).execute("plan_it")
    with shop.ledger() as ledger:
        assert ledger.backfill(found).origin.run_started_at == THERE


def test_a_named_installation_has_backfills_and_publishes_of_its_own(shop: Shop, named: Any) -> None:
    named("east")
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    run.run()
    found = backfill_id("by_hand", run.run_id, "east")
    with shop.ledger() as ledger:
        assert ledger.backfill(found).origin.installation == "east"
        assert ledger.publishers(found) == {AirflowTask("by_hand", run.run_id, "publish", "east")}
        assert ledger.find_backfill(backfill_id("by_hand", run.run_id)) is None


def test_an_installation_without_a_name_keeps_the_ids_that_it_had() -> None:
    assert backfill_id("backfill__orders", "one") == backfill_id("backfill__orders", "one", "")
    assert backfill_id("backfill__orders", "one") == "69bf1326c992"
    assert claim_id("daily", "one", "guard", -1) == "6a2e8a925f23"
    assert len({backfill_id("a", "b"), backfill_id("a", "b", "east"), backfill_id("a", "b", "west")}) == 3
