from __future__ import annotations

from decimal import Decimal

import pytest
from contract_engines import Engine
from contract_world import EMPTY_DAY, KEYS, World, day, days, only, rows_sql

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar
from airflow_backfill_provider.warehouses.base import Published, Source, Staged

SUM = Metric(MetricKind.SUM, ("amount",))
NULL_NOTES = Metric(MetricKind.NULLS, ("note",))
POSITIVE = Metric(MetricKind.OUTSIDE_RANGE, ("amount",), min_value=Decimal(0))
KNOWN = Metric(MetricKind.OUTSIDE_VALUES, ("Status",), values=("paid", "open"))
UNIQUE = Metric(MetricKind.DUPLICATES, ("order_id",))
ALL = (ROWS, SUM, NULL_NOTES, POSITIVE, KNOWN, UNIQUE)
DAY = "2024-01-02"


def _measure(world: World, *metrics: Metric, key: str = DAY) -> list[Scalar]:
    measured = world.warehouse.measure(world.target, Published(), [day(key)], metrics)[key]
    return [measured[metric] for metric in metrics]


def test_each_partition_is_measured_by_itself(world: World) -> None:
    measured = world.warehouse.measure(world.target, Published(), days(*KEYS), ALL)

    assert list(measured) == list(KEYS)
    assert [measured[key][ROWS] for key in KEYS] == [2, 3, 2, 0, 1]
    assert [measured[key][SUM] for key in KEYS] == [
        Decimal("30.50"), Decimal("30.10"), Decimal("-5.05"), None, Decimal("80.00"),
    ]  # fmt: skip
    assert [measured[key][NULL_NOTES] for key in KEYS] == [1, 1, 0, 0, 0]
    assert [measured[key][KNOWN] for key in KEYS] == [0, 0, 1, 0, 0]


def test_a_bad_row_of_another_day_does_not_count(world: World) -> None:
    measured = world.warehouse.measure(world.target, Published(), days(*KEYS), [POSITIVE])

    assert [measured[key][POSITIVE] for key in KEYS] == [0, 0, 1, 0, 0]
    assert _measure(world, POSITIVE) == [0]


def test_many_partitions_at_once_and_one_by_one_measure_the_same(world: World) -> None:
    together = world.warehouse.measure(world.target, Published(), days(*KEYS), ALL)

    for key in KEYS:
        assert world.warehouse.measure(world.target, Published(), [day(key)], ALL) == {key: together[key]}


def test_an_empty_partition_counts_zero_and_sums_to_nothing(world: World) -> None:
    measured = world.warehouse.measure(world.target, Published(), [day(EMPTY_DAY)], ALL)[EMPTY_DAY]

    assert measured == {ROWS: 0, SUM: None, NULL_NOTES: 0, POSITIVE: 0, KNOWN: 0, UNIQUE: 0}


def test_a_sum_over_nulls_alone_is_nothing_rather_than_zero(orders: World) -> None:
    orders.engine.execute(f"UPDATE analytics.orders SET amount = NULL WHERE order_date = DATE '{DAY}'")

    assert _measure(orders, SUM) == [None]


def test_sums_of_decimals_are_exact(orders: World) -> None:
    rows = [[number, EMPTY_DAY, "a", "0.10", None, None] for number in range(100, 110)]
    orders.engine.execute(f"INSERT INTO analytics.orders {rows_sql(rows)}")

    (total,) = _measure(orders, SUM, key=EMPTY_DAY)

    assert isinstance(total, Decimal)
    assert total == Decimal("1.00")


def test_sums_of_integers_are_exact_beyond_64_bits(orders: World) -> None:
    large = 2**62 + 1
    orders.engine.execute(f"INSERT INTO analytics.orders {rows_sql([[large, EMPTY_DAY, 'a', None, None, None]] * 3)}")

    assert _measure(orders, Metric(MetricKind.SUM, ("order_id",)), key=EMPTY_DAY) == [3 * large]


def test_rows_that_share_their_values_with_an_earlier_row_are_duplicates(orders: World) -> None:
    pairs = ((20, "x"), (20, "x"), (20, "y"), (21, "x"))
    rows = [[order_id, EMPTY_DAY, status, None, None, None] for order_id, status in pairs]
    orders.engine.execute(f"INSERT INTO analytics.orders {rows_sql(rows)}")
    both = Metric(MetricKind.DUPLICATES, ("order_id", "Status"))

    assert _measure(orders, UNIQUE, both, key=EMPTY_DAY) == [2, 1]


@pytest.mark.parametrize(("statuses", "duplicates"), [([None], 0), ([None, "x"], 0), ([None, None], 1)])
def test_a_null_is_a_duplicate_only_of_an_earlier_null(
    orders: World, statuses: list[str | None], duplicates: int
) -> None:
    rows = [[20, EMPTY_DAY, status, None, None, None] for status in statuses]
    orders.engine.execute(f"INSERT INTO analytics.orders {rows_sql(rows)}")
    one = Metric(MetricKind.DUPLICATES, ("Status",))
    two = Metric(MetricKind.DUPLICATES, ("Status", "order_id"))

    assert _measure(orders, one, two, key=EMPTY_DAY) == [duplicates, duplicates]


