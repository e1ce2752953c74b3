"""The DAG ``backfill_cleanup`` and the commands ``leftovers``, ``cleanup`` and ``keep``, on one DuckDB file."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired
from sqlalchemy import text

from airflow_backfill_provider.cli.leftovers import cleanup, keep, leftovers
from airflow_backfill_provider.dag_factory import cleanup_dag
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState

EVERYWHERE = Namespace(conn_id=[])


def published(shop: Shop, *, days_ago: int = 0) -> str:
    """The id of a backfill that was published that long ago."""
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    run.run()
    with shop.ledger() as ledger, ledger._engine.write() as connection:
        at = datetime.now(UTC) - timedelta(days=days_ago)
        connection.execute(text("UPDATE safe_backfill_event SET at = :at"), {"at": at.replace(tzinfo=None)})
    return backfill_id("by_hand", run.run_id)


def test_the_dag_drops_what_is_over_in_every_warehouse_that_the_ledger_knows(shop: Shop) -> None:
    found = published(shop, days_ago=46)
    run = HandRun(cleanup_dag(dag_id="nightly"))

    assert run.run() == {"cleanup": "success"}

    dropped = run.xcoms["cleanup", "return_value"]
    assert sorted(line.split()[1] for line in dropped) == ["backup", "stage"]
    assert all(found in line for line in dropped)
    with shop.ledger() as ledger:
        assert ledger.backfill(found).state is BackfillState.EXPIRED
    assert shop.corrected() == [4]


def test_a_stop_of_everything_holds_it_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    published(shop, days_ago=46)
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", '{"all": true}')
    with pytest.raises(AirflowFailException, match="stops 'all'"):
        HandRun(cleanup_dag()).run()
    with pytest.raises(SystemExit, match="stops 'all'"):
        cleanup(EVERYWHERE)


def test_a_warehouse_that_cannot_be_opened_fails_the_task_once_the_others_are_clean(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = published(shop, days_ago=46)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP2", json.dumps({"conn_type": "ftp"}))
    dag = cleanup_dag()
    dag.task_dict["cleanup"].conn_ids = ["shop2", "shop"]
    with pytest.raises(AirflowException, match=r"The warehouse shop2 was not cleaned up.* 2 others were dropped\."):
        HandRun(dag).run()
    with shop.ledger() as ledger:
        assert ledger.backfill(found).state is BackfillState.EXPIRED


def test_the_warehouse_of_another_installation_that_shares_the_ledger_fails_nothing(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    found = published(shop, days_ago=46)
    HandRun(wired(shop.spec, request=OF_THE_DAY), run_id="theirs").execute("plan_it")
    with shop.ledger() as ledger, ledger._engine.write() as connection:
        connection.execute(text("UPDATE safe_backfill_backfill SET conn_id = 'theirs' WHERE run_id = 'theirs'"))
    assert HandRun(cleanup_dag()).run() == {"cleanup": "success"}
    with shop.ledger() as ledger:
        assert ledger.backfill(found).state is BackfillState.EXPIRED
    capsys.readouterr()
    cleanup(EVERYWHERE)
    assert capsys.readouterr().out == "Nothing was dropped.\n"
    with pytest.raises(SystemExit, match="The warehouse theirs was not cleaned up"):
        cleanup(Namespace(conn_id=["theirs"]))


def test_the_commands_list_keep_and_drop(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    leftovers(EVERYWHERE)
    assert capsys.readouterr().out == "Nothing is left aside.\n"
    found = published(shop, days_ago=8)
    capsys.readouterr()

    leftovers(EVERYWHERE)
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"backup", "stage"}
    assert all(f"{found}  orders, completed, for ann" in line and "KiB" in line for line in lines.values())
    assert lines["stage"].endswith(", which is over")

    keep(Namespace(backfill_id=found, until="2100-01-31", reason="an audit"))
    assert "is kept until 2100-02-01T00:00:00Z, at least" in capsys.readouterr().out
    cleanup(EVERYWHERE)
    assert capsys.readouterr().out == "Nothing was dropped.\n"
    leftovers(EVERYWHERE)
    assert capsys.readouterr().out.count("until 2100-02-01T00:00:00Z") == 2


def test_the_command_drops_what_is_over_and_says_so(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    published(shop, days_ago=8)
    capsys.readouterr()
    cleanup(EVERYWHERE)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("dropped  shop  stage")


@pytest.mark.parametrize("until", ["tomorrow", "2024-13-01", "2000-01-01"])
def test_an_instant_that_is_none_or_is_over_is_refused(shop: Shop, until: str) -> None:
    found = published(shop)
    with pytest.raises(SystemExit, match="RequestError"):
        keep(Namespace(backfill_id=found, until=until, reason="an audit"))
