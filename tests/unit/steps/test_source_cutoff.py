"""``source.cutoff``: what arrives after the plan does not enter, and a source that moved is not published over."""

from __future__ import annotations

from datetime import timedelta

import pytest
from steps_world import DAYS, NOW, World, make_spec

from airflow_backfill_provider.errors import SourceMoved, SpecError, TransformRefused
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.source import MOVED_EVENT

SOURCE = {"table": "raw.orders", "partition_by": "order_date"}
CUTOFF = {"source": SOURCE | {"cutoff": {"column": "ingested_at"}}}
LATE = NOW + timedelta(microseconds=1)


@pytest.fixture(params=["TIMESTAMP", "TIMESTAMPTZ"])
def arrivals(world: World, request: pytest.FixtureRequest) -> World:
    """The source says when each row arrived: the last of a day in the moment of the plan, the others before."""
    world.engine.execute(
        f"ALTER TABLE raw.orders ADD COLUMN ingested_at {request.param}",
        f"UPDATE raw.orders SET ingested_at = {request.param} '2024-05-01 00:00:00+00'",
        f"UPDATE raw.orders SET ingested_at = {request.param} '{NOW:%Y-%m-%d %H:%M:%S}+00' WHERE order_id % 100 = 5",
    )
    world.spec = make_spec(**CUTOFF)
    return world


def arrive(world: World, order: int, at: str = f"TIMESTAMP '{LATE:%Y-%m-%d %H:%M:%S.%f}'") -> None:
    """A row of March 1 is added to the source."""
    if "'" in at and any(kind == "TIMESTAMP WITH TIME ZONE" for kind in types(world)):
        at = at.replace("TIMESTAMP '", "TIMESTAMPTZ '").removesuffix("'") + "+00'"
    world.engine.execute(f"INSERT INTO raw.orders VALUES ({order}, DATE '{DAYS[0]}', 1, 'late', FALSE, {at})")


def types(world: World) -> list[str]:
    return [kind for (kind,) in world.engine.rows("SELECT data_type FROM duckdb_columns() WHERE table_name = 'orders'")]


@pytest.mark.parametrize("scope", ["partition", "range"])
def test_a_row_that_arrives_after_the_plan_does_not_enter(arrivals: World, scope: str) -> None:
    arrivals.spec = make_spec(**CUTOFF, transform={"sql": make_spec().transform.sql, "scope": scope})
    scoped = arrivals.scope()
    arrive(arrivals, 70)

    arrivals.stage(scoped)
    arrivals.validate(scoped)  # compares the number of rows against the source as well
    assert arrivals.publish().published

    assert sorted(arrivals.amounts(DAYS[0])) == [0, 1, 2, 3, 4, 5]


def test_every_partition_and_every_resume_use_the_moment_of_the_plan(arrivals: World) -> None:
    scoped = arrivals.scope()
    arrivals.now = NOW + timedelta(days=3)
    arrive(arrivals, 70)

    again = arrivals.scope(restage=True)

    assert again.plan.arrived == scoped.plan.arrived
    assert again.plan.source_rows == scoped.plan.source_rows
    arrivals.stage(again)
    arrivals.validate(again)
    assert arrivals.publish().published
    assert 70 not in arrivals.amounts(DAYS[0])


def test_the_plan_shows_the_cutoff_in_its_sql_and_in_words(arrivals: World) -> None:
    plan = arrivals.scope(mode="plan").plan
    assert plan.arrived in plan.first_sql
    assert "2024-06-01 12:00:00" in plan.arrived
    assert f"cutoff      of raw.orders, rows with {plan.arrived}" in preview(plan)


def test_a_row_without_an_arrival_is_refused_when_the_plan_is_made(arrivals: World) -> None:
    arrive(arrivals, 70, "NULL")
    with pytest.raises(SpecError, match=rf"rows without ingested_at.*{DAYS[0]} \(1 rows\)"):
        arrivals.scope()


def test_a_row_without_an_arrival_that_comes_later_does_not_enter(arrivals: World) -> None:
    arrivals.prepare()
    arrive(arrivals, 70, "NULL")
    assert arrivals.publish().published
    assert 70 not in arrivals.amounts(DAYS[0])


@pytest.mark.parametrize(
    ("column", "told"),
    [("nosuch", "cannot be read"), ("order_date", "is DATE; it must be a timestamp"), ("note", "is VARCHAR")],
)
def test_a_column_that_tells_no_arrival_is_refused(arrivals: World, column: str, told: str) -> None:
    arrivals.spec = make_spec(source=SOURCE | {"cutoff": {"column": column}})
    with pytest.raises(SpecError, match=f"source.cutoff.column {column} of raw.orders {told}"):
        arrivals.scope()


