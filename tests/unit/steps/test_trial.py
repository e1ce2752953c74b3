"""The trial: one partition computed twice, published twice and rolled back on a copy, before the others are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from steps_world import DAYS, PER_DAY, RIGHT, World, make_spec

from airflow_backfill_provider.errors import LedgerError, Stopped, TargetMoved, TrialFailed
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.tried import TRIAL_EVENT, trial_of
from airflow_backfill_provider.warehouses.base import Recompute, StageWriter

PICKED = DAYS[0]
"""Every day has as many rows as any other, so the first is tried."""


def computes(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions of every SELECT that is staged, as it happens."""
    seen: list[str] = []
    target = world.warehouse.describe("analytics.orders", "order_date", ["order_id"])
    with world.warehouse.open_stage(target, "x", "x") as one:
        kind: type[StageWriter] = type(one)
    write = kind.write

    def watched(self: StageWriter, *recomputes: Recompute) -> object:
        seen.extend(partition.key for recompute in recomputes for partition in recompute.partitions)
        return write(self, *recomputes)

    monkeypatch.setattr(kind, "write", watched)
    return seen


def failing(world: World, sql: str, **spec: Any) -> str:
    """What the trial of this SQL says; nothing was published, and only the tried partition was staged."""
    world.spec = make_spec(transform={"sql": sql, "depends_on_past": False}, **spec)
    world.scope()
    before = world.published()
    with pytest.raises(TrialFailed) as failed:
        world.try_one()
    assert world.published() == before
    counts = world.ledger.counts(world.id)
    assert (counts[PartitionState.REJECTED], counts[PartitionState.PENDING]) == (1, len(DAYS) - 1)
    assert {item.kind for item in world.warehouse.storage()} == {"stage"}
    assert conclude(world.work()).backfill.state is BackfillState.REJECTED
    return str(failed.value)


def test_what_was_tried_is_reused_and_the_trial_costs_one_more_compute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoped = world.scope()
    seen = computes(world, monkeypatch)

    assert world.try_one().tried
    world.stage(scoped)

    assert sorted(seen) == sorted([*DAYS, PICKED])
    world.validate(scoped)
    assert world.publish().published
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED


def test_a_trial_leaves_the_published_table_its_receipts_and_the_storage_alone(world: World) -> None:
    scoped, before = world.scope(), world.published()
    tables = world.engine.tables()

    world.try_one()

    assert world.published() == before
    assert world.engine.tables() == tables
    assert world.warehouse.receipts(scoped.plan.target) == ()
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]
    assert world.ledger.backfill(world.id).backup_location is None


def test_what_the_rehearsal_found_stands_in_the_ledger_and_in_the_report(world: World) -> None:
    plan = world.scope().plan
    world.try_one()

    (event,) = world.ledger.events(world.id, TRIAL_EVENT)
    assert event.detail["plan_hash"] == plan.plan_hash
    trial = trial_of(world.ledger, plan)
    assert trial is not None
    assert (trial.partition, trial.rows) == (PICKED, PER_DAY)
    assert trial.rehearsal.neighbours == ("2024-02-29", DAYS[1])
    assert trial.rehearsal.restored_rows == PER_DAY
    assert trial.rehearsal.restore_seconds_per_million == pytest.approx(
        trial.rehearsal.restore_seconds * 1_000_000 / PER_DAY
    )
    (line,) = [line for line in conclude(world.work()).lines() if line.startswith("  trial")]
    assert "computed twice alike; published twice and rolled back on a copy" in line
    assert "s per million" in line


def test_a_report_of_a_backfill_without_a_trial_says_so(world: World) -> None:
    assert "  trial       none passed" in world.run().lines()


def test_a_trial_that_passed_is_not_repeated_and_one_of_another_plan_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.scope()
    world.try_one()
    seen = computes(world, monkeypatch)

    world.scope()
    again = world.try_one()
    assert not again.tried
    assert "passed before" in again.note
    assert seen == []

    world.spec = make_spec(checks=[])
    world.scope()
    assert world.try_one().tried
    assert seen == [PICKED], "what is staged is still right, so it is computed once more and not twice"

    world.spec = make_spec(checks=[], transform={"sql": RIGHT + " -- another text"})
    world.scope(restage=True)
    world.try_one()
    assert seen == [PICKED] * 3


def test_the_partition_with_the_most_published_rows_is_tried(world: World) -> None:
    world.engine.execute(f"INSERT INTO analytics.orders VALUES (777, DATE '{DAYS[4]}', 1, 'more')")
    assert world.scope().plan.trial_partition.key == DAYS[4]


