from __future__ import annotations

from datetime import date, timedelta

import pytest
from contract_engines import Engine
from contract_world import COLUMNS, EMPTY_DAY, RANGE, World, day, days, only, row_sql, rows_sql
from stage_writing import write_one

from airflow_backfill_provider.errors import BackfillError, PartitionOverrun, WarehouseError
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    Fingerprint,
    Published,
    Recompute,
    Staged,
    StagedPartition,
)

DAY = "2024-01-02"
ROW = (20, DAY, "x", "1.00", "n", "2024-01-02 10:00:00")


def _staged_rows(world: World, staged: Staged) -> list[int]:
    partitions = [entry.partition for entry in staged.partitions]
    measured = world.warehouse.measure(world.target, staged, partitions, [ROWS])
    return [values[ROWS] for values in measured.values()]


def _kept_rows(world: World, location: str) -> int:
    """How many rows of the day this attempt holds, written or not; a stage that knows of none may say so."""
    claimed = StagedPartition(day(DAY), location, Fingerprint(0, "", ""))
    try:
        (rows,) = _staged_rows(world, Staged((claimed,)))
    except WarehouseError:
        return 0
    return rows


def test_a_stage_keeps_what_the_select_returned(world: World) -> None:
    staged = only(world.stage({DAY: world.select(DAY)}))

    assert staged.partition == day(DAY)
    assert staged.fingerprint == world.fingerprint(DAY)[DAY]
    assert world.warehouse.fingerprint(world.target, Staged((staged,)), [day(DAY)]) == {DAY: staged.fingerprint}


def test_staging_changes_nothing_that_consumers_see(world: World) -> None:
    tables, contents = world.engine.tables(), world.contents()

    world.stage_corrected(DAY)

    assert world.engine.tables() == tables
    assert world.contents() == contents


def test_a_select_may_read_the_table_as_it_would_be_once_staged_rows_were_published(world: World) -> None:
    neighbour = RANGE[1]
    corrected = only(world.stage_corrected(DAY))

    def afterwards(key: str) -> Fingerprint:
        select = world.select(key).replace("analytics.orders", AFTERWARDS)
        with world.warehouse.open_stage(world.target, "b1", "again") as writer:
            (staged,) = writer.write(Recompute((day(key),), select, over=(corrected,)))
        return staged.fingerprint

    assert afterwards(DAY) == corrected.fingerprint != world.fingerprint(DAY)[DAY]
    assert afterwards(neighbour) == world.fingerprint(neighbour)[neighbour]


def test_rows_land_by_name_when_the_columns_come_in_another_order(orders: World) -> None:
    orders.engine.execute("CREATE TABLE analytics.pairs (id BIGINT, d DATE, a BIGINT, b BIGINT)")
    target = orders.warehouse.describe("analytics.pairs", "d", ["id"])
    with orders.warehouse.open_stage(target, "b1", "batch-1") as writer:
        staged = write_one(writer, day(DAY), f"SELECT 2 AS b, DATE '{DAY}' AS d, 1 AS a, 7 AS id")

    assert (
        orders.warehouse.count_rows(target, Staged((staged,)), "SELECT * FROM stage WHERE id = 7 AND a = 1 AND b = 2")
        == 1
    )


def test_rows_land_as_the_target_s_types(orders: World) -> None:
    plain = f"SELECT 20 AS order_id, DATE '{DAY}' AS order_date, 'x' AS \"Status\", 1 AS amount, 'n' AS note, " + (
        "TIMESTAMP '2024-01-02 10:00:00' AS seen_at"
    )

    assert only(orders.stage({DAY: plain})).fingerprint == only(orders.stage({DAY: row_sql(ROW)})).fingerprint


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_refused_by_name_rather_than_filled(orders: World, column: str) -> None:
    names = ", ".join(f'"{name}"' for name in COLUMNS if name != column)

    with pytest.raises(BackfillError, match=column), orders.warehouse.open_stage(orders.target, "b1", "x") as writer:
        write_one(writer, day(DAY), f"SELECT {names} FROM ({row_sql(ROW)}) AS r")


def test_an_extra_column_is_refused_by_name(orders: World) -> None:
    with pytest.raises(BackfillError, match="surplus"), orders.warehouse.open_stage(orders.target, "b1", "x") as writer:
        write_one(writer, day(DAY), f"SELECT r.*, 1 AS surplus FROM ({row_sql(ROW)}) AS r")


