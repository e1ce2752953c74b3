"""What checks and comparisons ask of an engine beyond counts and sums: tests in the spec's own SQL, other tables,
rows of many partitions together, columns left out, the table's own constraints."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from contract_engines import Engine
from contract_world import EMPTY_DAY, KEYS, World, day, days, only
from stage_writing import write_one

from airflow_backfill_provider.errors import PublishRefused, SpecError, WarehouseError
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.warehouses.base import AFTERWARDS, ConstraintKind, Published, RowDiff, Staged

DAY = "2024-01-02"
PAID = "\"Status\" = 'paid'"
METRICS = {
    Metric(MetricKind.ROWS, where=PAID): [1, 1, 1, 0, 1],
    Metric(MetricKind.NULLS, ("note",), where=PAID): [1, 0, 0, 0, 0],
    Metric(MetricKind.SUM, ("amount",), where=PAID): [
        Decimal("10.00"), Decimal("30.00"), Decimal("-5.25"), None, Decimal("80.00"),
    ],
    Metric(MetricKind.DUPLICATES, ("Status",), where="order_id > 0"): [0, 0, 0, 0, 0],
    Metric(MetricKind.DUPLICATES, ("Status", "order_date"), where='"Status" IS NOT NULL'): [0, 0, 0, 0, 0],
    Metric(MetricKind.OUTSIDE_RANGE, ("amount",), min_value=Decimal(1), max_value=Decimal(20), where=PAID): [
        0, 1, 1, 0, 1,
    ],
    Metric(MetricKind.OUTSIDE_VALUES, ("note",), values=("b",), where=PAID): [0, 0, 1, 0, 1],
    Metric(MetricKind.UNTRUE, expression="amount > 0"): [0, 1, 1, 0, 0],
    Metric(MetricKind.UNTRUE, expression="amount > 0", where="amount IS NOT NULL"): [0, 0, 1, 0, 0],
    Metric(MetricKind.UNTRUE, expression="(amount > 0) IS NOT FALSE"): [0, 0, 1, 0, 0],
    Metric(MetricKind.COUNT_DISTINCT, ("Status",)): [2, 2, 2, 0, 1],
    Metric(MetricKind.MIN, ("amount",)): [
        Decimal("10.00"), Decimal("0.10"), Decimal("-5.25"), None, Decimal("80.00"),
    ],
    Metric(MetricKind.MAX, ("amount",)): [
        Decimal("20.50"), Decimal("30.00"), Decimal("0.20"), None, Decimal("80.00"),
    ],
}  # fmt: skip


def test_every_metric_is_of_its_own_partition_and_of_the_rows_that_its_condition_leaves(world: World) -> None:
    measured = world.warehouse.measure(world.target, Published(), days(*KEYS), list(METRICS))

    for metric, values in METRICS.items():
        assert [measured[key][metric] for key in KEYS] == values, metric


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_the_statement_in_a_report_gives_the_value_of_such_a_metric(world: World, metric: Metric) -> None:
    for key, value in zip(KEYS, METRICS[metric], strict=True):
        assert world.engine.rows(world.warehouse.metric_sql(world.target, Published(), [day(key)], metric)) == [
            (value,)
        ]


def test_rows_of_many_partitions_and_attempts_are_measured_together(world: World) -> None:
    first = world.stage({key: world.select(key) for key in KEYS[:2]}, label="one")
    second = world.stage({key: world.select(key) for key in KEYS[2:]}, label="two")
    staged = Staged((*first.partitions, *second.partitions))
    expected = {
        ROWS: 8,
        Metric(MetricKind.ROWS, where=PAID): 4,
        Metric(MetricKind.COUNT_DISTINCT, ("Status",)): 3,
        Metric(MetricKind.DUPLICATES, ("Status",)): 4,
        Metric(MetricKind.SUM, ("amount",)): Decimal("135.55"),
        Metric(MetricKind.MIN, ("amount",)): Decimal("-5.25"),
        Metric(MetricKind.UNTRUE, expression="amount > 0"): 2,
    }

    for rows in (staged, Published()):
        assert world.warehouse.measure_together(world.target, rows, days(*KEYS), list(expected)) == expected
    nothing = world.warehouse.measure_together(world.target, staged, days(EMPTY_DAY), list(expected))
    assert nothing == {metric: metric.nothing for metric in expected}
    assert world.warehouse.measure_together(world.target, staged, [], [ROWS]) == {ROWS: 0}


def test_values_that_another_table_lacks_are_counted_and_null_is_not_among_them(orders: World) -> None:
    orders.engine.execute(
        "CREATE TABLE analytics.statuses (code VARCHAR, amount BIGINT)",
        "INSERT INTO analytics.statuses VALUES ('paid', 1), (NULL, 2)",
    )
    metric = Metric(MetricKind.ORPHANS, ("Status",), to_table="analytics.statuses", to_field="code")
    staged = orders.stage({key: orders.select(key) for key in KEYS})

    for rows in (Published(), staged):
        measured = orders.warehouse.measure(orders.target, rows, days(*KEYS), [ROWS, metric])
        assert [measured[key][metric] for key in KEYS] == [1, 1, 1, 0, 0]
    statement = orders.warehouse.metric_sql(orders.target, Published(), [day(DAY)], metric)
    assert orders.engine.rows(statement) == [(1,)]


@pytest.mark.parametrize(("table", "field"), [("analytics.nosuch", "code"), ("analytics.statuses", "order_id")])
def test_a_table_or_field_that_is_not_there_is_an_error_and_not_a_match(orders: World, table: str, field: str) -> None:
    orders.engine.execute("CREATE TABLE analytics.statuses (code VARCHAR)")
    metric = Metric(MetricKind.ORPHANS, ("order_id",), to_table=table, to_field=field)

    with pytest.raises((WarehouseError, SpecError)):
        orders.warehouse.measure(orders.target, Published(), [day(DAY)], [metric])


@pytest.mark.parametrize("text", ["1 = 1) OR (1 = 1", "1 = 1; DROP TABLE analytics.orders", "order_id IN (SELECT 1)"])
def test_a_condition_that_is_more_than_one_expression_never_reaches_the_engine(orders: World, text: str) -> None:
    before = orders.contents()
    staged = orders.stage_corrected(DAY)

    for metric in (Metric(MetricKind.ROWS, where=text), Metric(MetricKind.UNTRUE, expression=text)):
        with pytest.raises(SpecError):
            orders.warehouse.measure(orders.target, staged, [day(DAY)], [metric])
    with pytest.raises(SpecError):
        orders.warehouse.count_rows(orders.target, staged, "SELECT * FROM stage", where=text)
    assert orders.contents() == before


def test_an_expression_that_fails_keeps_the_engine_s_message_without_the_value(orders: World) -> None:
    metric = Metric(MetricKind.UNTRUE, expression="CAST(note AS INTEGER) > 0")

    with pytest.raises(WarehouseError, match=r"(?i:int)") as refused:
        orders.warehouse.measure(orders.target, Published(), [day(DAY)], [metric])
    assert not re.search(r"""['"]b['"]""", str(refused.value))


