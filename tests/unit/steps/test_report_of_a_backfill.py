"""The files of a report say what happened, to the row; the numbers are counted again with SQL of the test's own."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from report_reading import Report
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.errors import LedgerError, Stopped, ValidationFailed, WarehouseError
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.reporting import charts
from airflow_backfill_provider.reporting.documents import documents
from airflow_backfill_provider.reporting.facts import read
from airflow_backfill_provider.reporting.page import page
from airflow_backfill_provider.reporting.sections import SECTIONS
from airflow_backfill_provider.steps.ending import accept
from airflow_backfill_provider.steps.report import conclude

FILES = [
    "old_vs_new.csv",
    "checks.csv",
    "range_evidence.csv",
    "reconciliation.csv",
    "control_period.csv",
    "audit.csv",
    "plan.json",
    "report.html",
]
COMPARE = [
    {"row_count": {"against": "source", "max_abs_change": 0}},
    {"row_diff": {"max_added": 0}},
    {"sum": {"column": "amount", "change_between": ["-80%", "0%"]}},
    {"avg": {"column": "amount", "change_between": ["-80%", "80%"]}},
]
TOTALS = "SELECT count(*), sum(amount), avg(amount) FROM analytics.orders WHERE order_date BETWEEN '2024-03-01' AND '2024-03-10'"


@pytest.fixture
def measured(world: World) -> World:
    world.spec = make_spec(compare=COMPARE)
    return world


def test_the_numbers_of_page_and_tables_are_those_that_sql_counts_in_the_table(measured: World) -> None:
    ((rows, old_sum, old_avg),) = measured.engine.rows(TOTALS)
    measured.engine.execute("CREATE TABLE analytics.before AS SELECT * FROM analytics.orders")
    measured.run(reason="refunds")
    ((_, new_sum, new_avg),) = measured.engine.rows(TOTALS)
    ((changed,),) = measured.engine.rows(
        "SELECT count(*) FROM analytics.orders AS new JOIN analytics.before AS old USING (order_id) "
        "WHERE (new.order_date, new.amount, new.note) IS DISTINCT FROM (old.order_date, old.amount, old.note)"
    )
    report = Report(measured)
    assert list(report.files) == FILES
    assert report.sentence == (
        f"analytics.orders, 2024-03-01 to 2024-03-10: {changed} of {rows} rows changed, none added, none removed; "
        f"the sum of amount fell by {old_sum - new_sum:,}, from {old_sum:,} to {new_sum:,}; "
        f"the average amount rose by {new_avg - old_avg:g}, from {old_avg:g} to {new_avg:g}."
    )
    assert "every partition of the range holds exactly the rows that were checked" in report.text
    assert [report.total(name) for name in ("rows_old", "rows_new", "changed")] == [rows, rows, changed]
    assert [report.total(f"sum of amount {side}") for side in ("old", "new")] == [old_sum, new_sum]
    for row in report.rows("old_vs_new.csv"):
        amounts = [amount for amount in measured.amounts(row["partition"]).values() if amount is not None]
        assert Decimal(row["sum of amount new"]) == sum(amounts)
        assert Decimal(row["average amount new"]) == Decimal(sum(amounts)) / len(amounts)
        assert (row["outcome"], row["identical"], row["changed"]) == ("published", str(PER_DAY - 1), "1")


def test_every_check_stands_in_its_table_and_every_partition_is_reconciled(measured: World) -> None:
    measured.run()
    report = Report(measured)
    recorded = measured.ledger.evidence(measured.id)
    verdicts = [entry for entries in recorded.values() for entry in entries if "verdict" in entry]
    assert len(report.rows("checks.csv")) == len(verdicts)
    assert {row["verdict"] for row in report.rows("checks.csv")} == {"pass"}
    assert [row["partition"] for row in report.rows("reconciliation.csv")] == list(DAYS)
    for row in report.rows("reconciliation.csv"):
        day = f"FROM raw.orders WHERE order_date = '{row['partition']}'"
        ((count,),) = measured.engine.rows(f"SELECT count(*) {day}")
        assert [row["source_rows_at_plan"], row["source_rows_at_check"], row["rows_new"]] == [str(count)] * 3
        assert row["rows_new_less_source"] == "0"
    assert json.loads(report.files["plan.json"])["backfill_id"] == measured.id
    actions = [row["action"] for row in report.rows("audit.csv")]
    assert actions == [event.action for event in measured.ledger.events(measured.id)]


def test_the_page_names_who_asked_why_the_way_back_and_until_when(measured: World) -> None:
    measured.run(reason="refunds were published as revenue")
    report = Report(measured)
    assert "Asked for by ann" in report.text
    assert "Reason given refunds were published as revenue" in report.text
    assert f"""airflow dags trigger rollback__orders --conf '{{"backfill_id": "{measured.id}"}}'""" in report.text
    published = next(event.at for event in measured.ledger.events(measured.id) if event.detail.get("to") == "published")
    until = published + measured.spec.rollback.keep_for
    assert f"kept until {until:%Y-%m-%d %H:%M} UTC (45d from the publish)" in report.text
    backup = measured.ledger.backfill(measured.id).backup_location
    assert f"Backup of 10 partitions: {backup}" in report.text
    assert "Rows outside the range were not compared" in report.text
    assert "nothing outside" not in report.text


def test_a_report_is_the_same_bytes_when_nothing_happened_since(measured: World) -> None:
    measured.run()
    assert Report(measured).files == Report(measured).files


def test_a_page_needs_no_network_and_runs_nothing(measured: World) -> None:
    measured.run()
    page = Report(measured).html
    assert "<script" not in page
    assert "@import" not in page
    assert "src=" not in page
    assert "default-src 'none'" in page
    links = {piece.split('"')[0] for piece in page.split('href="')[1:]}
    assert {link for link in links if not link.startswith("#")} == set(FILES) - {"report.html"}


def test_a_rejected_run_shows_its_failures_first_and_claims_nothing_of_what_was_not_compared(world: World) -> None:
    world.spec = make_spec(compare=[{"sum": {"column": "amount", "change_between": ["-2%", "0%"]}}])
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(ValidationFailed):
        world.validate(scoped)
    conclude(world.work())
    report = Report(world)
    assert report.sentence.endswith(
        "4 of 24 rows would change, none added, none removed (known of 4 of 10 partitions)."
    )
    assert "Nothing is published: this backfill has written nothing that readers see." in report.text
    assert "4 answers stopped the publish" in report.text
    assert report.text.index("4 answers stopped the publish") < report.text.index("Every check, and how often")
    assert "6 partitions were never compared" in report.text
    assert "there is nothing to undo" in report.text
    assert [row["verdict"] for row in report.rows("checks.csv")][:5] == ["fail"] * 4 + ["pass"]
    assert [row["outcome"] for row in report.rows("old_vs_new.csv")] == ["rejected"] * 4 + ["staged"] * 6
    assert {row["changed"] for row in report.rows("old_vs_new.csv")[4:]} == {""}, "unknown is not 0"


def test_what_was_found_of_rows_that_are_staged_anew_is_not_reported(measured: World) -> None:
    measured.prepare()
    measured.ledger.start_staging(measured.id, [DAYS[0]], owner="an attempt that died")
    report = Report(measured)
    assert "9 of 54 rows would change, none added, none removed (known of 9 of 10 partitions)" in report.sentence
    first = report.rows("old_vs_new.csv")[0]
    assert (first["outcome"], first["rows_new"], first["changed"], first["sum of amount new"]) == (
        "staging",
        "",
        "",
        "",
    )
    assert "1 partition was never compared" in report.text


def test_a_failed_run_has_a_report_of_what_there_is(world: World) -> None:
    world.spec = make_spec(
        transform={"sql": world.spec.transform.sql.replace("THEN NULL", "THEN amount // (amount - 210)")}
    )
    scoped = world.scope()
    with pytest.raises(WarehouseError):
        world.stage(scoped)
    conclude(world.work())
    report = Report(world)
    assert "how many rows change is not known" in report.sentence
    assert "Failed because the run ended without a publish" in report.text
    assert {row["rows_new"] for row in report.rows("old_vs_new.csv")} >= {""}
    assert report.rows("checks.csv") == []


def test_a_halted_run_says_why(measured: World) -> None:
    scoped = measured.prepare()

    def stop() -> None:
        raise Stopped("the kill switch says stop: orders")

    measured.check_stop = stop
    with pytest.raises(Stopped):
        measured.publish(scoped.plan.backfill_id)
    conclude(measured.work())
    report = Report(measured)
    assert "10 of 60 rows would change" in report.sentence
    assert "would fall by" in report.sentence
    assert "Halted because the kill switch says stop: orders" in report.text
    assert "Nothing is published" in report.text


def test_a_rolled_back_run_says_that_readers_see_the_old_rows_again(measured: World) -> None:
    measured.run()
    measured.rollback()
    report = Report(measured)
    assert report.sentence.endswith("; all of it was taken back since.")
    assert "readers see the old rows again" in report.text
    assert "Rolled back on" in report.text
    assert "airflow dags trigger" not in report.text
    assert {row["outcome"] for row in report.rows("old_vs_new.csv")} == {"rolled_back"}


def test_a_range_that_was_right_already_is_not_called_published(measured: World) -> None:
    measured.run()
    measured.run_id = "run 2"
    measured.run()
    report = Report(measured)
    assert "none of 60 rows differs from what was published" in report.sentence
    assert "The published rows were right already, so nothing was written." in report.text
    assert "there is nothing to undo" in report.text


def test_a_range_published_in_part_is_called_a_mixture(world: World) -> None:
    world.spec = make_spec(
        publish={"lock_timeout": "2s", "unit": "day"},
        compare=[{"sum": {"column": "amount", "change_between": ["-20%", "0%"]}}],
    )
    world.prepare()
    asked = iter(range(5))

    def stop() -> None:
        if next(asked) == 4:  # before the fourth unit
            raise Stopped("the kill switch says stop: orders")

    world.check_stop = stop
    with pytest.raises(Stopped):
        world.publish()
    conclude(world.work())
    report = Report(world)
    assert "Only 3 of 10 partitions are published: readers see a mixture of new and old rows." in report.text
    assert (
        "10 of 60 rows would change, none added, none removed; written so far: 3 of 10 partitions; the "
        in report.sentence
    )
    assert " would fall by " in report.sentence
    assert not {"changed", "fell", "rose", "stayed"} & set(report.sentence.split())
    assert "airflow dags trigger rollback__orders" in report.text


def test_a_range_that_is_not_what_was_staged_is_never_called_verified(world: World) -> None:
    world.prepare()
    world.publish()
    world.ledger.move(world.id, BackfillState.PUBLISHED_UNVERIFIED, by="tester", reason="not as staged: 2024-03-04")
    report = Report(world)
    assert "Published, but the range was not shown to hold the rows that were checked" in report.text
    assert "Published unverified because not as staged: 2024-03-04" in report.text
    accept(world.work(), "looked at it")
    report = Report(world)
    assert "A person accepted the published range" in report.text
    assert "Completed because looked at it" in report.text
    assert "The published range was not shown to hold exactly the rows that were checked." in report.text
    assert "read back" not in report.text


def test_a_first_load_adds_rows_where_there_were_none(world: World) -> None:
    world.engine.execute("DELETE FROM analytics.orders")
    world.spec = make_spec(kind="first_load", compare=[])
    world.run()
    assert Report(world).sentence == "analytics.orders, 2024-03-01 to 2024-03-10: 60 rows added where there were none."


def test_rows_that_cannot_be_matched_are_not_counted_as_unchanged(world: World) -> None:
    world.engine.execute("INSERT INTO analytics.orders VALUES (1, DATE '2024-03-01', 1, 'twice')")
    world.spec = make_spec(compare=[{"row_count": {"change_between": [-1, 0]}}])
    world.run()
    report = Report(world)
    first = report.rows("old_vs_new.csv")[0]
    assert (first["rows_old"], first["rows_delta"], first["changed"]) == (str(PER_DAY + 1), "-1", "")
    assert "9 of 54 rows changed, none added, none removed (known of 9 of 10 partitions)" in report.sentence
    assert "Rows of 1 partition could not be matched" in report.text


def test_names_and_texts_of_people_are_escaped_in_the_page_and_run_in_no_spreadsheet(world: World) -> None:
    column, key = "am<i>ount$x$", "@SUM+1"
    world.engine.execute(
        f'CREATE TABLE analytics.regions (id INTEGER, region VARCHAR, "{column}" INTEGER)',
        f'CREATE TABLE raw.regions (id INTEGER, region VARCHAR, "{column}" INTEGER)',
        f"INSERT INTO analytics.regions VALUES (1, '{key}', 1), (2, 'north', 2)",
        f"INSERT INTO raw.regions VALUES (1, '{key}', 5), (2, 'north', 6)",
    )
    world.spec = make_spec(
        target={"table": "analytics.regions", "partition_by": "region", "key": ["id"], "grain": "list"},
        transform={
            "sql": f"""SELECT id, region, "{column}" FROM raw.regions WHERE region = '{{{{ partition_value }}}}'"""
        },
        source={"table": "raw.regions", "partition_by": "region"},
        checks=[{"expression_is_true": {"expression": "region <> '<script>alert(1)</script>'"}}],
        compare=[{"sum": {"column": column, "change_between": [0, 10]}}],
    )
    world.run(partitions=[key, "north"], reason="<img src=x onerror=alert(1)>")
    report = Report(world)
    assert "<script" not in report.html
    assert "<img" not in report.html
    assert "<i>ount" not in report.html
    assert "alert(1)</script>'" in report.text
    assert f"Sum of {column}" in report.text
    assert "Reason given <img src=x onerror=alert(1)>" in report.text
    assert [row["partition"] for row in report.rows("old_vs_new.csv")] == [f"'{key}", "north"]
    assert report.total(f"sum of {column} delta") == 8


def test_no_value_of_a_row_is_in_any_file(world: World) -> None:
    world.engine.execute("INSERT INTO analytics.orders VALUES (777001, DATE '2024-05-05', 1, 'elsewhere')")
    world.engine.execute("UPDATE raw.orders SET order_id = 777001 WHERE order_id = 301")
    scoped = world.scope()
    world.stage(scoped)
    world.spec = make_spec(compare=[{"row_count": {"change_between": [0, 0]}}])
    scoped = world.scope(backfill_id=world.id)
    world.stage(scoped)
    with pytest.raises(ValidationFailed, match="no staged order_id outside the range") as refused:
        world.validate(scoped)
    assert "777001" not in str(refused.value)
    conclude(world.work())
    report = Report(world)
    assert "no staged order_id outside the range" in report.text
    for name, content in report.files.items():
        assert b"777001" not in content, name
        assert b"note 301" not in content, name


def test_a_plan_of_8760_partitions_is_a_page_that_stays_usable(measured: World) -> None:
    measured.run()
    facts = read(measured.ledger, measured.id)
    hours = [f"hour {number:04d}" for number in range(8_760)]
    lines = [
        replace(facts.lines[number % 7], partition=replace(facts.lines[0].partition, key=key))
        for number, key in enumerate(hours)
    ]
    lines[5_000] = replace(facts.lines[9], partition=replace(facts.lines[9].partition, key=hours[5_000]))
    sections = [made for make in SECTIONS if (made := make(replace(facts, lines=tuple(lines)))) is not None]
    written = page(replace(facts, lines=tuple(lines)), sections, FILES)
    assert len(written) < 1_000_000
    assert written.count("<tr>") < 250
    assert "The 50 of 8,760 partitions that moved most" in written
    assert hours[5_000] in written, "the one partition that jumps is in the table and in the charts"
    assert written.count("<li class=") <= 60
    tables = {name: table.csv().decode() for made in sections for name, table in made.files.items()}
    assert tables["old_vs_new.csv"].count("\n") == 8_761


def test_without_matplotlib_the_page_has_its_tables_and_says_what_is_missing(
    measured: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.run()
    assert Report(measured).html.count("<svg") == 6
    monkeypatch.setattr(charts.importlib.util, "find_spec", lambda name: None)
    report = Report(measured)
    assert "<svg" not in report.html
    assert "airflow-backfill-provider[report]" in report.text
    assert "Each partition, the one that moved most first" in report.text


def test_an_unknown_backfill_has_no_report(world: World) -> None:
    with pytest.raises(LedgerError, match="0123456789ab"):
        documents(world.ledger, "0123456789ab")


def test_the_page_says_what_the_trial_showed_or_that_none_passed(measured: World) -> None:
    scoped = measured.scope()
    measured.try_one()
    measured.stage(scoped)
    measured.validate(scoped)
    measured.publish()
    conclude(measured.work())
    said = Report(measured).text
    assert (
        f"{scoped.plan.trial_partition.key} ({PER_DAY} rows) was computed twice, and both runs gave the same rows."
        in said
    )
    assert f"Putting {PER_DAY} rows back took" in said

    measured.run_id = "another"
    measured.run()
    assert "no trial passed under this plan" in Report(measured).text