@pytest.mark.parametrize(
    "stray",
    [
        "2024-01-01 23:59:59.999999",
        "2024-01-03 00:00:00",
        "2023-01-02 10:00:00",
    ],
)
def test_a_row_outside_the_partition_is_refused_with_counts_and_nothing_is_kept(world: World, stray: str) -> None:
    rows = [ROW, (21, DAY, "x", "1.00", "n", "2024-01-02 11:00:00"), (22, stray[:10], "x", "1.00", "n", stray)]

    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        with pytest.raises(PartitionOverrun, match=rf"{DAY}(?s:.)*\b1\b"):
            write_one(writer, day(DAY), rows_sql(rows))
        assert _kept_rows(world, writer.location) == 0
        staged = write_one(writer, day(DAY), row_sql(ROW))

    assert _staged_rows(world, Staged((staged,))) == [1]


def test_a_row_without_a_partition_value_is_refused_and_nothing_is_kept(world: World) -> None:
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        with pytest.raises(PartitionOverrun, match=DAY):
            write_one(writer, day(DAY), rows_sql([ROW, (21, None, "x", "1.00", "n", None)]))
        assert _kept_rows(world, writer.location) == 0
        staged = write_one(writer, day(DAY), row_sql(ROW))

    assert _staged_rows(world, Staged((staged,))) == [1]


def test_the_last_microsecond_lies_inside_and_the_next_midnight_outside(events: World) -> None:
    last = (20, DAY, "x", "1.00", "n", "2024-01-02 23:59:59.999999")
    first = (21, DAY, "x", "1.00", "n", "2024-01-02 00:00:00")

    assert _staged_rows(events, events.stage_rows({DAY: [first, last]})) == [2]


def test_a_select_without_a_bound_is_an_overrun(world: World) -> None:
    with pytest.raises(PartitionOverrun), world.warehouse.open_stage(world.target, "b1", "x") as writer:
        write_one(writer, day(DAY), "SELECT * FROM analytics.orders")


def test_several_selects_are_kept_in_one_write_each_for_its_own_partition(world: World) -> None:
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        staged = writer.write(*(Recompute((day(key),), world.select(key)) for key in RANGE))

    assert tuple(entry.partition for entry in staged) == days(*RANGE)
    assert {entry.partition.key: entry.fingerprint for entry in staged} == world.fingerprint(*RANGE)
    assert _staged_rows(world, Staged(staged)) == [
        2 if key == "2024-01-03" else 0 if key == EMPTY_DAY else 3 for key in RANGE
    ]


def test_selects_of_one_write_land_as_each_would_alone_whatever_their_types_and_the_order_of_their_columns(
    orders: World,
) -> None:
    large = 2**53 + 1  # which is no DOUBLE, as the same column of the other SELECT is
    selects = {
        DAY: f"SELECT {large} AS order_id, DATE '{DAY}' AS order_date, 'x' AS \"Status\", 1.10 AS amount, 'n' AS note, "
        "TIMESTAMP '2024-01-02 10:00:00' AS seen_at",
        RANGE[
            1
        ]: f"SELECT TIMESTAMP '2024-01-03 10:00:00' AS seen_at, NULL AS note, CAST(2 AS DOUBLE PRECISION) AS amount, "
        f"'7' AS \"Status\", DATE '{RANGE[1]}' AS order_date, CAST(21 AS DOUBLE PRECISION) AS order_id",
    }
    alone = {}
    for key, select in selects.items():
        with orders.warehouse.open_stage(orders.target, "b1", "alone") as writer:
            alone[key] = write_one(writer, day(key), select).fingerprint

    with orders.warehouse.open_stage(orders.target, "b1", "together") as writer:
        staged = writer.write(*(Recompute((day(key),), select) for key, select in selects.items()))

    assert {entry.partition.key: entry.fingerprint for entry in staged} == alone
    found = f"SELECT * FROM stage WHERE order_id = {large} AND amount = 1.1"
    assert orders.warehouse.count_rows(orders.target, Staged(staged), found) == 1


