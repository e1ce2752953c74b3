from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledger_processes import run_together
from ledger_world import TARGET, B, P, live_run, new_backfill, open_backfill, question, stored_plan, window
from sqlalchemy import inspect, text

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger.records import Decision
from airflow_backfill_provider.ledger.schema import HEAD, MIGRATIONS
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.tables import PREFIX, VERSION_TABLE, Base
from airflow_backfill_provider.windows import Value, list_partition

CALLS: dict[str, Callable[[Ledger], object]] = {
    "open_backfill": lambda ledger: ledger.open_backfill(new_backfill(), by="x"),
    "revise_plan": lambda ledger: ledger.revise_plan("b", stored_plan(), restage=[], revalidate=[], by="x", reason="r"),
    "backfill": lambda ledger: ledger.backfill("b"),
    "find_backfill": lambda ledger: ledger.find_backfill("b"),
    "names": lambda ledger: ledger.names(),
    "backfills": lambda ledger: ledger.backfills(),
    "plan": lambda ledger: ledger.plan("b"),
    "partitions": lambda ledger: ledger.partitions("b"),
    "counts": lambda ledger: ledger.counts("b"),
    "move": lambda ledger: ledger.move("b", B.RUNNING, by="x"),
    "move_partitions": lambda ledger: ledger.move_partitions("b", ["k"], P.SKIPPED, by="x"),
    "start_staging": lambda ledger: ledger.start_staging("b", ["k"], owner="x"),
    "finish_staging": lambda ledger: ledger.finish_staging("b", [], by="x"),
    "record_evidence": lambda ledger: ledger.record_evidence("b", {None: []}, by="x"),
    "record_verdicts": lambda ledger: ledger.record_verdicts("b", {}, {}, attempts={}, revision=1, by="x"),
    "evidence": lambda ledger: ledger.evidence("b"),
    "set_backup": lambda ledger: ledger.set_backup("b", "l", {}, by="x"),
    "record_event": lambda ledger: ledger.record_event("b", "a", by="x"),
    "last_events": lambda ledger: ledger.last_events("b", 1),
    "events": lambda ledger: ledger.events("b"),
    "release_live_range": lambda ledger: ledger.release_live_range("b", by="x"),
    "reserve_range": lambda ledger: ledger.reserve_range("b", [window(1, 2)], by="x"),
    "begin_way_back": lambda ledger: ledger.begin_way_back("b", [window(1, 2)], by="x"),
    "end_way_back": lambda ledger: ledger.end_way_back("b", by="x"),
    "is_on_way_back": lambda ledger: ledger.is_on_way_back("b"),
    "lock_owner": lambda ledger: ledger.lock_owner(TARGET, [window(1, 2)]),
    "restating": lambda ledger: ledger.restating(TARGET, [window(1, 2)]),
    "holds_range": lambda ledger: ledger.holds_range("b", [window(1, 2)]),
    "claim_range": lambda ledger: ledger.claim_range("b", [window(1, 2)], by="x"),
    "claim_live": lambda ledger: ledger.claim_live(live_run(), TARGET, [window(1, 2)]),
    "release_live": lambda ledger: ledger.release_live("c"),
    "staged_rows": lambda ledger: ledger.staged_rows("b"),
    "connections": lambda ledger: ledger.connections(),
    "last_sequence": lambda ledger: ledger.last_sequence("b"),
    "announce_drop": lambda ledger: ledger.announce_drop("b", "a", {}, seen=0, by="x"),
    "give_up_live": lambda ledger: ledger.give_up_live("c", by="x", reason="r"),
    "given_up_claims": lambda ledger: ledger.given_up_claims(),
    "live_claims": lambda ledger: ledger.live_claims(),
    "ask_approval": lambda ledger: ledger.ask_approval("b", question(), by="x"),
    "decide_approval": lambda ledger: ledger.decide_approval(
        "b", question(), Decision.APPROVED, decided_by="y", by="x"
    ),
    "approvals": lambda ledger: ledger.approvals("b"),
    "take_over": lambda ledger: ledger.take_over("b", dag_id="d", run_id="r", mode="publish", by="x"),
    "runs": lambda ledger: ledger.runs("b"),
    "publishers": lambda ledger: ledger.publishers("b"),
    "requesters": lambda ledger: ledger.requesters("b"),
}


def test_upgrade_creates_the_schema_once(ledger_url: str):
    with Ledger(ledger_url) as ledger:
        assert ledger.upgrade() is True
        open_backfill(ledger)
        assert ledger.upgrade() is False
        assert ledger.backfill("bf1").state is B.PLANNED


def test_the_migrated_schema_is_the_one_the_code_declares(ledger: Ledger):
    with ledger._engine.read() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": VERSION_TABLE,
                "compare_type": True,
                "include_name": lambda name, kind, _: kind != "table" or name.startswith(PREFIX),
            },
        )
        assert compare_metadata(context, Base.metadata) == []
        inspector = inspect(connection)
        for name, table in Base.metadata.tables.items():
            assert inspector.get_pk_constraint(name)["name"] == table.primary_key.name
            assert {key["name"] for key in inspector.get_foreign_keys(name)} == {
                key.name for key in table.foreign_key_constraints
            }
        assert set(inspector.get_table_names()) == {*Base.metadata.tables, VERSION_TABLE}


def test_the_newest_migration_is_the_one_the_code_expects():
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]


