from __future__ import annotations

from pathlib import Path

import duckdb_outside
import pytest
from contract_engines import ENGINES
from deltalake import DeltaTable
from steps_world import DAYS, PER_DAY, World, make_spec

from airflow_backfill_provider.errors import (
    IntentChanged,
    PublishRefused,
    RangeLocked,
    RequestError,
    StageChanged,
    Stopped,
    TargetMoved,
    TransformRefused,
    ValidationFailed,
    WarehouseError,
)
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import PUBLISH_FAILED_EVENT, RECEIPT_EVENT
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.validate import validate_batch

pytestmark = pytest.mark.parametrize(
    "world", [engine for engine in ENGINES if engine.name != "memory"], indirect=True, ids=lambda engine: engine.name
)


def test_a_correction_replaces_the_whole_range_and_nothing_else(world: World) -> None:
    outside = world.outside()
    summary = world.run(reason="refunds")
    assert summary.backfill.state is BackfillState.COMPLETED
    assert summary.rows_old == summary.rows_new == len(DAYS) * PER_DAY
    assert sum(move.changed for move in summary.moved) == len(DAYS)
    assert all(world.amounts(day)[index * 100] is None for index, day in enumerate(DAYS))
    assert world.amounts(DAYS[0])[1] == 11
    assert world.outside() == outside


def test_nothing_is_visible_before_the_publish(world: World) -> None:
    before = world.published()
    world.prepare()
    assert world.published() == before


def test_the_same_request_twice_publishes_nothing_the_second_time(world: World) -> None:
    world.run()
    after = world.published()
    world.run_id = "run 2"
    world.prepare()
    result = world.publish()
    assert not result.published
    assert "nothing to publish" in result.note
    assert conclude(world.work()).backfill.state is BackfillState.COMPLETED
    assert world.published() == after
    with pytest.raises(PublishRefused, match="nothing to undo"):
        world.rollback()


def test_publishing_again_after_success_writes_nothing(world: World) -> None:
    world.run()
    assert not world.publish().published
    assert len(world.warehouse.receipts(world.scope(mode="plan").plan.target)) == 1


def test_rollback_restores_the_range_and_keeps_later_writes_outside_it(world: World) -> None:
    before = world.published()
    world.run()
    world.engine.execute("INSERT INTO analytics.orders VALUES (9100, DATE '2024-03-12', 7, 'live')")
    result = world.rollback()
    assert result.restored
    assert result.deleted == result.inserted == len(DAYS) * PER_DAY
    assert [row for row in world.published() if row[0] != 9100] == before
    assert any(row[0] == 9100 for row in world.published())
    assert world.ledger.backfill(world.id).state is BackfillState.ROLLED_BACK


def test_a_second_rollback_does_nothing(world: World) -> None:
    world.run()
    world.rollback()
    before = world.published()
    assert not world.rollback().restored
    assert world.published() == before


def test_a_rolled_back_backfill_is_never_published_again(world: World) -> None:
    world.run()
    world.rollback()
    before = world.published()
    with pytest.raises(PublishRefused, match="needs a new backfill"):
        world.publish()
    with pytest.raises(PublishRefused, match="needs a new backfill"):
        world.scope()
    assert world.published() == before


def test_rollback_of_a_backfill_that_never_published_is_refused(world: World) -> None:
    world.prepare()
    with pytest.raises(PublishRefused, match="never published"):
        world.rollback()


def test_rollback_refuses_when_the_range_changed_since_and_names_the_day(world: World) -> None:
    world.run()
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-04', 1, 'a fix')")
    published = world.published()
    with pytest.raises(TargetMoved, match="2024-03-04: 6 rows published, 7 now"):
        world.rollback()
    assert world.published() == published


def test_a_forced_rollback_keeps_a_copy_of_what_it_overwrites(world: World) -> None:
    before = world.published()
    world.run()
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-04', 1, 'a fix')")
    assert world.rollback(force=True).restored
    assert world.published() == before
    events = world.ledger.events(world.id)
    (forced,) = [event for event in events if event.action == "forced_backup"]
    kept = {item.location for item in world.warehouse.storage()}
    assert forced.detail["location"] in kept