def test_a_query_sees_the_rows_that_its_condition_leaves_of_every_partition_given(world: World) -> None:
    first = world.stage({DAY: world.select(DAY)}, label="one")
    second = world.stage({"2024-01-03": world.select("2024-01-03")}, label="two")
    both = Staged((*first.partitions, *second.partitions))

    assert world.warehouse.count_rows(world.target, both, "SELECT * FROM stage") == 5
    assert world.warehouse.count_rows(world.target, both, "SELECT * FROM stage", where=PAID) == 2
    assert world.warehouse.count_rows(world.target, Staged((only(first),)), "SELECT * FROM stage", where=PAID) == 1


def _volatile(world: World) -> Staged:
    """One day with a note that differs everywhere and one amount that differs."""
    picks = "CASE WHEN order_id = 3 THEN CAST(1 AS DECIMAL(12,2)) ELSE amount END AS amount"
    select = world.select(DAY).replace("amount AS amount, note", f"{picks}, CAST('now' AS VARCHAR) AS note")
    return world.stage({DAY: select, "2024-01-03": world.select("2024-01-03")})


@pytest.mark.parametrize("excluded", ["note", "NOTE"])
def test_columns_that_are_excluded_are_not_compared(world: World, excluded: str) -> None:
    both = days(DAY, "2024-01-03")
    staged = _volatile(world)

    everything = world.warehouse.compare(world.target, Published(), staged, both)
    without = world.warehouse.compare(world.target, Published(), staged, both, exclude=[excluded])
    neither = world.warehouse.compare(world.target, Published(), staged, both, exclude=[excluded, "amount"])

    assert everything[DAY] == RowDiff(old=3, new=3, changed=3)
    assert without[DAY] == RowDiff(old=3, new=3, identical=2, changed=1)
    assert neither[DAY] == RowDiff(old=3, new=3, identical=3)
    assert {diffs["2024-01-03"] for diffs in (everything, without, neither)} == {RowDiff(2, 2, identical=2)}


