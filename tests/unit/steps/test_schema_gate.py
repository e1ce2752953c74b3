"""The columns of the SQL against those of the table, and what a new one means."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from report_reading import Report
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.errors import PublishRefused, SpecError, TransformRefused, ValidationFailed
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.discarded import Discarded, together

WIDE = RIGHT.replace("note\nFROM", "note, refunded, 1 AS extra\nFROM")
RANGE = {"start_date": DAYS[0], "end_date": DAYS[2]}


@pytest.fixture
def taxed(world: World) -> World:
    """A column was added to the table, and nothing has filled it yet."""
    world.engine.execute("ALTER TABLE analytics.orders ADD COLUMN tax BIGINT")
    return world


def new_column(value: str, **schema: Any) -> dict[str, Any]:
    sql = RIGHT.replace("CASE WHEN refunded THEN NULL ELSE amount END AS amount, note", f"amount, note, {value} AS tax")
    return {
        "kind": "new_column",
        "new_columns": ["tax"],
        "transform": {"sql": sql},
        "compare": [],
        "schema": schema,
    }


def about_columns(plan: Plan) -> list[str]:
    return [text for text in plan.warnings if "schema" in text]


def test_a_column_that_the_table_does_not_have_is_refused_by_name_and_left_out_where_the_spec_says_so(
    world: World,
) -> None:
    world.spec = make_spec(transform={"sql": WIDE})
    with pytest.raises(
        TransformRefused, match=r"not in the target: refunded \(BOOLEAN\), extra \(INTEGER\).*discard_columns"
    ):
        world.scope(**RANGE)

    world.spec = make_spec(transform={"sql": WIDE}, schema={"mode": "discard_columns"})
    scoped = world.scope(**RANGE)
    assert about_columns(scoped.plan) == [
        "schema.mode discard_columns leaves out refunded, extra, which analytics.orders does not have."
    ]
    world.try_one()
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    assert world.amounts(DAYS[1])[100] is None
    assert "Left out, because the table does not have them: refunded, extra." in Report(world).text


def test_a_column_too_few_or_one_that_loses_values_is_refused_in_either_mode(world: World) -> None:
    for sql, reason in (
        (RIGHT.replace(", note", ""), "missing: note"),
        (RIGHT.replace("order_id,", "order_id + 0.5 AS order_id,"), "would lose values: order_id"),
    ):
        world.spec = make_spec(transform={"sql": sql}, schema={"mode": "discard_columns"})
        with pytest.raises(TransformRefused, match=reason):
            world.scope(**RANGE)


@pytest.mark.parametrize("meaning", ["unknown", "unavailable"])
def test_a_new_column_that_is_0_in_every_row_is_not_published(taxed: World, meaning: str) -> None:
    taxed.spec = make_spec(**new_column("0", columns={"tax": {"null_means": meaning}}))
    with pytest.raises(ValidationFailed, match=r"filled_with_0\(tax\).*18 of 18 rows are 0, 0 are NULL.*leave it NULL"):
        taxed.prepare(**RANGE)
    assert {row[0] for row in taxed.engine.rows("SELECT DISTINCT tax FROM analytics.orders")} == {None}


@pytest.mark.parametrize("value", ["CASE WHEN refunded THEN NULL ELSE 0 END", "order_id % 2", "NULL"])
def test_a_new_column_with_a_value_or_a_null_among_its_rows_is_published(taxed: World, value: str) -> None:
    taxed.spec = make_spec(**new_column(f"CAST({value} AS BIGINT)", columns={"tax": {"null_means": "unknown"}}))
    scoped = taxed.prepare(**RANGE)
    assert about_columns(scoped.plan) == []
    assert taxed.publish().published or value == "NULL"


@pytest.mark.parametrize("other", ["order_id", "NULL"])
def test_a_partition_in_which_a_new_column_is_0_in_every_row_beside_others_is_warned_of_by_name(
    taxed: World, other: str
) -> None:
    value = f"CAST(CASE WHEN order_date = DATE '{DAYS[1]}' THEN 0 ELSE {other} END AS BIGINT)"
    taxed.spec = make_spec(**new_column(value, columns={"tax": {"null_means": "unknown"}}))
    taxed.prepare(**RANGE)
    (found,) = [row for row in Report(taxed).rows("checks.csv") if row["kind"] == "filled_with_0"]
    assert found["verdict"] == "warn"
    assert found["detail"].startswith(f"in 1 of 3 partitions every row is 0: {DAYS[1]}. tax is new")


def test_a_default_is_the_specs_word_and_without_a_reason_the_plan_warns(taxed: World) -> None:
    taxed.spec = make_spec(**new_column("0", columns={"tax": {"null_means": "default"}}))
    (warning,) = about_columns(taxed.scope(**RANGE, mode="plan").plan)
    assert warning.startswith("schema.columns.tax: a default stands where the value is not known")
    change = {"at": "2024-03-01", "note": "amounts are net from here on"}
    reason = {"tax": {"null_means": "default", "because": "no order was taxed then"}}
    taxed.spec = make_spec(**new_column("0", columns=reason, semantic_change=change))
    scoped = taxed.prepare(**RANGE)
    assert about_columns(scoped.plan) == []
    taxed.publish()
    text = Report(taxed).text
    assert "tax is new. A default stands where the value is not known: no order was taxed then." in text
    assert (
        "From 2024-03-01 on the numbers mean something else, which no backfill makes consistent: amounts are net"
        in text
    )


def test_a_default_that_nobody_gave_a_reason_for_is_not_published_where_every_row_has_it(taxed: World) -> None:
    taxed.spec = make_spec(**new_column("0", columns={"tax": {"null_means": "default"}}))
    with pytest.raises(ValidationFailed, match=r"filled_with_0\(tax\).*where 0 is right, say so: schema\.columns\.tax"):
        taxed.prepare(**RANGE)


def test_a_column_that_the_table_lacks_is_added_by_the_publish_and_stays_after_a_rollback(world: World) -> None:
    world.spec = make_spec(
        **new_column("CAST(order_id AS BIGINT)", mode="evolve", columns={"tax": {"null_means": "unknown"}})
    )
    before = world.published()
    scoped = world.prepare(**RANGE)
    assert about_columns(scoped.plan) == [
        "schema.mode evolve: the commit of the publish adds tax (BIGINT, comment: NULL: there is a value, and nobody knows it. Added "
        "by backfill orders.) to analytics.orders. It is NULL in every row outside the range. A rollback puts the range back with "
        "NULL in it, and leaves the column, since somebody may read it by then."
    ]
    assert world.published() == before
    assert world.publish() == world.publish()
    assert len(world.warehouse.receipts(scoped.plan.target)) == 1
    filled = "SELECT count(*), count(tax), sum(tax - order_id) FROM analytics.orders"
    ((rows, with_tax, off),) = world.engine.rows(filled)
    assert 0 < with_tax < rows
    assert off == 0
    assert "The publish added it." in Report(world).text

    world.rollback()
    assert world.engine.rows("SELECT count(tax) FROM analytics.orders") == [(0,)]
    assert world.published() == before
    assert "NULL in every row of the range" in Report(world).text
    world.engine.execute("ALTER TABLE analytics.orders DROP COLUMN tax")


def test_a_backfill_before_that_of_another_range_is_rolled_back_although_a_column_came_since(world: World) -> None:
    earlier = world.prepare(**RANGE).plan.backfill_id
    world.publish()
    world.run_id = "run 2"
    evolve = new_column("CAST(order_id AS BIGINT)", mode="evolve", columns={"tax": {"null_means": "unknown"}})
    narrow, world.spec = world.spec, make_spec(**evolve)
    world.prepare(start_date=DAYS[4], end_date=DAYS[5])
    world.publish()
    world.spec = narrow
    of_earlier = f"FROM analytics.orders WHERE order_date BETWEEN DATE '{DAYS[0]}' AND DATE '{DAYS[2]}'"
    # A default is not what the rows had.
    world.engine.execute("ALTER TABLE analytics.orders ALTER COLUMN tax SET DEFAULT 7")

    assert world.rollback(earlier).partitions == 3
    assert world.amounts(DAYS[1])[100] == 110
    assert world.engine.rows(f"SELECT count(*), count(tax) {of_earlier}") == [(18, 0)]
    assert world.engine.rows("SELECT count(tax) FROM analytics.orders") == [(12,)]


def test_a_rollback_that_would_lose_values_of_a_column_that_came_since_is_refused_also_by_force(world: World) -> None:
    world.prepare(**RANGE)
    world.publish()
    world.engine.execute(
        "ALTER TABLE analytics.orders ADD COLUMN tax BIGINT",
        "UPDATE analytics.orders SET tax = 1 WHERE order_id = 100",
    )
    for force in (False, True):
        with pytest.raises(
            PublishRefused, match=r"values in tax \(in 1 rows\).*also a forced one.*Nothing was written"
        ):
            world.rollback(force=force)
    assert world.amounts(DAYS[1])[100] is None


def test_a_new_column_without_a_type_or_beside_one_that_nobody_named_is_refused_before_anything_is_written(
    world: World,
) -> None:
    declared = {"mode": "evolve", "columns": {"tax": {"null_means": "unknown"}}}
    for value, error, reason in (
        ("NULL", SpecError, r"cannot add tax: the SQL yields NULL and no type.*CAST"),
        ("1 AS tax, 2 AS fee", TransformRefused, r"not in the target: fee \(INTEGER\).*evolve and new_columns"),
    ):
        changes = new_column("?", **declared)
        changes["transform"] = {
            "sql": changes["transform"]["sql"].replace("? AS tax", value if "fee" in value else f"{value} AS tax")
        }
        world.spec = make_spec(**changes)
        with pytest.raises(error, match=reason):
            world.scope(**RANGE)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"columns": {}}, "declare schema.columns.tax"),
        ({"publish": {"mechanism": "view_swap"}}, "use mechanism replace_partitions or merge without swap"),
        ({"kind": "correction", "new_columns": [], "columns": {}}, "evolve needs kind: new_column"),
    ],
)
def test_what_evolve_needs_is_said_when_the_spec_is_read(changes: dict[str, Any], reason: str) -> None:
    schema = {"mode": "evolve", "columns": changes.pop("columns", {"tax": {"null_means": "unknown"}})}
    with pytest.raises(ValidationError, match=reason):
        make_spec(**{**new_column("1", **schema), **changes})


def test_a_new_column_of_which_nothing_is_said_is_warned_of(taxed: World) -> None:
    taxed.spec = make_spec(**{key: value for key, value in new_column("0").items() if key != "schema"})
    scoped = taxed.prepare(**RANGE)
    assert about_columns(scoped.plan)[0].startswith("Nothing says what it means that tax has no value")
    assert [row["verdict"] for row in Report(taxed).rows("checks.csv") if row["kind"] == "filled_with_0"] == ["warn"]


def test_a_meaning_is_of_a_new_column() -> None:
    with pytest.raises(ValidationError, match="amount is not among new_columns"):
        make_spec(schema={"columns": {"amount": {"null_means": "unknown"}}})


@pytest.fixture
def strict(world: World) -> World:
    """The table refuses amounts from 105 on and rows without a note; the third day's source has two of these."""
    world.engine.execute(
        "ALTER TABLE analytics.orders RENAME TO old_orders",
        "CREATE TABLE analytics.orders (order_id INTEGER, order_date DATE, amount INTEGER CHECK (amount < 1000), note VARCHAR NOT NULL)",
        "INSERT INTO analytics.orders SELECT order_id, order_date, amount, coalesce(note, '') FROM analytics.old_orders",
    )
    return world