def test_what_a_forced_rollback_overwrote_can_be_brought_back_once(world: World) -> None:
    world.run()
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-04', 1, 'a fix')")
    fixed = world.published()
    world.rollback(force=True)
    world.engine.execute("INSERT INTO analytics.orders VALUES (9201, DATE '2024-04-01', 1, 'a later day')")
    later = [row for row in world.published() if row[0] == 9201]

    assert world.restore_overwritten().restored
    assert world.published() == sorted([*fixed, *later], key=repr)
    assert not world.restore_overwritten().restored
    assert world.published() == sorted([*fixed, *later], key=repr)
    with pytest.raises(PublishRefused, match="what that overwrote was brought back on"):
        world.rollback()
    receipts = [event.detail for event in world.ledger.events(world.id, RECEIPT_EVENT)]
    assert [receipt["action"] for receipt in receipts] == ["publish", "rollback", "restore"]
    assert {receipt["mechanism"] for receipt in receipts} == {"replace_partitions"}
    other = make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "-1")})
    world.run_id, world.spec = "run 2", other
    summary = world.run(start_date=DAYS[5], end_date=DAYS[6])
    assert summary.backfill.state is BackfillState.COMPLETED, "the range is free for the next backfill"


def test_only_the_dag_of_its_own_spec_brings_back_what_a_backfill_s_rollback_overwrote(world: World) -> None:
    world.run()
    world.rollback(force=True)
    found, world.spec = world.id, make_spec(name="others")
    with pytest.raises(RequestError, match=f"Backfill {found} is of orders: trigger rollback__orders"):
        world.restore_overwritten(found)


def test_a_copy_that_no_rollback_overwrote_anything_after_is_not_brought_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-04', 1, 'a fix')")

    def broken(*_: object) -> None:
        raise WarehouseError("the engine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.warehouse), "replace_partitions", broken)
        with pytest.raises(WarehouseError, match="the engine is gone"):
            world.rollback(force=True)
    world.engine.execute("DELETE FROM analytics.orders WHERE order_id = 9200")
    assert world.rollback().restored
    with pytest.raises(RequestError, match=r"No rollback of backfill .* was forced"):
        world.restore_overwritten()


def test_a_task_that_died_after_its_commit_is_gone_on_with_and_its_receipt_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run()
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-04', 1, 'a fix')")
    fixed = world.published()
    world.rollback(force=True)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("airflow_backfill_provider.steps.restore.record_receipts", dies)
        with pytest.raises(KeyboardInterrupt):
            world.restore_overwritten()
    assert world.published() == fixed
    assert not world.restore_overwritten().restored
    actions = [event.detail["action"] for event in world.ledger.events(world.id, RECEIPT_EVENT)]
    assert actions == ["publish", "rollback", "restore"]
    assert not world.ledger.holds_range(world.id, [world.work().stored_plan().partitions[0].span])


def test_nothing_is_brought_back_over_rows_that_were_written_after_the_rollback(world: World) -> None:
    world.run()
    with pytest.raises(RequestError, match=r"No rollback of backfill .* was forced"):
        world.restore_overwritten()
    world.rollback(force=True)
    world.engine.execute("INSERT INTO analytics.orders VALUES (9200, DATE '2024-03-04', 1, 'a fix')")
    published = world.published()
    with pytest.raises(TargetMoved, match=r"2024-03-04: \d+ rows restored, \d+ now"):
        world.restore_overwritten()
    assert world.published() == published
    world.engine.execute("DELETE FROM analytics.orders WHERE order_id = 9200")
    first, world.run_id = world.id, "run 2"
    world.run(start_date=DAYS[2], end_date=DAYS[3])
    with pytest.raises(PublishRefused, match=f"Backfill {world.id} wrote to this range after the rollback of {first}"):
        world.restore_overwritten(first)


def test_rollback_out_of_order_is_refused(world: World) -> None:
    world.run()
    first = world.id
    world.run_id, world.spec = "run 2", make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "-1")})
    world.run(start_date=DAYS[2], end_date=DAYS[3])
    published = world.published()
    with pytest.raises(PublishRefused, match="roll that one back first"):
        world.rollback(first)
    assert world.published() == published
    assert world.rollback().restored
    assert world.rollback(first).restored