@pytest.mark.parametrize(
    ("metric", "outside"),
    [
        (Metric(MetricKind.OUTSIDE_RANGE, ("amount",), min_value=Decimal("0.10")), 0),
        (Metric(MetricKind.OUTSIDE_RANGE, ("amount",), min_value=Decimal("0.10"), inclusive=False), 1),
        (Metric(MetricKind.OUTSIDE_RANGE, ("amount",), max_value=Decimal("29.99")), 1),
        (Metric(MetricKind.OUTSIDE_RANGE, ("amount",), min_value=Decimal(1), max_value=Decimal(2)), 2),
        (Metric(MetricKind.OUTSIDE_RANGE, ("order_id",), min_value=Decimal("3.5")), 1),
        (Metric(MetricKind.OUTSIDE_RANGE, ("seen_at",), min_value="2024-01-02 12:00:00"), 1),
        (Metric(MetricKind.OUTSIDE_RANGE, ("order_date",), max_value="2024-01-01"), 3),
        (Metric(MetricKind.OUTSIDE_RANGE, ("note",), min_value="c"), 1),  # "b"; the other text starts with i
        (Metric(MetricKind.OUTSIDE_VALUES, ("order_id",), values=(Decimal(3), Decimal(5))), 1),
        (Metric(MetricKind.OUTSIDE_VALUES, ("amount",), values=(Decimal("30"), Decimal("0.1"))), 0),
        (Metric(MetricKind.OUTSIDE_VALUES, ("note",), values=('it\'s; -- "c"',)), 1),
        (Metric(MetricKind.OUTSIDE_VALUES, ("note",), values=("b') OR 1=1 --",)), 2),
    ],
)
def test_values_that_are_not_null_are_held_against_the_bounds(orders: World, metric: Metric, outside: int) -> None:
    assert _measure(orders, metric) == [outside]


def test_flags_are_held_against_flags(orders: World) -> None:
    orders.engine.execute(
        "CREATE TABLE analytics.flags (id BIGINT, d DATE, f BOOLEAN)",
        f"INSERT INTO analytics.flags VALUES (1, DATE '{DAY}', TRUE), (2, DATE '{DAY}', FALSE)",
    )
    target = orders.warehouse.describe("analytics.flags", "d", ["id"])
    metric = Metric(MetricKind.OUTSIDE_VALUES, ("f",), values=(True,))

    assert orders.warehouse.measure(target, Published(), [day(DAY)], [metric]) == {DAY: {metric: 1}}


def test_staged_rows_and_a_backup_are_measured_like_published_rows(world: World) -> None:
    published = world.warehouse.measure(world.target, Published(), days(*KEYS), ALL)
    staged = world.stage({key: world.select(key) for key in KEYS})
    backup, _ = world.warehouse.back_up(world.target, "b1", days(*KEYS), label="before")

    assert world.warehouse.measure(world.target, staged, days(*KEYS), ALL) == published
    assert world.warehouse.measure(world.target, backup, days(*KEYS), ALL) == published


def test_partitions_staged_by_different_attempts_are_measured_together(world: World) -> None:
    first = world.stage_corrected("2024-01-02", label="one")
    second = world.stage_corrected("2024-01-03", label="two")
    both = type(first)((*first.partitions, *second.partitions))

    measured = world.warehouse.measure(world.target, both, days("2024-01-02", "2024-01-03"), [ROWS, SUM])

    assert [entry[SUM] for entry in measured.values()] == [Decimal("32.10"), Decimal("-3.05")]


@pytest.mark.parametrize("clock", ["date", "timestamp"])
def test_a_source_is_cut_by_its_own_partition_column(world: World, clock: str) -> None:
    world.engine.execute(f'CREATE TABLE analytics.source (id BIGINT, "loaded at" {world.engine.types[clock]})')
    moments = ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-03"]
    if clock == "timestamp":
        moments = [
            "2024-01-01 23:59:59.999999",
            "2024-01-02 00:00:00",
            "2024-01-02 23:59:59.999999",
            "2024-01-03 00:00:00",
        ]
    world.engine.execute(
        *(
            f"INSERT INTO analytics.source SELECT {number}, CAST('{moment}' AS {world.engine.types[clock]})"
            for number, moment in enumerate(moments)
        )
    )

    measured = world.warehouse.measure(world.target, Source("analytics.source", "loaded at"), days(*KEYS), [ROWS])

    assert [measured[key][ROWS] for key in KEYS] == [1, 2, 1, 0, 0]