def test_without_published_rows_the_partition_with_the_most_of_the_source_is_tried(world: World) -> None:
    world.engine.execute(
        "DELETE FROM analytics.orders WHERE order_id < 9000",
        f"INSERT INTO raw.orders VALUES (777, DATE '{DAYS[6]}', 1, 'more', FALSE)",
    )
    world.spec = make_spec(kind="first_load", compare=[])
    scoped = world.scope()
    assert scoped.plan.trial_partition.key == DAYS[6]
    world.try_one()
    trial = trial_of(world.ledger, scoped.plan)
    assert trial is not None
    assert trial.rehearsal.restored_rows == 0
    assert trial.rehearsal.restore_seconds_per_million is None
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().inserted == len(DAYS) * PER_DAY + 1


def test_a_partition_that_is_not_over_is_tried_only_when_there_is_no_other(world: World) -> None:
    world.engine.execute(
        "INSERT INTO raw.orders VALUES (7771, DATE '2024-06-01', 1, 'live', FALSE)",
        *[f"INSERT INTO analytics.orders VALUES ({n}, DATE '2024-06-01', 1, 'live')" for n in range(8000, 8009)],
    )
    world.spec = make_spec(source={"table": "raw.orders", "partition_by": "order_date", "on_moved": "warn"})
    live = {"start_date": "2024-05-31", "end_date": "2024-06-01", "include_live": True}
    assert world.scope(**live).plan.trial_partition.key == "2024-05-31"
    world.run_id = "run 2"
    assert world.scope(**live | {"start_date": "2024-06-01"}, mode="plan").plan.trial_partition.key == "2024-06-01"


def test_the_spec_may_name_the_partition_and_a_range_without_it_says_what_is_tried_instead(world: World) -> None:
    world.spec = make_spec(trial={"partition": DAYS[7]})
    assert world.scope().plan.trial_partition.key == DAYS[7]
    world.try_one()
    assert world.ledger.events(world.id, TRIAL_EVENT)[0].detail["partition"] == DAYS[7]

    world.ledger.move(world.id, BackfillState.EXPIRED, by="tester")
    world.run_id = "run 2"
    plan = world.scope(start_date=DAYS[0], end_date=DAYS[2]).plan
    assert plan.trial_partition.key == DAYS[0]
    assert any(f"trial.partition {DAYS[7]} is not in the range" in warning for warning in plan.warnings)


def test_a_trial_of_no_partition_is_refused_with_the_spec() -> None:
    with pytest.raises(ValidationError, match=r"trial\.partition: '2024-13' is not a day partition key"):
        make_spec(trial={"partition": "2024-13"})


def test_a_trial_that_is_switched_off_tries_nothing_and_the_plan_warns(world: World) -> None:
    world.spec = make_spec(trial={"enabled": False})
    plan = world.scope().plan
    assert any("trial.enabled is false" in warning for warning in plan.warnings)
    assert not world.try_one().tried
    assert world.ledger.counts(world.id)[PartitionState.PENDING] == len(DAYS)


def test_one_partition_alone_is_tried_and_published(world: World) -> None:
    scoped = world.scope(partitions=[DAYS[3]])
    world.try_one()
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published
    assert world.amounts(DAYS[3])[300] is None


def test_nothing_is_tried_once_partitions_are_published(world: World) -> None:
    world.run()
    result = world.try_one()
    assert not result.tried
    assert "published already" in result.note


@pytest.mark.parametrize(
    ("expression", "suspect"),
    [
        ("now()", "line 2: NOW() depends on when it runs [clock]"),
        ("random()", "line 2: RANDOM() gives another value on every run [random]"),
    ],
)
def test_a_column_that_changes_from_run_to_run_is_named_with_its_rows_and_its_function(
    world: World, expression: str, suspect: str
) -> None:
    message = failing(world, RIGHT.replace("note\nFROM", f"CAST({expression} AS VARCHAR) AS note\nFROM"))
    assert f"{PICKED} was computed twice, and the two runs differ: note in 6 of 6 rows." in message
    assert f"Likely because of: {suspect}." in message
    assert "exclude_columns" in message
    assert '"restage": true' in message


def test_a_key_that_changes_from_run_to_run_is_named(world: World) -> None:
    message = failing(world, RIGHT.replace("order_id,", "CAST(random() * 1000000000 AS BIGINT) AS order_id,", 1))
    assert "order_id itself, by which 6 rows are of the first alone and 6 of the other" in message


def test_a_column_that_the_row_diff_leaves_out_may_differ(world: World) -> None:
    world.spec = make_spec(
        transform={"sql": RIGHT.replace("note\nFROM", "CAST(now() AS VARCHAR) AS note\nFROM")},
        compare=[{"row_diff": {"exclude_columns": ["note"]}}],
    )
    world.scope()
    assert world.try_one().tried