UNFIT = RIGHT.replace(
    "ELSE amount END AS amount, note",
    "WHEN order_id = 201 THEN 5000 ELSE amount END AS amount, CASE WHEN order_id IN (201, 202) THEN NULL ELSE note END AS note",
).replace("CASE WHEN refunded THEN NULL WHEN", "CASE WHEN")


def discarding(**schema: Any) -> dict[str, Any]:
    return {"transform": {"sql": UNFIT}, "compare": [], "schema": {"mode": "discard_rows", **schema}}


def test_rows_that_the_table_would_refuse_are_left_out_counted_and_named_in_the_report(strict: World) -> None:
    strict.spec = make_spec(**discarding(max_discarded=2))
    scoped = strict.prepare(**RANGE)
    assert about_columns(scoped.plan)[0].startswith("schema.mode discard_rows leaves out rows that break CHECK")
    strict.publish()
    kept = {number for number, _ in strict.engine.rows("SELECT order_id, amount FROM analytics.orders")}
    assert {200, 203} <= kept
    assert not {201, 202} & kept
    report = Report(strict)
    assert "2 rows were left out of 3 partitions, because the table would refuse them; at most 2 may be." in report.text
    counted = [row["found"] for row in report.rows("checks.csv") if row["kind"] == "discarded_rows"]
    assert (
        counted.count('2 left out: 1 for CHECK((amount < 1000)), 2 for NOT NULL("note")') == 2
    )  # of the day, and of the range
    assert counted.count("none left out") == 2
    strict.rollback()
    assert {201, 202} <= {number for (number,) in strict.engine.rows("SELECT order_id FROM analytics.orders")}


