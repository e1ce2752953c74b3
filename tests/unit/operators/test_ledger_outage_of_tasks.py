"""A task whose ledger is held, or does not answer, may be tried again by Airflow; one that was refused may not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from socket import gethostname

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.ledger import engine as ledger_engine


@contextmanager
def held(shop: Shop) -> Iterator[None]:
    """While another process writes the ledger."""
    with closing(sqlite3.connect(shop.folder / "ledger.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def test_every_task_of_a_backfill_may_be_tried_again_when_its_ledger_was_held_and_then_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_engine, "LOCK_TIMEOUT_SECONDS", 0.2)
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    for task_id in ("plan_it", "stage", "judge", "whole", "publish", "tell"):
        with held(shop), pytest.raises(AirflowException, match="Another process held it") as told:
            run.execute(task_id)
        assert not isinstance(told.value, AirflowFailException), task_id
        run.execute(task_id, attempt=2)
        run.states[task_id] = "success"
    assert shop.corrected() == [4]


def test_a_ledger_that_there_is_no_connection_for_fails_a_task_at_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER", '{"conn_type": "sqlite", "host": "relative.db"}')
    with pytest.raises(AirflowFailException, match="give an absolute path"):
        HandRun(wired(shop.spec, request=OF_THE_DAY)).execute("plan_it")


def test_a_ledger_file_that_is_lost_or_on_another_host_is_not_replaced_by_one_that_knows_nothing(shop: Shop) -> None:
    file = shop.folder / "ledger.db"
    file.rename(shop.folder / "elsewhere.db")
    with pytest.raises(AirflowFailException, match=f"does not exist on this host, {gethostname()}"):
        HandRun(wired(shop.spec, request=OF_THE_DAY)).execute("plan_it")
    listed = shop.airflow("safe-backfill", "list")
    assert "Bring the file back" in listed.stdout + listed.stderr
    assert not file.exists()
