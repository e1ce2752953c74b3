"""``transform.scope: range``: one statement for a whole batch, once three neighbours prove that it may be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import TransformRefused, WarehouseError
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.steps.recompute import PROOF_EVENT
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.warehouses.base import Recompute, StageWriter

ONE_BATCH = {"compute": {"conn_id": "w", "max_concurrency": 1}}


def proofs(world: World) -> list[list[str]]:
    return [event.detail["keys"] for event in world.ledger.events(world.id) if event.action == PROOF_EVENT]


def writes_of(world: World, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many partitions each SELECT of each write is for."""
    seen: list[list[int]] = []
    with world.warehouse.open_stage(
        world.warehouse.describe("analytics.orders", "order_date", ["order_id"]), "x", "x"
    ) as one:
        kind: type[StageWriter] = type(one)
    write = kind.write

    def watched(self: StageWriter, *recomputes: Recompute) -> object:
        seen.append([len(recompute.partitions) for recompute in recomputes])
        return write(self, *recomputes)

    monkeypatch.setattr(kind, "write", watched)
    return seen


def ranged(sql: str | None = None) -> dict[str, object]:
    return {"sql": sql or make_spec().transform.sql, "scope": "range"}


def test_a_range_run_stages_what_single_runs_stage(world: World) -> None:
    world.spec = make_spec(**ONE_BATCH)
    alone = world.scope()
    world.stage(alone)
    single = {key: (record.rows, record.digest) for key, record in world.ledger.partitions(world.id).items()}
    world.ledger.move(world.id, BackfillState.EXPIRED, by="tester")
    world.run_id, world.spec = "run 2", make_spec(transform=ranged(), **ONE_BATCH)

    world.prepare()

    assert {key: (record.rows, record.digest) for key, record in world.ledger.partitions(world.id).items()} == single
    assert world.publish().published


def test_a_batch_runs_the_file_once_after_one_proof(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec = make_spec(transform=ranged(), **ONE_BATCH)
    scoped = world.scope()
    writes = writes_of(world, monkeypatch)

    world.stage(scoped)

    assert writes == [[1, 1, 1], [3], [10]]
    assert proofs(world) == [list(DAYS[:3])]
    assert [item.kind for item in world.warehouse.storage()] == ["stage"]


def test_a_proof_holds_for_later_batches_and_not_for_another_sql(world: World) -> None:
    world.spec = make_spec(transform=ranged())
    world.stage(world.scope())
    assert proofs(world) == [list(DAYS[:3])]

    world.spec = make_spec(transform=ranged(make_spec().transform.sql.replace("NULL", "0")))
    world.stage(world.scope(restage=True))
    assert proofs(world) == [list(DAYS[:3])] * 2


def test_excluded_days_cut_the_range(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec = make_spec(transform=ranged(), **ONE_BATCH)
    scoped = world.scope(start_date=DAYS[0], end_date=DAYS[-1], exclude=[DAYS[1], DAYS[6]])
    writes = writes_of(world, monkeypatch)

    world.stage(scoped)

    assert writes[-1] == [1, 4, 3]
    assert proofs(world) == [list(DAYS[2:5])]


def test_without_three_neighbours_partitions_run_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec = make_spec(transform=ranged(), **ONE_BATCH)
    scoped = world.scope(partitions=[DAYS[0], DAYS[1], DAYS[4]])
    writes = writes_of(world, monkeypatch)

    world.stage(scoped)

    assert {size for write in writes for size in write} == {1}
    assert proofs(world) == []


def test_a_rule_that_looks_across_partitions_is_refused_and_nothing_is_staged(world: World) -> None:
    across = make_spec().transform.sql.replace("note", "CAST(count(*) OVER () AS VARCHAR) AS note", 1)
    world.spec = make_spec(transform=ranged(across), **ONE_BATCH)
    scoped = world.scope()

    with pytest.raises(TransformRefused, match=f"{DAYS[0]} has .* rows alone and .* together"):
        world.stage(scoped)

    assert {record.state for record in world.ledger.partitions(world.id).values()} == {PartitionState.PENDING}
    assert proofs(world) == []


def test_a_partition_that_fails_in_a_range_does_not_lose_the_others(world: World) -> None:
    world.engine.execute("UPDATE raw.orders SET order_id = 9999999 WHERE order_id = 601")
    broken = make_spec().transform.sql.replace(
        "SELECT order_id,",
        "SELECT CASE WHEN order_id = 9999999 THEN CAST('x' AS BIGINT) ELSE order_id END AS order_id,",
    )
    compute = ONE_BATCH["compute"] | {"fail_fast": False}
    world.spec = make_spec(transform=ranged(broken), compute=compute)
    scoped = world.scope()

    with pytest.raises(WarehouseError, match="1 of 10 partitions"):
        stage_batch(world.work(), scoped.batches[0].keys)

    states = [record.state for record in world.ledger.partitions(world.id).values()]
    assert states.count(PartitionState.STAGED) == 9


def test_a_range_has_no_logical_date() -> None:
    with pytest.raises(ValidationError, match="no logical date in common"):
        make_spec(transform={**ranged(), "logical_date": "start"})


def test_a_file_that_asks_for_ds_is_refused_when_the_plan_is_made(world: World) -> None:
    world.spec = make_spec(transform=ranged("SELECT * FROM raw.orders WHERE order_date = DATE '{{ ds }}'"))
    with pytest.raises(TransformRefused, match="'ds'"):
        world.scope()


def test_the_trial_proves_the_range_on_the_tried_partition_and_its_neighbours_and_the_batches_believe_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = make_spec(transform=ranged(), trial={"partition": DAYS[6]}, **ONE_BATCH)
    scoped = world.scope()
    world.try_one()
    assert proofs(world) == [[DAYS[5], DAYS[6], DAYS[7]]]
    writes = writes_of(world, monkeypatch)

    world.stage(scoped)

    assert writes == [[6, 3]], "what was tried is reused, and nothing is proved again"
    world.validate(scoped)
    assert world.publish().published


@pytest.mark.parametrize(("tried", "three"), [(DAYS[0], DAYS[:3]), (DAYS[9], DAYS[7:])])
def test_a_tried_partition_at_an_end_of_the_range_is_proved_with_the_two_beside_it(
    world: World, tried: str, three: tuple[str, ...]
) -> None:
    world.spec = make_spec(transform=ranged(), trial={"partition": tried}, **ONE_BATCH)
    world.scope()
    world.try_one()
    assert proofs(world) == [list(three)]


def test_a_trial_of_a_rule_that_looks_across_partitions_stops_the_backfill_before_the_others(world: World) -> None:
    across = make_spec().transform.sql.replace("note", "CAST(count(*) OVER () AS VARCHAR) AS note", 1)
    world.spec = make_spec(transform=ranged(across), **ONE_BATCH)
    world.scope()
    with pytest.raises(TransformRefused, match=r"Use scope: partition"):
        world.try_one()
    assert world.ledger.counts(world.id)[PartitionState.PENDING] == len(DAYS) - 1