def test_only_the_rows_of_a_source_that_meet_its_condition_are_there(world: World) -> None:
    moment = "CAST('2024-01-02 12:00:00' AS TIMESTAMP)"
    source = Source("analytics.orders", world.partition_by, where=f'"seen_at" <= {moment}')

    measured = world.warehouse.measure(world.target, source, days(*KEYS), [ROWS, SUM])
    together = world.warehouse.measure_together(world.target, source, days(*KEYS), [ROWS])
    statement = world.warehouse.metric_sql(world.target, source, days(*KEYS), ROWS)

    assert [measured[key][ROWS] for key in KEYS] == [2, 2, 0, 0, 0]
    assert measured[DAY][SUM] == Decimal("30.10")
    assert together[ROWS] == 4
    assert world.engine.rows(statement) == [(4,)]


def test_no_partition_is_measured_as_no_answer(orders: World) -> None:
    assert orders.warehouse.measure(orders.target, Published(), [], ALL) == {}


@pytest.mark.parametrize("metric", ALL, ids=str)
def test_the_statement_in_a_report_gives_the_measured_value(world: World, metric: Metric) -> None:
    for key in (DAY, "2024-01-03", EMPTY_DAY):
        statement = world.warehouse.metric_sql(world.target, Published(), [day(key)], metric)

        assert world.engine.rows(statement) == [(_measure(world, metric, key=key)[0],)]


def test_the_statement_in_a_report_exists_for_every_side(orders: World) -> None:
    staged = orders.stage_corrected(DAY)
    backup, _ = orders.warehouse.back_up(orders.target, "b1", days(DAY), label="before")

    for rows in (staged, backup, Source("analytics.orders", "seen_at")):
        assert "SELECT" in orders.warehouse.metric_sql(orders.target, rows, [day(DAY)], SUM).upper()


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM stage", 3),
        ("SELECT * FROM stage WHERE amount IS NULL", 1),
        ("SELECT * FROM stage WHERE note LIKE 'it''s; --%'", 1),
        ("SELECT * FROM stage WHERE 1 = 0", 0),
        ("SELECT order_id FROM stage WHERE amount > 1 -- too much", 1),
        ("SELECT order_id FROM stage;", 3),
        ('SELECT "Status", count(*) AS n FROM stage GROUP BY "Status" HAVING count(*) = 1', 3),
        ("WITH s AS (SELECT * FROM stage) SELECT * FROM s JOIN s AS t ON s.order_id = t.order_id", 3),
        ("SELECT order_id FROM stage UNION ALL SELECT order_id FROM stage", 6),
    ],
)
def test_a_query_of_the_user_s_sees_one_partition_as_stage(world: World, query: str, rows: int) -> None:
    staged = world.stage({key: world.select(key) for key in KEYS})
    (entry,) = (entry for entry in staged.partitions if entry.partition.key == DAY)

    assert world.warehouse.count_rows(world.target, Staged((entry,)), query) == rows


def test_an_empty_partition_is_an_empty_stage(orders: World) -> None:
    assert orders.warehouse.count_rows(orders.target, orders.stage_rows({EMPTY_DAY: []}), "SELECT * FROM stage") == 0


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM stage",
        "SELECT 1 AS a; DROP TABLE analytics.orders",
        "DROP TABLE analytics.orders",
        "SELECT 1 AS a) AS q; DROP TABLE analytics.orders; SELECT * FROM (SELECT 1 AS a",
        "INSERT INTO stage SELECT * FROM stage",
        "",
        "-- nothing",
    ],
)
def test_what_is_not_one_select_is_refused_and_runs_nothing(orders: World, query: str) -> None:
    before = orders.contents()
    staged = orders.stage_corrected(DAY)

    with pytest.raises(WarehouseError):
        orders.warehouse.count_rows(orders.target, staged, query)

    assert orders.contents() == before
    assert orders.warehouse.fingerprint(orders.target, staged, [day(DAY)])[DAY] == only(staged).fingerprint


def test_a_query_that_fails_keeps_the_engine_s_message(orders: World) -> None:
    with pytest.raises(WarehouseError, match="misspelt"):
        orders.warehouse.count_rows(orders.target, orders.stage_corrected(DAY), "SELECT misspelt FROM stage")


def test_reserved_words_and_odd_characters_are_measured(engine: Engine, orders: World) -> None:
    engine.execute(
        'CREATE TABLE analytics."select" ("group" BIGINT, "order" DATE, "a ""b""; --" DECIMAL(12,2))',
        f"INSERT INTO analytics.\"select\" VALUES (1, DATE '{DAY}', 1.50), (2, DATE '{DAY}', NULL)",
    )
    target = orders.warehouse.describe("analytics.select", "order", ["group"])
    metric = Metric(MetricKind.SUM, ('a "b"; --',))

    assert orders.warehouse.measure(target, Published(), [day(DAY)], [metric]) == {DAY: {metric: Decimal("1.50")}}
