"""Checks and comparisons in a whole backfill, from the spec to the ledger, on an engine and on the in-memory fake."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from contract_engines import DuckDB, Memory
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.checks.moved import MOVED_ROWS, SAME_TABLE
from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.checks.report import ValidationReport
from airflow_backfill_provider.errors import SpecError, TransformRefused, ValidationFailed
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.judge import MEASURED_EVIDENCE
from airflow_backfill_provider.steps.validate import validate_batch, validate_range

both_engines = pytest.mark.parametrize("world", [DuckDB, Memory], indirect=True, ids=["duckdb", "memory"])
NO_COMPARE: dict[str, Any] = {"compare": [], "checks": []}
RIGHT_AMOUNT = "CASE WHEN refunded THEN NULL ELSE amount END AS amount"


def failed(world: World, **spec: Any) -> list[Outcome]:
    """What stops the backfill with such a spec."""
    world.spec = make_spec(**(NO_COMPARE | spec))
    with pytest.raises(ValidationFailed) as caught:
        world.prepare()
    assert nothing_was_published(world)
    return list(caught.value.outcomes)


def nothing_was_published(world: World) -> bool:
    return world.warehouse.receipts(world.work().plan().target) == ()


def whole_range(world: World) -> dict[str, Outcome]:
    return {
        entry["name"]: Outcome.from_json(entry)
        for entry in world.ledger.evidence(world.id)[None]
        if entry["partition"] is None
    }


@both_engines
def test_a_rich_spec_passes_over_each_partition_and_over_the_range(world: World) -> None:
    world.engine.execute("CREATE TABLE raw.notes (note VARCHAR)", "INSERT INTO raw.notes SELECT note FROM raw.orders")
    world.spec = make_spec(
        checks=[
            {"unique": {"column": "order_id"}},
            {"unique_combination_of_columns": {"combination_of_columns": ["order_id", "note"]}},
            {"not_null_proportion": {"column": "amount", "at_least": 0.5}},
            {"relationships": {"column": "note", "to": "raw.notes", "field": "note"}},
            {"expression_is_true": {"expression": "amount > 0", "where": "amount IS NOT NULL"}},
            {"not_null": {"column": "amount", "error_if": "> 20%", "warn_if": "> 20%"}},
            {"sql": {"name": "dull", "query": "SELECT * FROM stage WHERE note = 'none'", "where": "amount > 0"}},
        ],
        compare=[
            {"row_count": {"against": "source", "max_abs_change": 0}},
            {"sum": {"column": "amount", "change_between": ["-20%", 0]}},
            {"min": {"column": "amount", "max_abs_change": 1}},
            {"max": {"column": "amount", "rel_tol": 0}},
            {"avg": {"column": "amount", "change_between": [0, "5%"], "abs_tol": 1}},
            {"count_distinct": {"column": "amount", "max_abs_change": 10, "over": "both"}},
            {"null_rate": {"column": "amount", "change_between": [0, 0.2]}},
            {"row_diff": {"max_added": 0, "max_removed": 0}},
        ],
    )
    scoped = world.prepare()

    whole = whole_range(world)
    assert {outcome.verdict for outcome in whole.values()} == {Verdict.PASS}
    kinds = [entry.kind for entry in (*world.spec.checks, *world.spec.compare)]
    unasked = {"key_outside_range", "key_repeated", MOVED_ROWS, SAME_TABLE}
    assert [outcome.kind for outcome in whole.values() if outcome.kind not in unasked] == kinds
    rows = len(DAYS) * PER_DAY
    assert whole["row_count against source"].actual == f"{rows}, from {rows}: 0 (+0.00% of the old value)"
    assert whole["min(amount) against baseline"].actual.startswith("11, from 10: +1")
    assert whole["count_distinct(amount) against baseline"].actual.startswith("50, from 60: -10")
    assert whole["not_null_proportion(amount)"].actual == f"{rows - len(DAYS)} of {rows} rows"
    assert whole["row_diff"].actual == f"0 added, 0 removed, {len(DAYS)} changed"
    evidence = world.ledger.evidence(world.id)
    assert all(any(entry["kind"] == MEASURED_EVIDENCE for entry in evidence[key]) for key in scoped.plan.keys)


@both_engines
def test_three_failing_checks_are_three_lines_with_partition_numbers_and_sql(world: World) -> None:
    outcomes = failed(
        world,
        checks=[
            {"not_null": {"column": "amount"}},
            {"expression_is_true": {"expression": "order_id < 500", "over": "partition"}},
            {"accepted_values": {"column": "note", "values": ["note 1"], "where": "order_id >= 900"}},
        ],
    )
    first_batch = [outcome for outcome in outcomes if outcome.kind == "not_null"]
    assert [outcome.partition for outcome in first_batch] == list(DAYS[:4])
    for outcome in outcomes:
        assert (outcome.verdict, outcome.actual) == (Verdict.FAIL, f"1 of {PER_DAY} rows")
        assert "SELECT" in str(outcome.sql)
        assert str(outcome).startswith(
            f"{outcome.partition}: not_null(amount): fail: expected 0 rows with NULL, found 1"
        )


@both_engines
@pytest.mark.parametrize(
    "check",
    [
        {"expression_is_true": {"expression": "CAST(note AS INTEGER) > 0"}},
        {"not_null": {"column": "amount", "where": "CAST(note AS INTEGER) > 0"}},
        {"sql": {"name": "misspelt", "query": "SELECT nosuch FROM stage"}},
    ],
    ids=lambda check: next(iter(check)),
)
def test_a_check_whose_sql_raises_is_an_error_with_the_engine_s_message_and_the_others_are_judged(
    world: World, check: dict[str, Any]
) -> None:
    outcomes = failed(world, checks=[check | {}, {"not_null": {"column": "note"}}])
    assert {outcome.partition for outcome in outcomes} == set(DAYS[:4])
    for outcome in outcomes:
        assert outcome.verdict is Verdict.ERROR
        assert outcome.actual == "the query failed"
        assert "nosuch" in outcome.detail or "note" in outcome.detail
    evidence = world.ledger.evidence(world.id)[DAYS[0]]
    assert next(entry for entry in evidence if entry.get("name") == "not_null(note)")["verdict"] == "pass"


@both_engines
def test_a_check_that_raises_over_one_partition_rejects_that_one_alone(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET note = 'x' WHERE order_id = 202")
    number = "CAST(CASE WHEN note = 'x' THEN note ELSE '1' END AS INTEGER) > 0"
    outcomes = failed(world, checks=[{"expression_is_true": {"expression": number}}])
    assert [(outcome.partition, outcome.verdict) for outcome in outcomes] == [("2024-03-03", Verdict.ERROR)]


@both_engines
def test_a_value_used_twice_in_two_partitions_is_found_over_the_range(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET note = 'twice' WHERE order_id = 101 OR order_id = 901")
    (outcome,) = failed(world, checks=[{"unique": {"column": "note"}}])
    assert (outcome.partition, outcome.actual) == (None, f"1 of {len(DAYS) * PER_DAY} rows")
    assert str(outcome).startswith("whole range: unique(note): fail: expected 0 duplicates, found 1")
    assert world.engine.staged_rows(str(outcome.sql)) == [(1,)]


@both_engines
def test_a_query_over_the_range_sees_every_staged_row(world: World) -> None:
    query = "SELECT n FROM (SELECT count(*) AS n FROM stage) AS counted WHERE n > 50"
    (outcome,) = failed(world, checks=[{"sql": {"name": "few", "query": query}}])
    assert (outcome.partition, outcome.sql) == (None, query)


@both_engines
def test_a_warning_over_the_range_does_not_stop_it(world: World) -> None:
    world.spec = make_spec(checks=[{"not_null": {"column": "amount", "severity": "warn"}}])
    world.prepare()
    assert whole_range(world)["not_null(amount)"].verdict is Verdict.WARN
    assert world.publish().published


def _volatile(world: World, **row_diff: Any) -> dict[str, Any]:
    sql = world.spec.transform.sql.replace(", note", ", 'loaded ' || note AS note")
    return {"transform": {"sql": sql}, "compare": [{"row_diff": {"max_changed": 0, **row_diff}}]}


@both_engines
def test_a_column_that_differs_everywhere_is_named_and_left_out_when_that_is_asked_for(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET refunded = FALSE")
    outcomes = failed(world, **_volatile(world))
    assert [outcome.partition for outcome in outcomes] == list(DAYS[:4])
    for outcome in outcomes:
        assert outcome.actual == f"0 added, 0 removed, {PER_DAY} changed"
        assert f"of {PER_DAY} matched rows changed: note in {PER_DAY}" in outcome.detail
        assert "100 % of the matched rows differ in note" in outcome.detail
        assert "exclude_columns: [note]" in outcome.detail


@both_engines
def test_an_excluded_column_is_identical_by_agreement_and_published_all_the_same(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET refunded = FALSE")
    world.spec = make_spec(**(NO_COMPARE | _volatile(world, exclude_columns=["note"])))
    world.prepare()
    diff = whole_range(world)["row_diff"]
    assert (diff.verdict, diff.actual) == (Verdict.PASS, "0 added, 0 removed, 0 changed")
    assert diff.expected == "at most 0 changed; compared without note"
    assert world.publish().published
    notes = {row[3] for row in world.published() if row[0] < 9000}
    assert all(note.startswith("loaded note") for note in notes)


def test_columns_are_compared_one_by_one_only_for_partitions_that_fail(world: World, monkeypatch: Any) -> None:
    asked: list[list[str]] = []
    changed_columns = world.warehouse.changed_columns

    def spy(target: Any, old: Any, new: Any, partitions: Any, **more: Any) -> Any:
        asked.append([partition.key for partition in partitions])
        return changed_columns(target, old, new, partitions, **more)

    monkeypatch.setattr(world.warehouse, "changed_columns", spy)
    world.prepare()
    assert [keys for keys in asked if keys] == []


@both_engines
def test_a_new_column_leaves_every_other_one_as_it_was(world: World) -> None:
    kind = {"kind": "new_column", "new_columns": ["amount"]}
    world.spec = make_spec(**(NO_COMPARE | kind))
    text = preview(world.scope(mode="plan").plan)
    assert "kind new_column adds row_diff (at most 0 added, at most 0 removed, at most 0 changed; " in text
    assert "compared without amount)" in text
    world.prepare()
    assert whole_range(world)["row_diff"].verdict is Verdict.PASS


@both_engines
def test_a_new_column_that_changes_another_one_is_refused(world: World) -> None:
    outcomes = failed(world, kind="new_column", new_columns=["note"])
    assert {outcome.kind for outcome in outcomes} == {"row_diff"}
    assert all("amount in 1" in outcome.detail for outcome in outcomes)


@both_engines
def test_a_written_row_diff_replaces_the_one_of_the_kind(world: World) -> None:
    world.spec = make_spec(
        **(NO_COMPARE | {"kind": "new_column", "new_columns": ["note"], "compare": [{"row_diff": {"max_added": 0}}]})
    )
    world.prepare()


@both_engines
def test_a_first_load_expects_nothing_and_refuses_to_replace_anything(world: World) -> None:
    world.spec = make_spec(kind="first_load", compare=[], checks=[])
    with pytest.raises(SpecError, match=r"first_load.*10 partitions.*2024-03-01 \(6 rows\)"):
        world.scope()
    world.engine.execute("DELETE FROM analytics.orders WHERE order_date >= DATE '2024-03-01'")
    scoped = world.scope()
    assert not any("is this the right table" in warning for warning in scoped.plan.warnings)
    assert "nothing is published in the range yet" in preview(scoped.plan)
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published


@both_engines
def test_a_first_load_is_not_rebased_onto_rows_that_came_meanwhile(world: World) -> None:
    world.engine.execute("DELETE FROM analytics.orders WHERE order_date >= DATE '2024-03-01'")
    world.spec = make_spec(kind="first_load", compare=[], checks=[])
    world.scope()
    world.engine.execute("INSERT INTO analytics.orders VALUES (7, DATE '2024-03-02', 1, 'late')")
    with pytest.raises(SpecError, match=r"2024-03-02 \(1 rows\)"):
        world.scope(backfill_id=world.id, rebase=True)


CONSTRAINED = (
    "DROP TABLE analytics.orders",
    "CREATE TABLE analytics.orders (order_id BIGINT, order_date DATE, amount BIGINT, note VARCHAR NOT NULL, "
    "CONSTRAINT cheap CHECK (amount < 1000), CONSTRAINT one_note UNIQUE (note))",
)


@both_engines
@pytest.mark.parametrize(
    ("mistake", "partition", "text"),
    [
        ("amount = 5000 WHERE order_id = 101", "2024-03-02", "amount < 1000"),
        ("note = NULL WHERE order_id = 101", "2024-03-02", "NOT NULL"),
        ("note = 'same' WHERE order_id = 101 OR order_id = 102", "2024-03-02", "UNIQUE"),
        ("note = 'same' WHERE order_id = 101 OR order_id = 801", None, "UNIQUE"),
    ],
)
def test_a_row_that_breaks_a_constraint_of_the_target_fails_validation_with_its_text(
    world: World, mistake: str, partition: str | None, text: str
) -> None:
    world.engine.execute(*CONSTRAINED, f"UPDATE raw.orders SET {mistake}")
    outcomes = failed(world)
    assert {(outcome.kind, outcome.partition) for outcome in outcomes} == {("constraint", partition)}
    assert all(text in outcome.expected for outcome in outcomes)


@both_engines
def test_rows_that_keep_the_constraints_are_published_and_the_plan_names_them(world: World) -> None:
    world.engine.execute(*CONSTRAINED)
    world.spec = make_spec(**NO_COMPARE)
    text = preview(world.prepare().plan)
    assert all(constraint in text for constraint in ("CHECK", "NOT NULL", "UNIQUE"))
    assert world.publish().published


@both_engines
def test_the_plan_lists_the_columns_that_land_as_another_type(world: World) -> None:
    sql = world.spec.transform.sql.replace(RIGHT_AMOUNT, "CAST(1 AS SMALLINT) AS amount")
    world.spec = make_spec(transform={"sql": sql})
    text = preview(world.scope(mode="plan").plan)
    assert "Schema\n  amount: SMALLINT lands as BIGINT\n  3 columns land as the type they are computed as" in text
    wrong = sql.replace("CAST(1 AS SMALLINT) AS amount", "CAST(1 AS DOUBLE) AS amount, 1 AS tax")
    world.spec = make_spec(transform={"sql": wrong})
    with pytest.raises(TransformRefused, match=r"not in the target: tax \(.*amount \(DOUBLE into BIGINT\)"):
        world.scope(mode="plan")


@both_engines
@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            {"checks": [{"not_null": {"column": "note", "where": "1 = 1; DROP TABLE raw.orders"}}]},
            "without a semicolon",
        ),
        ({"checks": [{"not_null": {"column": "note", "where": "nosuch = 1"}}]}, "reads nosuch"),
        ({"checks": [{"expression_is_true": {"expression": "sum(amount) > 0"}}]}, r"checks\[0\]\.expression_is_true"),
        ({"checks": [{"expression_is_true": {"expression": "nextval('s') > 0"}}]}, "nextval"),
        ({"checks": [{"sql": {"name": "a", "query": "DELETE FROM stage"}}]}, "DELETE; it must be one SELECT"),
        ({"checks": [{"sql": {"name": "a", "query": "SELECT 1; SELECT 2"}}]}, "2 statements"),
        ({"checks": [{"relationships": {"column": "note", "to": "raw.nosuch", "field": "id"}}]}, "raw.nosuch"),
        ({"checks": [{"relationships": {"column": "note", "to": "raw.orders", "field": "nosuch"}}]}, "nosuch"),
        ({"checks": [{"unique_combination_of_columns": {"combination_of_columns": ["note", "b"]}}]}, "names b"),
        ({"compare": [{"row_diff": {"exclude_columns": ["loaded_at"]}}]}, "names loaded_at"),
        ({"compare": [{"max": {"column": "note", "max_abs_change": 0}}]}, "of numbers only"),
    ],
    ids=str,
)
def test_sql_and_names_that_cannot_be_meant_are_refused_when_the_plan_is_made(
    world: World, section: dict[str, Any], told: str
) -> None:
    world.spec = make_spec(**(NO_COMPARE | section))
    with pytest.raises(SpecError, match=told):
        world.scope()
    assert world.ledger.backfills() == []


@both_engines
def test_reports_hold_counts_and_keys_and_no_values_of_rows(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.engine.execute("UPDATE raw.orders SET note = 'secret@example.org' WHERE order_id = 101 OR order_id = 102")
    told: list[ValidationReport] = []
    world.spec = make_spec(
        checks=[
            {"unique": {"column": "note"}},
            {"accepted_values": {"column": "note", "values": ["x"]}},
            {"accepted_range": {"column": "note", "max_value": "a"}},
        ],
        compare=[{"row_diff": {"max_changed": 0}}],
    )
    scoped = world.scope()
    world.stage(scoped)
    with caplog.at_level(logging.DEBUG), pytest.raises(ValidationFailed) as caught:
        validate_batch(world.work(), scoped.batches[0].keys, told.append)
    everything = [caplog.text, str(caught.value), json.dumps([report.to_json() for report in told])]
    everything.append(json.dumps(world.ledger.evidence(world.id)[DAYS[1]]))
    assert len(told) == 1
    assert all("unique(note)" in text and "secret" not in text for text in everything)


@both_engines
def test_the_range_is_folded_from_evidence_and_measured_only_where_it_must_be(world: World, monkeypatch: Any) -> None:
    world.spec = make_spec(
        checks=[
            {"unique": {"column": "order_id"}},
            {"not_null": {"column": "note"}},
            {"unique_combination_of_columns": {"combination_of_columns": ["order_date", "note"]}},
        ],
        compare=[{"sum": {"column": "amount", "change_between": ["-20%", 0]}}],
    )
    scoped = world.scope()
    world.stage(scoped)
    for batch in scoped.batches:
        validate_batch(world.work(), batch.keys)

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("measured again")

    for name in ("measure", "measure_together", "compare", "count_rows", "changed_columns"):
        monkeypatch.setattr(world.warehouse, name, refuse)
    validate_range(world.work())
    assert whole_range(world)["sum(amount) against baseline"].actual.startswith("23150, from 27750")
