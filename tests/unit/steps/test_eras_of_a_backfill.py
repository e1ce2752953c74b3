"""``transform.eras``: each stretch of history is recomputed by its own SQL, in the plan and in every way of staging."""

from __future__ import annotations

import pytest
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps.recompute import PROOF_EVENT, together
from airflow_backfill_provider.steps.stage import stage_batch

BOUNDS = "order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'"
# Until March 5 the amounts were in pence.
OLD = f"SELECT order_id, order_date, amount * 100 AS amount, note FROM raw.orders WHERE {BOUNDS}"
NEW = f"SELECT order_id, order_date, amount, note FROM raw.orders WHERE {BOUNDS}"
ONE_BATCH = {"compute": {"conn_id": "w", "max_concurrency": 1}}


def eras(old: str = OLD, new: str = NEW, **settings: object) -> dict[str, object]:
    files = [{"until": DAYS[4], "sql": old, "file": "old.sql"}, {"sql": new, "file": "new.sql"}]
    return {"transform": {"eras": files, **settings}} | ONE_BATCH


@pytest.mark.parametrize("scope", ["partition", "range"])
def test_each_day_is_published_as_the_sql_of_its_era_computes_it(world: World, scope: str) -> None:
    world.spec = make_spec(**eras(scope=scope))
    outside = world.outside()

    world.run()

    for number, day in enumerate(DAYS):
        factor = 100 if number < 4 else 1
        orders = range(number * 100, number * 100 + 6)
        assert world.amounts(day) == {order: (order + 10) * factor for order in orders}
    assert world.outside() == outside


def test_a_range_never_joins_two_eras_and_each_is_proved_by_itself(world: World) -> None:
    world.spec = make_spec(**eras(scope="range"))
    scoped = world.scope()

    world.stage(scoped)

    runs = [[one.key for one in recompute.partitions] for recompute in together(scoped.plan, scoped.plan.partitions)]
    assert runs == [list(DAYS[:4]), list(DAYS[4:])]
    events = [event.detail for event in world.ledger.events(world.id) if event.action == PROOF_EVENT]
    assert [(detail["era"], detail["keys"]) for detail in events] == [(0, list(DAYS[:3])), (1, list(DAYS[4:7]))]


def test_a_file_that_looks_across_partitions_is_refused_though_the_other_era_does_not(world: World) -> None:
    across = NEW.replace("note", "CAST(count(*) OVER () AS VARCHAR) AS note", 1)
    world.spec = make_spec(**eras(new=across, scope="range"))
    scoped = world.scope()

    with pytest.raises(TransformRefused, match=f"{DAYS[4]} has .* rows alone and .* together"):
        stage_batch(world.work(), scoped.batches[0].keys)


def test_the_plan_names_the_files_that_the_range_touches_with_their_partitions(world: World) -> None:
    world.spec = make_spec(**eras())

    both, late = world.scope(mode="plan").plan, world.scope(mode="plan", start_date=DAYS[4]).plan

    assert [(era.file, era.partitions, era.label) for era in both.eras] == [
        ("old.sql", 4, f"{DAYS[0]} … {DAYS[3]}"),
        ("new.sql", 6, f"{DAYS[4]} … {DAYS[9]}"),
    ]
    assert "amount * 100" in both.first_sql
    assert [era.file for era in late.eras] == ["new.sql"]
    assert "amount * 100" not in late.first_sql
    text = preview(both)
    assert f"SQL of the first partition, {DAYS[0]} (old.sql for 4 partitions: {DAYS[0]} … {DAYS[3]})" in text
    assert f"SQL of the first partition, {DAYS[4]} (new.sql for 6 partitions: {DAYS[4]} … {DAYS[9]})" in text
    assert f"the SQL file of its era (old.sql until {DAYS[4]}, new.sql)" in text


def test_every_file_that_the_range_touches_must_fit_the_target_and_no_other(world: World) -> None:
    world.spec = make_spec(**eras(old=OLD.replace(", note", "")))

    with pytest.raises(TransformRefused, match=r"\(old\.sql\) do not fit analytics\.orders.*missing: note"):
        world.scope()
    assert world.scope(start_date=DAYS[4]).plan.partitions


def test_every_file_that_the_range_touches_is_looked_over(world: World) -> None:
    world.spec = make_spec(**eras(old=OLD.replace("note", "CAST(random() AS VARCHAR) AS note")))

    both, late = (world.scope(mode="plan", start_date=day).plan.warnings for day in (DAYS[0], DAYS[4]))

    assert any(line.startswith("old.sql, line 1: RAND") and line.endswith("[random]") for line in both)
    assert not any("[random]" in line for line in late)


def test_a_dimension_that_one_file_joins_as_it_is_today_is_warned_of(world: World) -> None:
    world.engine.execute(
        "CREATE TABLE raw.notes (note VARCHAR, valid_from DATE, valid_to DATE)",
        "INSERT INTO raw.notes VALUES ('note 0', DATE '2024-03-01', NULL)",
    )
    joined = NEW.replace("raw.orders", "raw.orders JOIN raw.notes USING (note)")
    world.spec = make_spec(**eras(new=joined))

    warnings = world.scope(mode="plan").plan.warnings

    flagged = [line for line in warnings if "[as_of_today]" in line]
    assert len(flagged) == 1
    assert flagged[0].startswith("new.sql, line 1: reads raw.notes, which keeps its own history")
