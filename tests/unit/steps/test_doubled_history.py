"""A day whose rows were published twice: the correction that a row diff cannot judge."""

from __future__ import annotations

import pytest
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.errors import ValidationFailed
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps.judge import DIFF_EVIDENCE
from airflow_backfill_provider.steps.validate import validate_batch

DOUBLED = DAYS[4]
COUNTS = [{"row_count": {"against": "source", "max_abs_change": 0}}]


def publish_twice(world: World, day: str) -> None:
    world.engine.execute(f"INSERT INTO analytics.orders SELECT * FROM analytics.orders WHERE order_date = DATE '{day}'")


def orders(world: World, day: str) -> list[int]:
    """The published order ids of a day, repeats kept."""
    rows = world.engine.rows(f"SELECT order_id FROM analytics.orders WHERE order_date = DATE '{day}'")
    return sorted(order for (order,) in rows)


def test_a_doubled_day_is_corrected_with_a_warning_when_the_spec_lists_no_row_diff(world: World) -> None:
    publish_twice(world, DOUBLED)
    assert len(orders(world, DOUBLED)) == 2 * PER_DAY
    world.spec = make_spec(compare=COUNTS)
    outside = world.outside()
    scoped = world.scope()
    world.stage(scoped)
    results = [validate_batch(world.work(), batch.keys) for batch in scoped.batches]
    assert sum(result.warnings for result in results) == 1
    evidence = world.ledger.evidence(world.id)
    by_kind = {entry["kind"]: entry for entry in evidence[DOUBLED]}
    assert by_kind["row_diff"]["verdict"] == "warn"
    assert by_kind["row_diff"]["actual"] == f"{PER_DAY} published rows repeat a key, 0 lack one"
    assert by_kind[DIFF_EVIDENCE]["old_duplicate_keys"] == PER_DAY
    assert {entry["verdict"] for key in DAYS if key != DOUBLED for entry in evidence[key] if "verdict" in entry} == {
        "pass"
    }

    world.validate(scoped)
    result = world.publish()
    assert (result.deleted, result.inserted) == ((len(DAYS) + 1) * PER_DAY, len(DAYS) * PER_DAY)
    assert orders(world, DOUBLED) == [400 + place for place in range(PER_DAY)]
    assert world.outside() == outside


def test_rollback_brings_the_doubled_day_back_as_it_was(world: World) -> None:
    publish_twice(world, DOUBLED)
    before = world.published()
    world.spec = make_spec(compare=COUNTS)
    assert world.run().backfill.state is BackfillState.COMPLETED
    assert world.rollback().restored
    assert world.published() == before


def test_a_doubled_day_is_rejected_with_the_reason_when_the_spec_lists_a_row_diff(world: World) -> None:
    publish_twice(world, DOUBLED)
    before = world.published()
    world.spec = make_spec(compare=[*COUNTS, {"row_diff": {"max_added": 0}}])
    with pytest.raises(ValidationFailed, match=f"{DOUBLED}: row_diff: fail: .* {PER_DAY} published rows") as caught:
        world.prepare()
    (outcome,) = caught.value.outcomes
    assert "rows cannot be matched" in outcome.detail
    assert "remove row_diff" in outcome.detail
    record = world.ledger.partitions(world.id)[DOUBLED]
    assert record.state is PartitionState.REJECTED
    assert world.published() == before


def test_rows_that_the_transform_doubles_are_rejected_whatever_was_published(world: World) -> None:
    publish_twice(world, DOUBLED)
    sql = world.spec.transform.sql
    world.spec = make_spec(
        compare=[], transform={"sql": f"SELECT * FROM ({sql}) AS a UNION ALL SELECT * FROM ({sql}) AS b"}
    )
    with pytest.raises(
        ValidationFailed, match=f"{PER_DAY} staged rows repeat a key.*key not unique in the staged rows"
    ):
        world.prepare()