@pytest.mark.parametrize(
    "write",
    [
        "UPDATE analytics.orders SET amount = 0 WHERE order_id = 303",
        "INSERT INTO analytics.orders VALUES (9300, DATE '2024-03-04', 1, 'late')",
        "DELETE FROM analytics.orders WHERE order_id = 303",
    ],
    ids=["changed", "added", "removed"],
)
def test_a_target_that_moved_is_not_overwritten_and_rebase_recomputes_only_what_moved(world: World, write: str) -> None:
    world.spec = make_spec(compare=[])
    scoped = world.prepare()
    world.engine.execute(write)
    before = world.published()
    with pytest.raises(TargetMoved) as caught:
        world.publish()
    assert list(caught.value.moved) == ["2024-03-04"]
    assert world.published() == before
    (failed,) = world.ledger.events(world.id, PUBLISH_FAILED_EVENT)
    assert (failed.detail["mechanism"], failed.detail["error"]) == ("replace_partitions", "TargetMoved")
    assert failed.detail["reason"] == str(caught.value)
    world.run_id = "run 2"
    again = world.scope(backfill_id=scoped.plan.backfill_id, rebase=True)
    assert sum(result.staged for result in world.stage(again)) == 1
    world.validate(again)
    assert world.publish(scoped.plan.backfill_id).published
    attempts = {key: record.attempt for key, record in world.ledger.partitions(scoped.plan.backfill_id).items()}
    assert attempts == {key: 2 if key == "2024-03-04" else 1 for key in DAYS}


def test_a_change_outside_the_range_is_no_obstacle(world: World) -> None:
    world.prepare()
    world.engine.execute("UPDATE analytics.orders SET amount = 5 WHERE order_id = 9002")
    assert world.publish().published


def test_one_rejected_partition_stops_the_publish_and_mending_the_cause_and_clearing_publishes(world: World) -> None:
    world.spec = make_spec(checks=[{"not_null": {"column": "note"}}])
    world.engine.execute("UPDATE raw.orders SET note = NULL WHERE order_id = 402")
    before = world.published()
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(ValidationFailed, match=r"2024-03-05: not_null\(note\)") as caught:
        world.validate(scoped)
    assert {outcome.partition for outcome in caught.value.outcomes} == {"2024-03-05"}
    validate_batch(world.work(), scoped.batches[0].keys)
    validate_batch(world.work(), scoped.batches[2].keys)
    with pytest.raises(PublishRefused):
        world.publish()
    assert world.published() == before
    assert conclude(world.work()).backfill.state is BackfillState.REJECTED

    world.engine.execute("UPDATE raw.orders SET note = 'mended' WHERE order_id = 402")
    again = {"2024-03-05"}
    if scoped.plan.source_versions:  # what was mended is younger than the version that the plan pins
        scoped, again = world.scope(restage=True), set(DAYS)
        world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published
    attempts = {key: record.attempt for key, record in world.ledger.partitions(world.id).items()}
    assert attempts == {key: 2 if key in again else 1 for key in DAYS}


def test_clearing_reuses_everything_that_is_staged(world: World) -> None:
    world.stage(world.scope())
    again = world.scope()
    assert again.resumed
    assert sum(result.staged for result in world.stage(again)) == 0
    assert sum(result.reused for result in world.stage(again)) == len(DAYS)


def test_a_stage_that_is_gone_is_staged_again(world: World) -> None:
    scoped = world.scope()
    world.stage(scoped)
    gone = world.ledger.partitions(world.id)["2024-03-02"].location
    assert gone is not None
    world.warehouse.drop(gone)
    assert [result.staged for result in world.stage(scoped)] == [len(scoped.batches[0].keys), 0, 0]


