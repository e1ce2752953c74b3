"""The report's files are written by the tasks and by the command, and never change what a run came to."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import duckdb
import pytest
from airflow.configuration import conf
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from hand_run import HandRun
from operators_world import Shop, wired

from airflow_backfill_provider.cli.ledger import report
from airflow_backfill_provider.errors import LedgerError, ReportNotWritten
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.operators.report_files import OPTION, write_report
from airflow_backfill_provider.operators.rollback import RollbackOperator

FILES = {
    "audit.csv",
    "checks.csv",
    "control_period.csv",
    "old_vs_new.csv",
    "plan.json",
    "range_evidence.csv",
    "reconciliation.csv",
    "report.html",
}
FOLDER = f"AIRFLOW__SAFE_BACKFILL__{OPTION.upper()}"
TWO_DAYS = {"start_date": "2024-03-04", "end_date": "2024-03-05"}


@pytest.fixture
def reports(shop: Shop) -> Path:
    return shop.folder / "reports"


def backfill(shop: Shop) -> HandRun:
    return HandRun(wired(shop.spec_file, request=TWO_DAYS))


def of(run: HandRun) -> str:
    return backfill_id("by_hand", run.run_id)


def undo(shop: Shop, found: str) -> HandRun:
    with DAG("undo", schedule=None) as dag:
        RollbackOperator(task_id="rollback", spec=shop.spec_file, backfill_id=found)
    return HandRun(dag)


def test_the_report_task_writes_every_file_and_pushes_where_the_page_is(shop: Shop, reports: Path) -> None:
    run = backfill(shop)
    assert set(run.run().values()) == {"success"}
    folder = reports / of(run)
    assert {path.name for path in folder.iterdir()} == FILES
    assert run.xcoms["tell", "report"].removeprefix("file://") == str(folder / "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "analytics.orders, 2024-03-04 to 2024-03-05: 10 of 10 rows changed, none added, none removed." in page


def test_a_rollback_writes_the_report_again(shop: Shop, reports: Path) -> None:
    run = backfill(shop)
    run.run()
    assert set(undo(shop, of(run)).run().values()) == {"success"}
    assert "all of it was taken back since" in (reports / of(run) / "report.html").read_text(encoding="utf-8")


def test_a_run_that_fails_has_its_report(shop: Shop, reports: Path) -> None:
    run = backfill(shop)
    run.execute("plan_it")
    with duckdb.connect(str(shop.folder / "shop.duckdb")) as connection:
        connection.execute("DROP TABLE raw.orders")
    run.states |= {"plan_it": "success", "stage": "failed"}
    with pytest.raises(AirflowFailException, match="did not reach its goal"):
        run.execute("tell")
    assert "Nothing is published" in (reports / of(run) / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("broken", ["a file", "relative", "no such store"])
def test_a_folder_that_cannot_be_written_is_a_warning_and_changes_no_outcome(
    broken: str, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in_the_way").write_text("a file where the folder should be", encoding="utf-8")
    folders = {
        "a file": str(tmp_path / "in_the_way"),
        "relative": "reports",
        "no such store": "nowhere://bucket/reports",
    }
    monkeypatch.setenv(FOLDER, folders[broken])
    run = backfill(shop)
    assert set(run.run().values()) == {"success"}
    assert ("tell", "report") not in run.xcoms
    (warning,) = (record for record in caplog.records if "its report is not written" in record.message)
    assert warning.levelname == "WARNING"
    assert f"`airflow safe-backfill report {of(run)}`" in warning.message
    assert shop.corrected() == [4, 5]
    with shop.ledger() as ledger:
        assert ledger.backfill(of(run)).state is BackfillState.COMPLETED
    assert set(undo(shop, of(run)).run().values()) == {"success"}
    assert shop.corrected() == []


def test_a_page_that_cannot_be_made_changes_no_outcome(
    shop: Shop, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = backfill(shop)
    monkeypatch.setattr("airflow_backfill_provider.reporting.documents.page", lambda *_: 1 / 0)
    assert set(run.run().values()) == {"success"}
    assert not reports.exists()


def test_the_command_writes_it_anew_from_the_ledger_and_says_where_it_is(
    shop: Shop, reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = backfill(shop)
    run.run()
    by_the_task = {path.name: path.read_bytes() for path in (reports / of(run)).iterdir()}
    capsys.readouterr()
    report(Namespace(backfill_id=of(run), folder=str(tmp_path / "elsewhere")))
    said = capsys.readouterr().out.strip().splitlines()[-1]
    assert said.removeprefix("file://") == str(tmp_path / "elsewhere" / of(run) / "report.html")
    assert {path.name: path.read_bytes() for path in (tmp_path / "elsewhere" / of(run)).iterdir()} == by_the_task
    with pytest.raises(SystemExit, match=r"ReportNotWritten: .*relative"):
        report(Namespace(backfill_id=of(run), folder="here"))
    with pytest.raises(SystemExit, match="LedgerError"):
        report(Namespace(backfill_id="0123456789ab", folder=None))


def test_it_is_written_through_airflows_object_storage(shop: Shop, reports: Path) -> None:
    from airflow.sdk import ObjectStoragePath

    run = backfill(shop)
    run.run()
    with shop.ledger() as ledger:
        page = write_report(ledger, of(run), "memory://reports")
        written = ObjectStoragePath(page).read_bytes()
        assert written == (reports / of(run) / "report.html").read_bytes()
        with pytest.raises(ReportNotWritten, match=r"nowhere://x.*reports_folder"):
            write_report(ledger, of(run), "nowhere://x")
        with pytest.raises(LedgerError):
            write_report(ledger, "0123456789ab", "memory://reports")


def test_without_a_setting_it_goes_into_airflows_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    assert Path(conf.get("safe_backfill", OPTION)).name == "safe_backfill_reports"
    assert Path(conf.get("safe_backfill", OPTION)).is_absolute()
