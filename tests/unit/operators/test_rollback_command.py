"""The way back by id: `airflow safe-backfill rollback`, without the spec, and through a connection that was renamed."""

from __future__ import annotations

import json
import os
import signal
from argparse import Namespace
from typing import Any

import duckdb_outside
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from hand_run import HandRun
from operators_world import SPEC, SQL, Shop, wired

from airflow_backfill_provider.cli.ledger import abandon
from airflow_backfill_provider.cli.way_back import rollback
from airflow_backfill_provider.dag_factory import rollback_dag
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.operators.atomic_publish import AtomicPublishOperator
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse
from airflow_backfill_provider.windows import merge

FOUR_DAYS = {"start_date": "2024-03-02", "end_date": "2024-03-05"}
TWO_UNITS = SPEC + "publish: {unit: week}\n"
KILLED = """
import os, signal, sys
from airflow.__main__ import main
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse

replace = DuckDBWarehouse.replace_partitions

def then_die(*given):
    replace(*given)
    os.kill(os.getpid(), signal.SIGKILL)

DuckDBWarehouse.replace_partitions = then_die
main()
"""


def published(shop: Shop, run_id: str = "one") -> str:
    """The id of a backfill of four days, in two weeks."""
    run = HandRun(wired(shop.spec, request=FOUR_DAYS), run_id=run_id)
    assert set(run.run().values()) == {"success"}
    return backfill_id("by_hand", run_id)


def state(shop: Shop, found: str) -> BackfillState:
    with shop.ledger() as ledger:
        return ledger.backfill(found).state


def asked(found: str, **given: Any) -> Namespace:
    left_out = {"force": False, "restore_overwritten": False, "publish_is_dead": False, "conn_id": None}
    return Namespace(backfill_id=found, **left_out | given)


def given_up(found: str, **said: bool) -> Namespace:
    left_out = {"publish_is_dead": False, "rollback_is_dead": False}
    return Namespace(backfill_id=found, reason="it is dead", **left_out | said)