def test_a_failing_partition_does_not_lose_its_batch_mates_work(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET order_id = 9999999 WHERE order_id = 201")
    broken = world.spec.transform.sql.replace(
        "SELECT order_id,",
        "SELECT order_id * CAST(CASE WHEN order_id = 9999999 THEN 'x' ELSE '1' END AS BIGINT) AS order_id,",
    )
    compute = {"conn_id": "warehouse", "partitions_per_task": 4, "fail_fast": False}
    world.spec = make_spec(transform={"sql": broken}, compute=compute)
    scoped = world.scope()
    with pytest.raises(WarehouseError, match="2024-03-03"):
        stage_batch(world.work(), scoped.batches[0].keys)
    states = {key: record.state for key, record in world.ledger.partitions(world.id, scoped.batches[0].keys).items()}
    assert states.pop("2024-03-03") is PartitionState.STAGING
    assert set(states.values()) == {PartitionState.STAGED}
    world.engine.execute("UPDATE raw.orders SET order_id = 201 WHERE order_id = 9999999")
    again = 1
    if scoped.plan.source_versions:  # the plan pins the source as it was, and takes it as it is only when told to
        assert world.scope(restage=True).batches == scoped.batches
        again = len(scoped.batches[0].keys)
    assert stage_batch(world.work(), scoped.batches[0].keys).staged == again


def test_edited_sql_never_mixes_with_what_is_staged(world: World) -> None:
    scoped = world.scope()
    stage_batch(world.work(), scoped.batches[0].keys)
    world.spec = make_spec(transform={"sql": world.spec.transform.sql.replace("NULL", "0")})
    with pytest.raises(IntentChanged, match="restage"):
        stage_batch(world.work(), scoped.batches[1].keys)
    with pytest.raises(IntentChanged, match=scoped.plan.intent_hash[:12]):
        world.scope()
    again = world.scope(backfill_id=world.id, restage=True)
    assert sum(result.staged for result in world.stage(again)) == len(DAYS)
    world.validate(again)
    world.publish()
    assert world.amounts(DAYS[0])[0] == 0


def test_an_edited_check_keeps_staged_work_and_revises_the_plan(world: World) -> None:
    scoped = world.prepare()
    world.spec = make_spec(compare=[{"row_diff": {"max_changed": 0}}])
    with pytest.raises(IntentChanged, match="clear scope_partitions"):
        world.publish()
    again = world.scope()
    assert world.ledger.plan(world.id).revision == 2
    assert again.plan.baseline == scoped.plan.baseline
    assert sum(result.staged for result in world.stage(again)) == 0
    with pytest.raises(ValidationFailed, match="row_diff"):
        world.validate(again)


def test_a_second_backfill_of_an_overlapping_range_is_refused_with_the_owner(world: World) -> None:
    world.scope()
    owner = world.id
    world.run_id = "run 2"
    with pytest.raises(RangeLocked, match=owner):
        world.scope(start_date=DAYS[-1], end_date="2024-03-20")
    world.scope(start_date="2024-03-11", end_date="2024-03-20")


def test_a_day_that_comes_out_empty_fails_unless_it_may(world: World) -> None:
    world.engine.execute("DELETE FROM raw.orders WHERE order_date = DATE '2024-03-05'")
    with pytest.raises(ValidationFailed, match="allow_empty"):
        world.prepare()
    world.spec = make_spec(allow_empty=True, compare=[])
    again = world.scope()
    world.stage(again)
    world.validate(again)
    world.publish()
    assert world.amounts("2024-03-05") == {}


def test_a_staged_key_that_also_exists_outside_the_range_is_refused(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET order_id = 9002 WHERE order_id = 303")
    world.spec = make_spec(compare=[])
    before = world.published()
    with pytest.raises(ValidationFailed, match="outside the range"):
        world.prepare()
    with pytest.raises(PublishRefused):
        world.publish()
    assert world.published() == before


def test_a_key_staged_in_two_partitions_is_refused(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET order_id = 404 WHERE order_id = 303")
    world.spec = make_spec(compare=[])
    with pytest.raises(ValidationFailed, match=r"every staged order_id once"):
        world.prepare()


def test_columns_that_do_not_fit_are_refused_before_anything_is_staged(world: World) -> None:
    sql = world.spec.transform.sql
    for wrong, words in {
        "SELECT order_id, order_date, note": "missing: amount",
        "SELECT order_id, order_date, amount, note, refunded": "not in the target: refunded",
        "SELECT order_id, order_date, amount, note, note AS order_id": "twice",
        f"SELECT order_id, order_date, CAST(amount AS {world.engine.types['real']}) AS amount, note": "would lose values: amount",
    }.items():
        world.spec = make_spec(transform={"sql": wrong + sql[sql.index("\nFROM") :]})
        with pytest.raises(TransformRefused, match=words):
            world.scope()
    assert world.warehouse.storage() == ()
    assert world.ledger.backfills() == []


def test_columns_land_by_name(world: World) -> None:
    sql = world.spec.transform.sql
    swapped = "SELECT note, CASE WHEN refunded THEN NULL ELSE amount END AS amount, order_date, order_id"
    world.spec = make_spec(transform={"sql": swapped + sql[sql.index("\nFROM") :]})
    world.run()
    assert world.amounts(DAYS[0]) == {0: None, 1: 11, 2: 12, 3: 13, 4: 14, 5: 15}


def test_a_transform_without_a_bound_is_caught_and_nothing_is_published(world: World) -> None:
    sql = world.spec.transform.sql
    world.spec = make_spec(transform={"sql": sql[: sql.index("WHERE")]})
    scoped = world.scope()
    assert any("bound" in warning for warning in scoped.plan.warnings)
    with pytest.raises(WarehouseError, match="2024-03-01"):
        stage_batch(world.work(), scoped.batches[0].keys)


def test_a_stop_between_partitions_keeps_what_is_done_and_goes_on_later(world: World) -> None:
    scoped = world.scope()
    calls = 0

    def stop_after_two() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Stopped("the switch")

    world.check_stop = stop_after_two
    with pytest.raises(Stopped):
        stage_batch(world.work(), scoped.batches[0].keys)
    assert world.ledger.backfill(world.id).state is BackfillState.HALTED
    world.check_stop = lambda: None
    assert stage_batch(world.work(), scoped.batches[0].keys).reused == 1
    world.stage(scoped)
    world.validate(scoped)
    assert world.publish().published


def test_a_stop_before_the_publish_publishes_nothing_and_clearing_it_goes_on(world: World) -> None:
    world.prepare()
    before = world.published()

    def stop() -> None:
        raise Stopped("the switch")

    world.check_stop = stop
    with pytest.raises(Stopped):
        world.publish()
    assert world.published() == before
    assert world.ledger.backfill(world.id).state is BackfillState.HALTED
    world.check_stop = lambda: None
    assert world.publish().published


def test_a_preview_writes_and_locks_nothing(world: World) -> None:
    scoped = world.scope(mode="plan")
    assert scoped.batches == ()
    assert len(scoped.plan.partitions) == len(DAYS)
    assert world.ledger.backfills() == []
    world.run_id = "run 2"
    world.scope()


def test_a_preview_beside_a_real_run_leaves_it_alone(world: World) -> None:
    world.stage(world.scope())
    counts = world.ledger.counts(world.id)
    stored = world.warehouse.storage()
    world.scope(mode="plan", backfill_id=world.id)
    assert world.ledger.counts(world.id) == counts
    assert world.warehouse.storage() == stored


def test_the_partition_that_is_not_over_is_left_out_and_said_so(world: World) -> None:
    world.now = world.now.replace(month=3, day=10)
    plan = world.scope(mode="plan").plan
    assert plan.keys == DAYS[:-1]
    assert [skip.key for skip in plan.skipped] == [DAYS[-1]]
    with pytest.raises(RequestError, match="include_live"):
        world.scope(mode="plan", partitions=[DAYS[-1]])
    assert world.scope(mode="plan", include_live=True).plan.keys == DAYS


def test_the_clock_moving_on_does_not_change_a_frozen_plan(world: World) -> None:
    world.now = world.now.replace(month=3, day=10)
    first = world.scope()
    world.now = world.now.replace(month=3, day=20)
    assert world.scope().plan == first.plan


def test_holes_in_the_range_stay_as_they_are(world: World) -> None:
    kept = world.amounts(DAYS[4])
    world.run(exclude=[DAYS[4]])
    assert world.amounts(DAYS[4]) == kept
    assert world.amounts(DAYS[3])[300] is None
    assert world.amounts(DAYS[5])[500] is None


def test_an_empty_range_does_nothing(world: World) -> None:
    world.now = world.now.replace(year=2023)
    scoped = world.scope()
    assert scoped.batches == ()
    assert scoped.note == "nothing to do"
    assert world.ledger.backfills() == []


def test_a_failed_run_is_called_failed(world: World) -> None:
    world.scope()
    summary = conclude(world.work())
    assert summary.backfill.state is BackfillState.FAILED
    assert len(summary.failures) == len(DAYS)


def test_a_check_that_cannot_run_is_an_error_in_the_engines_own_words(world: World) -> None:
    world.spec = make_spec(checks=[{"sql": {"name": "broken", "query": "SELECT nosuch FROM stage"}}])
    with pytest.raises(ValidationFailed, match="nosuch"):
        world.prepare()


def test_every_failing_check_is_reported(world: World) -> None:
    world.spec = make_spec(
        checks=[
            {"accepted_range": {"column": "order_id", "max_value": 0}},
            {"accepted_values": {"column": "note", "values": ["x"]}},
            {"row_count": {"min_value": 100}},
        ]
    )
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(ValidationFailed) as caught:
        validate_batch(world.work(), scoped.batches[0].keys)
    kinds = {outcome.kind for outcome in caught.value.outcomes if outcome.partition == DAYS[1]}
    assert kinds == {"accepted_range", "accepted_values", "row_count"}
    assert all(outcome.sql for outcome in caught.value.outcomes)


def _tamper(world: World, folder: Path, location: str) -> None:
    """Change the staged rows of the first day, as somebody who finds where they are."""
    change = f"SET note = 'tampered' WHERE order_date = DATE '{DAYS[0]}'"
    match world.engine.name:
        case "duckdb":
            duckdb_outside.run(folder / "staging" / location, f"UPDATE staged_rows {change}")
        case "postgres":
            world.engine.execute(f'UPDATE safe_backfill_staging."{location}" {change}')
        case "delta":
            uri = world.warehouse._storage.uri(location)  # type: ignore[attr-defined]
            DeltaTable(uri).update(predicate=f"order_date = '{DAYS[0]}'", updates={"note": "'tampered'"})


@pytest.mark.parametrize("excluded", [(), ("note",)], ids=["whole rows", "without a column"])
def test_a_stage_that_changed_is_not_judged_and_clearing_stages_it_again(
    world: World, tmp_path: Path, excluded: tuple[str, ...]
) -> None:
    world.spec = make_spec(compare=[{"row_diff": {"exclude_columns": list(excluded)}}])
    scoped = world.scope()
    world.stage(scoped)
    location = world.ledger.partitions(world.id)[DAYS[0]].location
    _tamper(world, tmp_path, str(location))

    with pytest.raises(StageChanged, match=DAYS[0]):
        validate_batch(world.work(), scoped.batches[0].keys)

    assert world.ledger.counts(world.id) == {PartitionState.STAGED: len(DAYS)}
    assert [result.staged for result in world.stage(scoped)] == [1, 0, 0]
    world.validate(scoped)