def test_excluded_columns_are_part_of_what_is_published_all_the_same(world: World) -> None:
    staged = _volatile(world)

    world.warehouse.replace_partitions(world.target, world.publication(staged, [DAY, "2024-01-03"]))

    assert {row[4] for row in world.contents() if row[0] in (3, 4, 5)} == {"now"}


def test_changes_are_counted_by_column_in_rows_matched_by_key(world: World) -> None:
    both = days(DAY, "2024-01-03")
    staged = _volatile(world)

    changes = world.warehouse.changed_columns(world.target, Published(), staged, both)
    without = world.warehouse.changed_columns(world.target, Published(), staged, both, exclude=["note"])

    assert changes == {DAY: {"amount": 1, "note": 3}, "2024-01-03": {}}
    assert without == {DAY: {"amount": 1}, "2024-01-03": {}}
    assert world.warehouse.changed_columns(world.target, Published(), staged, []) == {}


def test_rows_that_only_one_side_has_change_no_column(world: World) -> None:
    staged = world.stage_rows({DAY: [(3, DAY, "void", "30.00", "b", "2024-01-02 00:00:00"),
                                     (90, DAY, "new", None, None, "2024-01-02 01:00:00")]})  # fmt: skip

    assert world.warehouse.changed_columns(world.target, Published(), staged, [day(DAY)]) == {DAY: {"Status": 1}}
    assert world.warehouse.changed_columns(world.target, Published(), staged, [day(DAY)], exclude=["STATUS"]) == {
        DAY: {}
    }


def test_numbers_within_the_tolerance_of_their_column_do_not_differ_and_a_null_is_never_close(world: World) -> None:
    staged = world.stage_rows({DAY: [(3, DAY, "paid", "30.05", "b", "2024-01-02 00:00:00"),
                                     (4, DAY, "open", None, None, "2024-01-02 12:00:00"),
                                     (5, DAY, None, "0.00", 'it\'s; -- "c"', "2024-01-02 23:59:59.999999")]})  # fmt: skip
    sides = (world.target, Published(), staged, [day(DAY)])

    found = [
        world.warehouse.changed_columns(*sides, tolerance={"AMOUNT": Decimal(limit)})[DAY]
        for limit in ("0", "0.049", "0.05", "1000")
    ]

    assert found == [{"amount": 3}, {"amount": 3}, {"amount": 2}, {"amount": 2}]


def _keyed(engine: Engine, orders: World) -> Any:
    unique = "" if "constraint" in engine.lacks else ', CONSTRAINT "one code" UNIQUE (code)'
    engine.execute(
        "CREATE TABLE analytics.keyed (id BIGINT NOT NULL, d DATE, code VARCHAR, amount BIGINT, "
        f"CONSTRAINT positive CHECK (amount > 0){unique})",
        "INSERT INTO analytics.keyed VALUES (1, DATE '2024-01-01', 'a', 1), (2, DATE '2024-01-02', 'b', 2)",
    )
    return orders.warehouse.describe("analytics.keyed", "d", ["id"])