def test_a_transform_that_does_not_read_the_source_is_refused(arrivals: World) -> None:
    other = make_spec().transform.sql.replace("raw.orders", "analytics.orders").replace("refunded", "amount > 0")
    arrivals.spec = make_spec(**CUTOFF, transform={"sql": other})
    with pytest.raises(TransformRefused, match=r"does not read raw\.orders, so source\.cutoff would bound nothing"):
        arrivals.scope()


def test_a_source_that_lost_rows_from_before_the_cutoff_is_not_published_over(arrivals: World) -> None:
    before = arrivals.published()
    arrivals.prepare()
    arrivals.engine.execute("DELETE FROM raw.orders WHERE order_id IN (1, 2, 401)")

    with pytest.raises(
        SourceMoved, match=f"2 partitions.*{DAYS[0]} had 6 rows and has 4.*Nothing was written"
    ) as moved:
        arrivals.publish()

    assert moved.value.moved == {DAYS[0]: (6, 4), DAYS[4]: (6, 5)}
    assert arrivals.published() == before
    assert arrivals.ledger.backfill(arrivals.id).state is BackfillState.VALIDATED
    assert [item.kind for item in arrivals.warehouse.storage() if item.kind == "backup"] == []


def test_rebase_recomputes_the_partitions_whose_source_moved_and_no_others(arrivals: World) -> None:
    arrivals.prepare()
    arrivals.engine.execute("DELETE FROM raw.orders WHERE order_id IN (1, 401)")
    with pytest.raises(SourceMoved):
        arrivals.publish()

    again = arrivals.scope(backfill_id=arrivals.id, rebase=True)
    staged = sum(result.staged for result in arrivals.stage(again))
    arrivals.validate(again)

    assert staged == 2
    assert arrivals.publish().published
    assert 1 not in arrivals.amounts(DAYS[0])


def test_a_source_without_a_cutoff_is_counted_again_too_and_may_be_warned_of(world: World) -> None:
    world.spec = make_spec(source=SOURCE | {"on_moved": "warn"})
    world.prepare()
    world.engine.execute(f"INSERT INTO raw.orders VALUES (70, DATE '{DAYS[0]}', 1, 'late', FALSE)")

    assert world.publish().published

    (event,) = [event for event in world.ledger.events(world.id) if event.action == MOVED_EVENT]
    assert event.detail["moved"] == {DAYS[0]: [6, 7]}
    assert 70 not in world.amounts(DAYS[0])


def test_a_source_without_a_cutoff_that_moved_is_refused_by_default(world: World) -> None:
    before = world.published()
    world.prepare()
    world.engine.execute(f"INSERT INTO raw.orders VALUES (70, DATE '{DAYS[0]}', 1, 'late', FALSE)")
    with pytest.raises(SourceMoved):
        world.publish()
    assert world.published() == before


def test_an_edit_of_the_checks_does_not_make_a_moved_source_forgotten(arrivals: World) -> None:
    arrivals.prepare()
    arrivals.engine.execute("DELETE FROM raw.orders WHERE order_id = 1")
    arrivals.spec = make_spec(**CUTOFF, checks=[], compare=[])

    again = arrivals.scope()
    assert arrivals.stage(again)[0].staged == 0
    arrivals.validate(again)
    with pytest.raises(SourceMoved):
        arrivals.publish()

    arrivals.spec = make_spec(source=CUTOFF["source"] | {"on_moved": "warn"}, checks=[], compare=[])
    arrivals.validate(arrivals.scope())
    assert arrivals.publish().published


def test_restage_counts_the_source_anew_since_it_computes_everything_anew(arrivals: World) -> None:
    arrivals.prepare()
    arrivals.engine.execute("DELETE FROM raw.orders WHERE order_id = 1")

    again = arrivals.scope(restage=True)
    assert again.plan.source_rows[DAYS[0]] == 5
    arrivals.stage(again)
    arrivals.validate(again)
    assert arrivals.publish().published


def test_no_unit_is_written_when_the_source_of_a_later_one_moved(world: World) -> None:
    world.spec = make_spec(publish={"unit": "week"})
    before = world.published()
    world.prepare()
    world.engine.execute(f"DELETE FROM raw.orders WHERE order_date = DATE '{DAYS[9]}'")

    with pytest.raises(SourceMoved, match=f"{DAYS[9]} had 6 rows and has 0"):
        world.publish()

    assert world.published() == before