def test_many_selects_of_one_write_are_each_held_to_their_own_partition(orders: World) -> None:
    many = [date(2024, 3, 1) + timedelta(days=number) for number in range(40)]

    def select(number: int, of: date) -> str:
        return row_sql((number, str(of), "x", "1.00", "n", f"{of} 10:00:00"))

    writes = {str(of): select(number, of) for number, of in enumerate(many)}
    with orders.warehouse.open_stage(orders.target, "b1", "many") as writer:
        staged = writer.write(*(Recompute((day(key),), text) for key, text in writes.items()))
        assert [entry.fingerprint.rows for entry in staged] == [1] * len(many)
        writes[str(many[33])] = select(33, many[34])
        with pytest.raises(PartitionOverrun, match=f"{many[33]} cannot be staged"):
            writer.write(*(Recompute((day(key),), text) for key, text in writes.items()))


def test_one_select_for_several_partitions_is_taken_apart(world: World) -> None:
    both = f"{world.select(DAY)} UNION ALL {world.select('2024-01-03')}"

    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        staged = writer.write(Recompute(days(DAY, "2024-01-03"), both))

    assert {entry.partition.key: entry.fingerprint for entry in staged} == world.fingerprint(DAY, "2024-01-03")


def test_when_one_select_of_a_write_fails_none_is_kept(world: World) -> None:
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        with pytest.raises(BackfillError):
            writer.write(Recompute((day(DAY),), row_sql(ROW)), Recompute((day("2024-01-03"),), "SELECT nothing"))
        assert _kept_rows(world, writer.location) == 0
        staged = write_one(writer, day(DAY), row_sql(ROW))

    assert _staged_rows(world, Staged((staged,))) == [1]


def test_selects_that_return_each_others_rows_are_refused_though_the_counts_agree(world: World) -> None:
    first, second = day(DAY), day("2024-01-03")
    rows = {
        first: [20, DAY, "x", "1.00", "n", f"{DAY} 10:00:00"],
        second: [21, "2024-01-03", "x", "1.00", "n", "2024-01-03 10:00:00"],
    }

    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        with pytest.raises(PartitionOverrun, match=DAY):
            writer.write(Recompute((first,), row_sql(rows[second])), Recompute((second,), row_sql(rows[first])))
        assert _kept_rows(world, writer.location) == 0


def test_an_empty_result_is_staged_as_no_rows(world: World) -> None:
    staged = world.stage_rows({EMPTY_DAY: [], DAY: []})

    assert [entry.fingerprint.rows for entry in staged.partitions] == [0, 0]
    assert _staged_rows(world, staged) == [0, 0]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT misspelt FROM analytics.orders",
        "SELECT CAST('no number' AS BIGINT) AS order_id, order_date, \"Status\", amount, note, seen_at FROM analytics.orders",
        "not even SQL",
    ],
)
def test_a_failed_statement_keeps_nothing_and_leaves_the_writer_usable(world: World, select: str) -> None:
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        with pytest.raises(WarehouseError):
            write_one(writer, day(DAY), select)
        assert _kept_rows(world, writer.location) == 0
        staged = write_one(writer, day(DAY), row_sql(ROW))

    assert _staged_rows(world, Staged((staged,))) == [1]


def test_a_number_too_large_for_the_target_fails_loudly(orders: World) -> None:
    with pytest.raises(WarehouseError), orders.warehouse.open_stage(orders.target, "b1", "x") as writer:
        write_one(
            writer, day(DAY), row_sql(ROW).replace("CAST('1.00' AS DECIMAL(12,2))", "CAST(100000000000 AS BIGINT)")
        )


def test_partitions_written_before_an_attempt_died_stay_whole(world: World) -> None:
    kept: list[StagedPartition] = []

    def die_after_one() -> None:
        with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
            kept.append(write_one(writer, day(DAY), world.select(DAY)))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        die_after_one()

    assert world.warehouse.fingerprint(world.target, Staged((kept[0],)), [day(DAY)]) == world.fingerprint(DAY)


def test_two_attempts_do_not_see_each_other_s_rows(world: World) -> None:
    old = only(world.stage({DAY: world.select(DAY)}))
    new = only(world.stage_corrected(DAY))

    assert old.location != new.location
    assert old.fingerprint != new.fingerprint
    for entry in (old, new):
        assert world.warehouse.fingerprint(world.target, Staged((entry,)), [day(DAY)]) == {DAY: entry.fingerprint}