def test_the_table_s_own_constraints_are_described(engine: Engine, orders: World) -> None:
    found = {constraint.kind: constraint for constraint in _keyed(engine, orders).constraints}

    columns = {ConstraintKind.CHECK: ("amount",), ConstraintKind.NOT_NULL: ("id",), ConstraintKind.UNIQUE: ("code",)}
    if "constraint" in engine.lacks:
        del columns[ConstraintKind.UNIQUE]
    assert {kind: constraint.columns for kind, constraint in found.items()} == columns
    assert all(constraint.name and constraint.columns[0] in constraint.text for constraint in found.values())
    assert orders.target.constraints == ()


def test_a_stage_takes_rows_that_break_a_constraint_and_a_publish_does_not(engine: Engine, orders: World) -> None:
    target = _keyed(engine, orders)
    before = engine.rows("SELECT * FROM analytics.keyed ORDER BY id")
    breaking = ["NULL AS id, 'c' AS code, 5", "3 AS id, 'c' AS code, -5"]
    if "constraint" not in engine.lacks:
        breaking.append("3 AS id, 'a' AS code, 5")
    for wrong in breaking:
        with orders.warehouse.open_stage(target, "b1", "x") as writer:
            select = f"SELECT {wrong} AS amount, DATE '{DAY}' AS d"
            staged = Staged((write_one(writer, day(DAY), select),))
        publication = orders.publication(
            staged, [DAY], before=orders.warehouse.fingerprint(target, Published(), [day(DAY)])
        )
        with pytest.raises(PublishRefused, match=r"(?i)constraint"):
            orders.warehouse.replace_partitions(target, publication)
    assert engine.rows("SELECT * FROM analytics.keyed ORDER BY id") == before


def test_the_statement_in_a_report_may_be_of_many_partitions_together(engine: Engine, orders: World) -> None:
    first = orders.stage({key: orders.select(key) for key in KEYS[:2]}, label="one")
    second = orders.stage({key: orders.select(key) for key in KEYS[2:]}, label="two")
    staged = Staged((*first.partitions, *second.partitions))
    for metric in (ROWS, Metric(MetricKind.COUNT_DISTINCT, ("Status",), where=PAID), *METRICS):
        expected = orders.warehouse.measure_together(orders.target, Published(), days(*KEYS), [metric])[metric]
        published = orders.warehouse.metric_sql(orders.target, Published(), days(*KEYS), metric)
        assert engine.rows(published) == [(expected,)], metric
        assert engine.staged_rows(orders.warehouse.metric_sql(orders.target, staged, days(*KEYS), metric)) == [
            (expected,)
        ]


def test_a_query_is_asked_of_the_table_as_it_is_and_as_it_would_be(world: World) -> None:
    staged = world.stage_rows({DAY: [(3, DAY, "paid", "1.00", "b", "2024-01-02 00:00:00")], EMPTY_DAY: []})
    total = f"SELECT sum(r.amount) FROM {AFTERWARDS} AS r WHERE r.order_id < 9"
    rows = f"SELECT count(*) FROM {AFTERWARDS}"

    as_it_is = [world.warehouse.one_value(world.target, Staged(()), query) for query in (total, rows)]
    as_it_would_be = [world.warehouse.one_value(world.target, staged, query) for query in (total, rows)]

    assert as_it_is == [Decimal("135.55"), 10]
    assert as_it_would_be == [Decimal("106.45"), 8], "rows without a partition value stay"
    assert len(world.contents()) == 10


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"SELECT order_id FROM {AFTERWARDS}", "more than 1 row"),
        (f"SELECT order_id FROM {AFTERWARDS} WHERE order_id = 77", "no row"),
        (f"SELECT order_id, amount FROM {AFTERWARDS} WHERE order_id = 1", "1 row of 2 columns"),
    ],
)
def test_a_query_that_has_no_one_value_is_said_to_have_none(world: World, query: str, reason: str) -> None:
    with pytest.raises(WarehouseError, match=f"returns {reason}"):
        world.warehouse.one_value(world.target, Staged(()), query)