def test_a_ledger_of_the_first_version_keeps_its_windows_and_takes_values(ledger_url: str):
    with Ledger(ledger_url) as ledger:
        with ledger._engine.write() as connection:
            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(MIGRATIONS))
            command.upgrade(config, "0001")
            at = "2013-02-01 00:00:00"
            for table, columns in (
                ("backfill", dict.fromkeys(("backfill_id", "name", "tenant", "dag_id", "run_id", "mode", "reason",
                    "requested_by"), "a") | {"target": TARGET, "state": "completed", "revision": 1, "created_at": at,
                    "updated_at": at}),
                ("plan", dict.fromkeys(("plan_hash", "intent_hash", "spec_hash"), "h") | {"backfill_id": "a", "revision": 1,
                    "document": '{"spec": {"compute": {"conn_id": "shop"}}}', "created_at": at}),
                ("target", {"target": TARGET}),
                ("partition", {"backfill_id": "a", "key": "2013-02-01", "window_start": at,
                    "window_end": "2013-02-02 00:00:00", "state": "pending", "attempt": 0, "reason": "", "updated_at": at}),
                ("evidence", {"backfill_id": "a", "key": "2013-02-01", "revision": 1, "body": "{}", "recorded_by": "a",
                    "recorded_at": at}),
                ("range_lock", {"backfill_id": "a", "target": TARGET, "tenant": "", "window_start": at,
                    "window_end": "2013-02-02 00:00:00", "claimed_at": at}),
            ):  # fmt: skip
                names = ", ".join(columns)
                values = ", ".join(f":{name}" for name in columns)
                connection.execute(text(f"INSERT INTO {PREFIX}{table} ({names}) VALUES ({values})"), columns)
        with pytest.raises(LedgerError, match="older schema 0001"):
            ledger.backfills()

        assert ledger.upgrade() is True

        assert ledger.backfill("a").conn_id == "shop"
        assert ledger.connections() == ("shop",)
        assert ledger.partitions("a")["2013-02-01"].span == window(1, 1)
        assert ledger.holds_range("a", [window(1, 1)])
        assert ledger.is_on_way_back("a"), "one that is over held its range for nothing else"
        assert ledger.evidence("a") == {"2013-02-01": [{}]}
        ledger.open_backfill(new_backfill("b", [list_partition("eu")], target="analytics.other"), by="ana")
        assert ledger.partitions("b")["eu"].span == Value("eu")


def test_the_lines_of_one_action_are_found_without_reading_the_whole_trail(ledger: Ledger):
    with ledger._engine.read() as connection:
        if connection.dialect.name != "sqlite":  # with so few rows PostgreSQL reads them all
            indexes = inspect(connection).get_indexes(f"{PREFIX}event")
            assert ["backfill_id", "action", "sequence"] in [index["column_names"] for index in indexes]
            return
        query = f"SELECT * FROM {PREFIX}event WHERE backfill_id = 'a' AND action = 'b' ORDER BY sequence"
        (step,) = [row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
    assert step.endswith("(backfill_id=? AND action=?)")


def test_migrations_import_nothing_that_could_change_under_them():
    for path in (MIGRATIONS / "versions").glob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        }
        assert imported <= {"__future__", "alembic", "sqlalchemy"}, path


def test_processes_upgrade_at_once_and_one_does_the_work(ledger_url: str):
    did_the_work = run_together(ledger_url, [Ledger.upgrade] * 4)
    assert sorted(did_the_work) == [False, False, False, True]
    with Ledger(ledger_url) as ledger:
        open_backfill(ledger)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_ledger_that_was_never_set_up_says_how_to_set_it_up(tmp_path: Path, call: Callable[[Ledger], object]):
    path = tmp_path / "ledger.db"
    with Ledger(f"sqlite:///{path}") as ledger, pytest.raises(LedgerError, match="airflow safe-backfill init"):
        call(ledger)
    assert not path.exists(), "looking at a ledger that is not there must not leave an empty file"


def test_every_public_call_was_asked_about_a_ledger_that_was_never_set_up():
    public = {name for name in vars(Ledger) if not name.startswith("_")}
    assert public - set(CALLS) == {"address", "close", "exists", "upgrade"}


def test_an_empty_database_says_how_to_set_it_up_and_works_once_it_is(ledger_url: str):
    with Ledger(ledger_url) as ledger:
        with pytest.raises(LedgerError, match="airflow safe-backfill init"):
            ledger.backfills()
        ledger.upgrade()
        assert ledger.backfills() == []


@pytest.mark.parametrize("call", [Ledger.upgrade, Ledger.backfills])
def test_a_ledger_newer_than_the_code_is_refused_and_left_alone(
    ledger: Ledger, ledger_url: str, call: Callable[[Ledger], object]
):
    with ledger._engine.write() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with Ledger(ledger_url) as older, pytest.raises(LedgerError, match=r"9999.*newer version wrote it.*Upgrade"):
        call(older)
    with ledger._engine.read() as connection:
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == "9999"


def test_a_failed_upgrade_leaves_no_table_behind(ledger_url: str):
    with Ledger(ledger_url) as ledger:
        with ledger._engine.write() as connection:
            connection.execute(text(f"CREATE TABLE {PREFIX}target (something_else INTEGER)"))
        with pytest.raises(LedgerError, match="already exists"):
            ledger.upgrade()
        with ledger._engine.read() as connection:
            assert inspect(connection).get_table_names() == [f"{PREFIX}target"]
