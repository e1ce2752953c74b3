"""Sources that have versions: a plan pins them, and every partition is recomputed from what they were then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_engines import Delta
from deltalake import DeltaTable
from ledger_file import new_ledger
from steps_world import DAYS, World, fill, make_spec

from airflow_backfill_provider.errors import PublishRefused, SpecError, VersionGone
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.preview import preview


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    engine = Delta()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()


CHANGED = "UPDATE raw.orders SET amount = -1"
"""Every amount of the source, which leaves the number of its rows as it was."""


def vacuum(world: World, table: str) -> None:
    """Remove every file that the table's latest version does not hold."""
    path = world.warehouse._root.uri(*table.split("."))  # type: ignore[attr-defined]
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_every_partition_is_recomputed_from_the_version_of_the_plan(world: World) -> None:
    scoped = world.scope()
    assert scoped.plan.source_versions == {"raw.orders": 1}
    assert "raw.orders at version 1" in preview(scoped.plan)
    world.engine.execute(CHANGED)

    world.stage(scoped)
    world.validate(scoped)
    world.publish()

    assert world.amounts(DAYS[0]) == {0: None} | {order: order + 10 for order in range(1, 6)}


def test_the_plan_warns_of_a_source_whose_rows_were_changed_in_place_and_of_a_version_that_may_go(world: World) -> None:
    path = world.warehouse._root.uri("raw", "orders")  # type: ignore[attr-defined]
    assert not any("in place" in warning for warning in world.scope(mode="plan").plan.warnings)

    DeltaTable(path).delete("order_id = 1")
    DeltaTable(path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 2 hours"})

    warnings = world.scope(mode="plan").plan.warnings
    (changed,) = [warning for warning in warnings if "updated in place since the range first ran: 1 DELETE" in warning]
    assert "raw.orders" in changed
    assert "order_id" in changed
    assert any("for 2 hours (delta.deletedFileRetentionDuration)" in warning for warning in warnings)


def test_the_versions_are_among_the_facts_that_an_approval_is_for(world: World) -> None:
    plan = world.scope(mode="plan").plan
    world.engine.execute(CHANGED)

    later = world.scope(mode="plan").plan

    assert later.source_versions != plan.source_versions
    assert later.plan_hash != plan.plan_hash
    assert later.intent_hash == plan.intent_hash


def test_a_plan_whose_version_was_vacuumed_says_so_before_anything_is_staged(world: World) -> None:
    scoped = world.scope()
    world.engine.execute(CHANGED)
    vacuum(world, "raw.orders")

    with pytest.raises(VersionGone, match=f"raw.orders.*version 1.*vacuumed.*{world.id}.*restage"):
        world.stage(scoped)

    assert set(world.ledger.counts(world.id)) == {PartitionState.PENDING}
    assert world.warehouse.storage() == ()
    world.run(backfill_id=world.id, restage=True)
    assert world.ledger.backfill(world.id).state is BackfillState.COMPLETED
    assert world.amounts(DAYS[0]) == {0: None} | dict.fromkeys(range(1, 6), -1)


def test_other_checks_leave_the_versions_that_staged_work_rests_on(world: World) -> None:
    scoped = world.scope()
    world.stage(scoped)
    world.engine.execute(CHANGED)
    world.spec = make_spec(checks=[])

    assert world.scope().plan.source_versions == scoped.plan.source_versions


def test_a_rebase_takes_what_moved_from_the_latest_version(world: World) -> None:
    world.prepare()
    world.engine.execute("DELETE FROM raw.orders WHERE order_id = 5", CHANGED)

    world.run(rebase=True)

    assert world.amounts(DAYS[0]) == {0: None} | dict.fromkeys(range(1, 5), -1)
    assert world.amounts(DAYS[1]) == {100: None} | {order: order + 10 for order in range(101, 106)}


def test_the_plan_names_the_copied_backup_as_the_way_back_and_no_vacuum_takes_it(world: World) -> None:
    old = world.published()
    plan = world.run().plan
    assert "from the copied backup, kept until 45d after the publish" in preview(plan)
    vacuum(world, "analytics.orders")

    world.rollback()

    assert world.published() == old


def test_a_backup_that_lost_a_file_is_said_before_anything_is_touched(world: World) -> None:
    world.run()
    new = world.published()
    (backup,) = [item.location for item in world.warehouse.storage() if item.kind == "backup"]
    (file,) = Path(world.warehouse._storage.uri(backup)).glob("*.parquet")  # type: ignore[attr-defined]
    file.unlink()

    with pytest.raises(PublishRefused, match=f"The backup {backup} of {world.id} cannot be read"):
        world.rollback()

    assert world.published() == new


def test_a_merge_is_refused_when_the_plan_is_made(world: World) -> None:
    world.spec = make_spec(publish={"mechanism": "merge"})

    with pytest.raises(SpecError, match=r"merge is not supported by Delta Lake.*supported: replace_partitions"):
        world.scope(mode="plan")


def test_the_plan_warns_of_a_log_that_ends_before_the_way_back_and_a_rollback_then_goes_by_the_ledger(
    world: World,
) -> None:
    before = world.published()
    plan = world.run(start_date=DAYS[0], end_date=DAYS[1]).plan
    assert any("keeps its log for 30 days (delta.logRetentionDuration)" in warning for warning in plan.warnings)
    assert any("Who reads analytics.orders as a stream is not known" in warning for warning in plan.warnings)
    path = world.warehouse._root.uri("analytics", "orders")  # type: ignore[attr-defined]
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    world.run_id = "run 2"
    assert not any("keeps its log" in warning for warning in world.scope(mode="plan").plan.warnings)
    world.run_id = "run 1"

    DeltaTable(path).create_checkpoint()
    for entry in sorted(Path(path.removeprefix("file://")).glob("_delta_log/*.json"))[:-1]:
        entry.unlink()
    assert world.warehouse.receipts(plan.target) == ()

    assert world.rollback().restored
    assert world.published() == before