def test_two_attempts_open_at_once_stay_apart(world: World) -> None:
    warehouse, target = world.warehouse, world.target
    with warehouse.open_stage(target, "b1", "batch-1") as one, warehouse.open_stage(target, "b1", "batch-1") as other:
        first = write_one(one, day(DAY), row_sql(ROW))
        second = write_one(other, day(DAY), rows_sql([]))

    assert one.location != other.location
    assert [_staged_rows(world, Staged((entry,))) for entry in (first, second)] == [[1], [0]]


def test_a_partition_written_twice_in_one_attempt_is_never_doubled(world: World) -> None:
    with world.warehouse.open_stage(world.target, "b1", "batch-1") as writer:
        write_one(writer, day(DAY), rows_sql([ROW, (21, *ROW[1:])]))
        second = write_one(writer, day(DAY), row_sql(ROW))

    assert second.fingerprint.rows == 1
    assert _staged_rows(world, Staged((second,))) == [1]


def test_one_writer_takes_many_partitions_in_any_order(world: World) -> None:
    keys = [(date(2024, 2, 1) + timedelta(days=offset)).isoformat() for offset in range(29)]
    rows = {
        key: [(number, key, "x", "1.00", None, f"{key} 12:00:00")] * (number % 3) for number, key in enumerate(keys)
    }
    backwards = dict(reversed(rows.items()))

    staged = world.stage_rows(backwards)
    measured = world.warehouse.measure(world.target, staged, [day(key) for key in keys], [ROWS])

    assert len({entry.location for entry in staged.partitions}) == 1
    assert [measured[key][ROWS] for key in keys] == [number % 3 for number in range(29)]


def test_staged_partitions_come_from_the_attempts_that_are_named(world: World) -> None:
    stale = {entry.partition.key: entry for entry in world.stage_corrected(DAY, "2024-01-03", label="one").partitions}
    fresh = only(world.stage_rows({DAY: []}, label="two"))
    mapped = Staged((fresh, stale["2024-01-03"]))

    measured = world.warehouse.measure(world.target, mapped, [day(DAY), day("2024-01-03")], [ROWS])

    assert [values[ROWS] for values in measured.values()] == [0, 2]


def test_values_are_values_and_never_sql(orders: World) -> None:
    hostile = [
        "'; DROP TABLE analytics.orders; --",
        '"',
        "/* */ -- \\",
        "{{ ds }}",
        "NULL",
        "\n\t",
        "%s ? :x $1",
        "ÿ€😀",
    ]
    before = orders.contents()

    staged = orders.stage_rows(
        {DAY: [(20 + number, DAY, text, None, None, None) for number, text in enumerate(hostile)]}
    )

    kept = Metric(MetricKind.OUTSIDE_VALUES, ("Status",), values=tuple(hostile))
    assert orders.warehouse.measure(orders.target, staged, [day(DAY)], [ROWS, kept]) == {DAY: {ROWS: 8, kept: 0}}
    assert orders.contents() == before


def test_odd_names_of_tables_and_columns_are_staged_and_compared(engine: Engine, orders: World) -> None:
    if "odd names" in engine.lacks:
        pytest.skip("the engine has no such names")
    name = 'analytics."odd ""t""; DROP TABLE orders; --"'
    engine.execute(
        f'CREATE TABLE {name} ("Key" BIGINT, "group" DATE, "a\'b"";--" VARCHAR, "ORDER" BIGINT)',
        f"INSERT INTO {name} VALUES (1, DATE '{DAY}', 'x', 2)",
    )
    target = orders.warehouse.describe('analytics.odd "t"; DROP TABLE orders; --', "group", ["Key"])

    with orders.warehouse.open_stage(target, "b1", "batch-1") as writer:
        staged = write_one(writer, day(DAY), f"SELECT * FROM {name}")

    assert target.column_names == ("Key", "group", "a'b\";--", "ORDER")
    assert orders.warehouse.fingerprint(target, Published(), [day(DAY)]) == {DAY: staged.fingerprint}
    assert orders.warehouse.compare(target, Published(), Staged((staged,)), [day(DAY)])[DAY].identical == 1
    assert orders.contents()
