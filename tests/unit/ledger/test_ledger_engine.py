from __future__ import annotations

import sqlite3
import traceback
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from ledger_world import new_backfill, open_backfill
from sqlalchemy import URL, exc, make_url, text, update

from airflow_backfill_provider.errors import LedgerError, LedgerUnavailable, TransitionRefused
from airflow_backfill_provider.ledger import engine as ledger_engine
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.tables import BackfillRow

SECRET = "s3cr3t/zebra@quagga:okapi"


def told(error: BaseException) -> str:
    """Everything a log would show of an error: itself and its causes."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "url",
    [
        URL.create("postgresql+psycopg", "airflow", SECRET, "127.0.0.1", 1, "ledger"),
        URL.create(
            "postgresql+psycopg", database="ledger", query={"host": "127.0.0.1", "port": "1", "password": SECRET}
        ),
        URL.create("postgresql+nodriver", "airflow", SECRET, "127.0.0.1", 1, "ledger"),
        URL.create("mysql+pymysql", "airflow", SECRET, "127.0.0.1", 1, "ledger"),
        URL.create("oracle", "airflow", SECRET),
        URL.create("sqlite", "airflow", SECRET, "127.0.0.1", database="/no/such/folder/ledger.db"),
        f"postgresql://airflow:{SECRET}@127.0.0.1/ledger",
        f"postgresql:/airflow:{SECRET}",
        SECRET,
    ],
)
def test_no_error_ever_shows_the_password(url: str | URL):
    with pytest.raises(LedgerError) as raised, Ledger(url) as ledger:
        ledger.upgrade()
    shown = told(raised.value)
    for secret in (SECRET, "s3cr3t", "zebra", "quagga", "okapi"):
        assert secret not in shown.replace(f'SECRET = "{SECRET}"', "")


def test_a_password_that_the_server_refuses_is_not_shown(postgresql_server: URL):
    with (
        Ledger(postgresql_server.set(username="nobody", password=SECRET)) as ledger,
        pytest.raises(LedgerError, match=r"nobody:\*\*\*@.*nobody.*Check that the database runs") as raised,
    ):
        ledger.upgrade()
    assert "s3cr3t" not in told(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        URL.create("postgresql+psycopg", "airflow", "hunter2", "127.0.0.1", 1, "ledger"),
        URL.create("postgresql+psycopg", database="ledger", query={"password": "hunter2"}),
    ],
)
def test_a_driver_that_repeats_the_password_is_not_quoted(url: URL):
    pytest.importorskip("psycopg")
    engine = ledger_engine.LedgerEngine(url)
    with pytest.raises(LedgerError, match=r"refused \*\*\*") as raised, engine._translated():
        raise exc.OperationalError("SELECT 1", {}, sqlite3.OperationalError("refused hunter2"))
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in engine.address


def test_values_are_not_shown_when_a_statement_fails(ledger: Ledger):
    open_backfill(ledger)
    with pytest.raises(LedgerError, match="contradicts what it holds") as raised, ledger._engine.write() as connection:
        connection.execute(update(BackfillRow).values(reason="private", name=None))
    assert "private" not in str(raised.value)


def test_a_database_that_cannot_be_reached_says_what_to_check(tmp_path: Path):
    for url, advice in (
        (f"sqlite:///{tmp_path}/missing/ledger.db", r"Check that its folder exists"),
        (f"sqlite:///{tmp_path}", r"Check that its folder exists"),
    ):
        with Ledger(url) as ledger, pytest.raises(LedgerError, match=advice):
            ledger.upgrade()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    path = tmp_path / "ledger.db"
    path.write_text("not a database at all, but longer than a header needs to be" * 20)
    with Ledger(f"sqlite:///{path}") as ledger, pytest.raises(LedgerError, match="not a database"):
        ledger.upgrade()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_ledger_in_memory_is_refused(url: str):
    with pytest.raises(LedgerError, match="must be a file"):
        Ledger(url)


def test_an_engine_the_ledger_does_not_know_is_refused_by_name():
    with pytest.raises(LedgerError, match="'mysql'"):
        Ledger("mysql://airflow@localhost/airflow")


def test_a_lock_that_is_never_given_back_is_reported_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger_engine, "LOCK_TIMEOUT_SECONDS", 0.2)
    path = tmp_path / "ledger.db"
    with Ledger(f"sqlite:///{path}") as ledger:
        ledger.upgrade()
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="Another process held it"):
            open_backfill(ledger)
        assert ledger.backfills() == [], "a writer does not keep readers out"
        holder.execute("ROLLBACK")
        holder.close()
        open_backfill(ledger)


def test_an_error_inside_a_transaction_leaves_nothing_of_it(ledger: Ledger):
    open_backfill(ledger)

    def fail_after_a_change() -> None:
        with ledger._engine.write() as connection:
            connection.execute(update(BackfillRow).values(reason="changed"))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail_after_a_change()
    assert ledger.backfill("bf1").reason != "changed"


def test_instants_come_back_aware_and_in_utc_whatever_zone_they_went_in_with(ledger_url: str):
    tokyo = datetime(2026, 11, 29, 21, 0, tzinfo=timezone(timedelta(hours=9)))
    with Ledger(ledger_url, now=lambda: tokyo) as ledger:
        ledger.upgrade()
        open_backfill(ledger)
        at = ledger.backfill("bf1").created_at
    assert at == tokyo
    assert at.tzinfo is UTC


def test_an_instant_without_a_zone_is_refused(ledger_url: str):
    with Ledger(ledger_url, now=lambda: datetime(2026, 11, 29)) as ledger:  # noqa: DTZ001
        ledger.upgrade()
        with pytest.raises(LedgerError, match="has no time zone"):
            ledger.open_backfill(new_backfill(), by="ana")


def test_hostile_text_is_stored_as_text(ledger: Ledger):
    hostile = "'); DROP TABLE safe_backfill_backfill; -- {key} %s :x \\ \" 🛑"
    ledger.open_backfill(new_backfill(hostile, reason=hostile, name=hostile), by=hostile)
    key = next(iter(ledger.partitions(hostile)))
    ledger.move_partitions(hostile, [key], PartitionState.SKIPPED, by=hostile, reason=hostile)
    assert ledger.backfills(name=hostile)[0].reason == hostile
    assert ledger.partitions(hostile)[key].reason == hostile
    with pytest.raises(TransitionRefused) as refused:
        ledger.move_partitions(hostile, [key], PartitionState.PUBLISHED, by="x")
    assert repr(hostile) in refused.value.subject


def _error_classes() -> list[type[exc.SQLAlchemyError]]:
    return [
        kind
        for kind in vars(exc).values()
        if isinstance(kind, type) and issubclass(kind, exc.DBAPIError) and kind is not exc.DBAPIError
    ]


@pytest.mark.parametrize("kind", _error_classes())
def test_every_driver_error_becomes_ours_and_keeps_its_cause(tmp_path: Path, kind: type[exc.DBAPIError]):
    engine = ledger_engine.LedgerEngine(f"sqlite:///{tmp_path / 'l.db'}")
    cause = kind("SELECT 1", {}, sqlite3.Error("what the driver said"))
    with pytest.raises(LedgerError, match="what the driver said") as raised, engine.read():
        raise cause
    assert raised.value.__cause__ is cause


def test_a_string_and_a_parsed_url_open_the_same_ledger(ledger: Ledger, ledger_url: str):
    open_backfill(ledger)
    with Ledger(make_url(ledger_url)) as again:
        assert again.backfill("bf1") == ledger.backfill("bf1")
        assert again.address == ledger.address


def test_only_what_may_be_gone_the_next_time_is_called_unavailable(ledger: Ledger, tmp_path: Path):
    passing = [
        URL.create("postgresql+psycopg", "airflow", "", "127.0.0.1", 1, "ledger"),
        URL.create("sqlite", database=str(tmp_path / "missing" / "ledger.db")),
    ]
    for url in passing:
        with Ledger(url) as unreachable, pytest.raises(LedgerUnavailable):
            unreachable.upgrade()
    for asked in ("SELECT * FROM there_is_no_such_table", "SELEKT 1"):
        with pytest.raises(LedgerError) as final, ledger._engine.read() as connection:
            connection.execute(text(asked))
        assert not isinstance(final.value, LedgerUnavailable), asked


def test_a_session_that_the_server_ends_is_a_ledger_to_ask_again(postgresql_server: URL):
    engine = ledger_engine.LedgerEngine(postgresql_server)
    with pytest.raises(LedgerUnavailable), engine.read() as connection:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