def test_more_than_the_spec_allows_to_be_left_out_stop_the_publish(strict: World) -> None:
    strict.spec = make_spec(**discarding(max_discarded=1))
    with pytest.raises(
        ValidationFailed, match=r"discarded_rows: fail: expected at most 1 rows of the range left out, found 2 left out"
    ):
        strict.prepare(**RANGE)


def test_a_source_that_is_short_of_rows_hides_none_that_were_left_out(strict: World) -> None:
    strict.spec = make_spec(**discarding(max_discarded=2))
    scoped = strict.scope(**RANGE)
    strict.stage(scoped)
    strict.engine.execute("DELETE FROM raw.orders WHERE order_id IN (100, 101, 102, 200)")
    with pytest.raises(
        ValidationFailed,
        match=r"2 left out: .*computed again, the rows that fit are 1 more or fewer than are staged.*nothing shows how many",
    ):
        strict.validate(scoped)
    assert str(together([Discarded(0, {}, 3), Discarded(2, {"CHECK": 2}, 1)])) == (
        "2 left out: 2 for CHECK; computed again, the rows that fit are 4 more or fewer than are staged"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": {"mode": "discard_rows"}}, "needs max_discarded"),
        ({"schema": {"max_discarded": 3}}, "no other mode has it"),
        ({"publish": {"mechanism": "merge", "keep_unmatched": True}}, "keep the published row of its key"),
    ],
)
def test_what_is_left_out_is_bounded_and_never_kept_by_another_way(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_spec(**{**discarding(max_discarded=1), **changes})


def test_a_table_that_demands_nothing_of_a_row_leaves_none_out(world: World) -> None:
    world.spec = make_spec(**{**discarding(max_discarded=1), "transform": {"sql": RIGHT}})
    with pytest.raises(SpecError, match=r"which has neither.*leave the rows out in the SQL"):
        world.scope(**RANGE)