def test_rows_that_come_out_twice_are_refused_before_the_others_are_computed(world: World) -> None:
    doubled = RIGHT.replace(
        "FROM raw.orders", "FROM raw.orders CROSS JOIN (SELECT 1 AS one UNION ALL SELECT 2) AS twice"
    )
    message = failing(world, doubled)
    assert f"{PICKED} has each row more than once: 6 of its 12 staged rows repeat the order_id of another" in message


def test_rows_that_are_added_to_those_published_are_refused(world: World) -> None:
    day = "order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'"
    message = failing(
        world, f"{RIGHT} UNION ALL SELECT order_id, order_date, amount, note FROM analytics.orders WHERE {day}"
    )
    assert "for rows that are added to those published already" in message


def test_a_source_that_is_being_written_is_named_as_the_cause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_backfill_provider.steps import repeatable

    world.scope()
    compute = repeatable.one_by_one

    def meanwhile(*arguments: Any) -> Any:
        world.engine.execute(f"INSERT INTO raw.orders VALUES (777, DATE '{PICKED}', 1, 'late', FALSE)")
        return compute(*arguments)

    monkeypatch.setattr(repeatable, "one_by_one", meanwhile)
    with pytest.raises(TrialFailed, match=r"The source raw\.orders is being written: it had 6 rows of it"):
        world.try_one()
    monkeypatch.undo()
    assert world.try_one().tried, "cleared once that is over, the partition is staged anew"


def test_a_published_partition_that_moved_since_the_plan_is_told_as_such(world: World) -> None:
    world.scope()
    world.engine.execute(f"UPDATE analytics.orders SET amount = 0 WHERE order_date = DATE '{PICKED}'")
    with pytest.raises(TargetMoved, match="moved since the plan was made"):
        world.try_one()
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]


def test_a_row_that_moves_over_from_a_neighbour_is_no_conflict_of_the_rehearsal(world: World) -> None:
    world.engine.execute(f"UPDATE raw.orders SET order_date = DATE '{DAYS[1]}' WHERE order_id = 5")
    world.spec = make_spec(trial={"partition": DAYS[1]}, compare=[])
    scoped = world.scope()
    world.try_one()
    trial = trial_of(world.ledger, scoped.plan)
    assert trial is not None
    assert trial.rehearsal.neighbours == ()
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published


def _undo_that_loses_a_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_backfill_provider.steps import rehearsal

    monkeypatch.setattr(rehearsal, "undo", lambda *_: lambda *_: None)


def _publish_that_does_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_backfill_provider.steps import rehearsal

    monkeypatch.setattr(rehearsal, "change", lambda *_: lambda *_: None)


@pytest.mark.parametrize(
    ("breaks", "what"), [(_undo_that_loses_a_row, "The rollback"), (_publish_that_does_nothing, "The publish")]
)
def test_a_publish_or_an_undo_that_does_not_do_what_it_should_fails_the_trial(
    world: World, monkeypatch: pytest.MonkeyPatch, breaks: Callable[..., None], what: str
) -> None:
    world.scope()
    breaks(world, monkeypatch)
    with pytest.raises(TrialFailed, match=f"{what} did not leave what it should"):
        world.try_one()
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]
    assert world.ledger.partitions(world.id, [PICKED])[PICKED].state is PartitionState.REJECTED


def test_a_stop_signal_ends_a_trial_and_a_resume_goes_through(world: World) -> None:
    scoped = world.scope()

    def stop() -> None:
        raise Stopped("the switch says stop")

    world.check_stop = stop
    with pytest.raises(Stopped):
        world.try_one()
    world.check_stop = lambda: None
    assert world.try_one().tried
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published


def test_of_two_trials_at_once_one_is_fenced_off_and_the_other_passes(world: World) -> None:
    scoped = world.scope()
    calls = 0

    def meanwhile() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first is about to stage
            world.try_one()

    world.check_stop = meanwhile
    with pytest.raises(LedgerError, match="was overtaken"):
        world.try_one()
    world.check_stop = lambda: None
    assert len(world.ledger.events(world.id, TRIAL_EVENT)) == 1
    assert world.ledger.partitions(world.id, [PICKED])[PICKED].state is PartitionState.STAGED
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published


def test_a_merge_that_keeps_rows_is_tried_as_it_will_be_published(world: World) -> None:
    world.spec = make_spec(
        publish={"mechanism": "merge", "keep_unmatched": True}, compare=[], source=None, trial={"partition": DAYS[2]}
    )
    world.engine.execute("DELETE FROM raw.orders WHERE order_id = 203")
    scoped = world.scope()
    world.try_one()
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published
    assert world.amounts(DAYS[2])[203] == 213


def test_a_trial_of_judged_rows_that_fails_takes_them_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.prepare()
    _publish_that_does_nothing(world, monkeypatch)
    with pytest.raises(TrialFailed):
        world.try_one()
    assert world.ledger.partitions(world.id, [PICKED])[PICKED].state is PartitionState.REJECTED