def rename(connection: str, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{to.upper()}", os.environ[f"AIRFLOW_CONN_{connection.upper()}"])
    monkeypatch.delenv(f"AIRFLOW_CONN_{connection.upper()}")


@pytest.mark.parametrize("spec", ["deleted", "broken"])
def test_a_backfill_whose_spec_file_is_gone_is_rolled_back_by_its_id_and_once(
    shop: Shop, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = published(shop)
    assert shop.corrected() == [2, 3, 4, 5]
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", "stop")  # which stops backfills and not the way back
    if spec == "deleted":
        shop.spec_file.unlink()
        (shop.folder / "orders.sql").unlink()
    else:
        shop.spec_file.write_text("name: [orders\n", encoding="utf-8")

    done = shop.airflow("safe-backfill", "rollback", found)

    assert done.returncode == 0, done.stderr
    assert "analytics.orders, 4 partitions: restored in one commit" in done.stdout
    assert f"Backfill {found} is rolled_back." in done.stdout
    assert shop.corrected() == []
    assert state(shop, found) is BackfillState.ROLLED_BACK
    with shop.ledger() as ledger:
        assert ledger.events(found)[-1].by.endswith(" via cli")
    assert "rolled back" in (shop.folder / "reports" / found / "report.html").read_text(encoding="utf-8")

    again = shop.airflow("safe-backfill", "rollback", found)
    assert again.returncode == 0, again.stderr
    assert "rolled back before; nothing to do" in again.stdout
    assert shop.corrected() == []


def test_a_command_that_was_killed_between_two_units_is_run_again_and_restores_the_rest(shop: Shop) -> None:
    shop.spec_file.write_text(TWO_UNITS, encoding="utf-8")
    found = published(shop)
    shop.spec_file.unlink()

    assert shop.airflow("safe-backfill", "rollback", found, program=("-c", KILLED)).returncode == -signal.SIGKILL

    assert shop.corrected() == [2, 3]
    assert state(shop, found) is BackfillState.COMPLETED
    with shop.ledger() as ledger:
        assert ledger.is_on_way_back(found), "half of it is put back, which is nobody else's range"
    done = shop.airflow("safe-backfill", "rollback", found)
    assert done.returncode == 0, done.stderr
    assert "2 partitions: restored in one commit" in done.stdout
    assert shop.corrected() == []
    assert state(shop, found) is BackfillState.ROLLED_BACK


def test_it_refuses_what_the_task_refuses_and_a_forced_one_can_be_taken_back(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="LedgerError"):
        rollback(asked("0123456789ab"))
    found = published(shop)
    shop.spec_file.unlink()
    with pytest.raises(SystemExit, match="exclude each other"):
        rollback(asked(found, force=True, restore_overwritten=True))
    with pytest.raises(SystemExit, match="forced"):
        rollback(asked(found, restore_overwritten=True))
    change = "UPDATE analytics.orders SET amount = 7 WHERE order_date = DATE '2024-03-03'"
    duckdb_outside.run(shop.folder / "shop.duckdb", change)
    with pytest.raises(SystemExit, match=r"TargetMoved: 1 partitions changed after .*2024-03-03.*Nothing was written"):
        rollback(asked(found))
    assert shop.corrected() == [2, 4, 5]

    rollback(asked(found, force=True))
    assert shop.corrected() == []
    rollback(asked(found, restore_overwritten=True))
    assert shop.corrected() == [2, 4, 5]
    assert "20 rows deleted, 20 inserted." in capsys.readouterr().out


def test_it_refuses_while_a_later_backfill_stands_over_the_range(shop: Shop) -> None:
    found = published(shop)
    (shop.folder / "orders.sql").write_text(SQL.replace("amount / 2", "amount / 5"), encoding="utf-8")
    later = published(shop, "two")
    with pytest.raises(
        SystemExit, match=f"Backfill {later} wrote to this range after {found}: roll that one back first"
    ):
        rollback(asked(found))
    rollback(asked(later))
    assert shop.corrected() == [2, 3, 4, 5]
    rollback(asked(found))
    assert shop.corrected() == []


def test_after_its_connection_was_renamed_the_new_name_is_asked_for_and_has_to_lead_to_the_backup(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = published(shop)
    shop.spec_file.unlink()
    rename("shop", "store", monkeypatch)
    with pytest.raises(SystemExit, match=rf"'shop', and there is no such .* rollback {found} --conn-id"):
        rollback(asked(found))
    elsewhere = shop.folder / "elsewhere.duckdb"
    elsewhere.write_bytes((shop.folder / "shop.duckdb").read_bytes())
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", json.dumps({"conn_type": "duckdb", "host": str(elsewhere)}))
    with pytest.raises(
        SystemExit, match=r"nothing shows that 'elsewhere' leads to the same warehouse.*Nothing was written"
    ):
        rollback(asked(found, conn_id="elsewhere"))
    assert state(shop, found) is BackfillState.COMPLETED
    rollback(asked(found, conn_id="store"))
    assert shop.corrected() == []


def undone(shop: Shop, conn_id: str, found: str) -> dict[str, str]:
    """The task of the rollback DAG, with a spec that names that connection by now."""
    spec = shop.spec.model_copy(update={"compute": shop.spec.compute.model_copy(update={"conn_id": conn_id})})
    return HandRun(rollback_dag(spec), params={"backfill_id": found}).run()


def test_the_task_goes_through_the_connection_of_the_plan_though_the_spec_names_another(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = published(shop)
    elsewhere = {"conn_type": "duckdb", "host": str(shop.folder / "elsewhere.duckdb")}
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", json.dumps(elsewhere))
    assert undone(shop, "elsewhere", found) == {"rollback": "success"}
    assert shop.corrected() == []


def test_the_task_goes_through_the_connection_of_the_spec_where_that_of_the_plan_is_gone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = published(shop)
    elsewhere = shop.folder / "elsewhere.duckdb"
    elsewhere.write_bytes((shop.folder / "shop.duckdb").read_bytes())
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", json.dumps({"conn_type": "duckdb", "host": str(elsewhere)}))
    rename("shop", "store", monkeypatch)
    with pytest.raises(AirflowFailException, match="nothing shows that 'elsewhere' leads to the same warehouse"):
        undone(shop, "elsewhere", found)
    assert undone(shop, "store", found) == {"rollback": "success"}
    assert "There is no Airflow connection 'shop' any more" in capsys.readouterr().out
    assert shop.corrected() == []


class Killed(BaseException):
    """The worker is gone."""


def half_published(shop: Shop) -> str:
    """The id of a backfill whose publish, in a run without a scope task, was killed behind the first of two units."""
    shop.spec_file.write_text(TWO_UNITS, encoding="utf-8")
    HandRun(wired(shop.spec, request=FOUR_DAYS | {"mode": "stage"}), run_id="one").run()
    found, replace = backfill_id("by_hand", "one"), DuckDBWarehouse.replace_partitions

    def then_die(*given: Any) -> None:
        replace(*given)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBWarehouse, "replace_partitions", then_die)
        with pytest.raises(Killed):
            publishing(shop, found).execute("publish")
    assert (state(shop, found), shop.corrected()) == (BackfillState.PUBLISHING, [2, 3])
    return found


def publishing(shop: Shop, found: str) -> HandRun:
    with DAG("publish_what_is_validated", schedule=None) as dag:
        AtomicPublishOperator(task_id="publish", spec=shop.spec, backfill_id=found)
    return HandRun(dag, run_id="by hand")


def test_the_task_of_a_rollback_waits_for_the_task_that_publishes_and_for_no_other(shop: Shop) -> None:
    found = half_published(shop)

    def undo(publish: str, tell: str) -> dict[str, str]:
        others = {"one": {"publish": "skipped", "tell": tell}, "by hand": {"publish": publish}}
        return HandRun(rollback_dag(shop.spec), "undo", params={"backfill_id": found}, other_runs=others).run()

    with pytest.raises(AirflowFailException, match="its commit may still happen"):
        undo(publish="running", tell="success")
    assert (state(shop, found), shop.corrected()) == (BackfillState.PUBLISHING, [2, 3])
    assert undo(publish="failed", tell="running") == {"rollback": "success"}
    assert (state(shop, found), shop.corrected()) == (BackfillState.ROLLED_BACK, [])


def test_a_dead_publish_whose_spec_is_gone_is_told_the_command_that_needs_none(shop: Shop) -> None:
    found = half_published(shop)
    shop.spec_file.unlink()
    told = rf"rollback__orders .*Without its spec: airflow safe-backfill rollback {found} --publish-is-dead"
    with pytest.raises(SystemExit, match=told):
        rollback(asked(found))
    rollback(asked(found, publish_is_dead=True))
    assert (state(shop, found), shop.corrected()) == (BackfillState.ROLLED_BACK, [])


def test_a_rollback_that_died_before_it_wrote_is_called_off_and_the_publish_goes_on(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    found = half_published(shop)
    with shop.ledger() as ledger:
        spans = merge(stored_plan(ledger, found).partitions)
        ledger.begin_way_back(found, spans, by="killed", publish_is_dead=True)
    with pytest.raises(AirflowFailException, match=f"safe-backfill abandon {found}"):
        publishing(shop, found).execute("publish")

    with pytest.raises(SystemExit, match=r"begun by killed on .*--rollback-is-dead"):
        abandon(given_up(found))
    abandon(given_up(found, rollback_is_dead=True))

    said = capsys.readouterr().out
    assert f"The rollback of backfill {found}, which had put nothing back, is called off" in said
    assert "is free" not in said
    assert state(shop, found) is BackfillState.VALIDATED
    publishing(shop, found).execute("publish")
    assert shop.corrected() == [2, 3, 4, 5]
