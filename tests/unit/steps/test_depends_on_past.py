"""A transform that is made from its own previous partition: one after the other, and equal to a single pass over all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.stage import stage_batch
from airflow_backfill_provider.steps.validate import validate_batch

# The balance of a day is that of the day before and what was moved since; published with every balance 1 too high.
BALANCE = """
SELECT m.account, m.day, CAST(COALESCE(before.balance, 0) + m.moved AS BIGINT) AS balance
FROM raw.moves AS m
LEFT JOIN analytics.balances AS before
    ON before.account = m.account AND before.day = DATE '{{ data_interval_start | ds }}' - INTERVAL 1 DAY
WHERE m.day >= DATE '{{ data_interval_start | ds }}' AND m.day < DATE '{{ data_interval_end | ds }}'
"""
# The same from every day before: the highest balance there is of the account, as balances never fall.
FROM_ALL_BEFORE = """
SELECT m.account, m.day, CAST(COALESCE(before.balance, 0) + m.moved AS BIGINT) AS balance
FROM raw.moves AS m
LEFT JOIN (
    SELECT account, max(balance) AS balance FROM analytics.balances
    WHERE day < DATE '{{ data_interval_start | ds }}' GROUP BY account
) AS before ON before.account = m.account
WHERE m.day >= DATE '{{ data_interval_start | ds }}' AND m.day < DATE '{{ data_interval_end | ds }}'
"""
SINGLE_PASS = """
SELECT account, day, CAST(sum(moved) OVER (PARTITION BY account ORDER BY day) AS BIGINT) AS balance FROM raw.moves
ORDER BY day, account
"""


def spec(sql: str = BALANCE, *, depends_on_past: bool | None = True, **changes: Any) -> BackfillSpec:
    document: dict[str, Any] = {
        "target": {"table": "analytics.balances", "partition_by": "day", "key": ["account", "day"]},
        "transform": {"sql": sql, "depends_on_past": depends_on_past},
        "source": None,
        "checks": [],
        "compare": [],
        "compute": {"conn_id": "warehouse", "partitions_per_task": 2},
    }
    return make_spec(**document | changes)


@pytest.fixture
def bank(world: World) -> World:
    world.engine.execute(
        "CREATE TABLE raw.moves AS SELECT a AS account, DATE '2024-02-29' + CAST(d AS INTEGER) AS day, (a + d) % 7 AS moved "
        "FROM range(3) AS accounts (a), range(11) AS days (d)",
        "CREATE TABLE analytics.balances AS SELECT account, day, CAST(sum(moved) OVER (PARTITION BY account ORDER BY day) "
        "+ CASE WHEN day > DATE '2024-02-29' THEN 1 ELSE 0 END AS BIGINT) AS balance FROM raw.moves",
    )
    world.spec = spec()
    return world


def balances(world: World) -> list[tuple[Any, ...]]:
    return world.engine.rows("SELECT account, day, balance FROM analytics.balances ORDER BY day, account")


def attempts(world: World) -> list[int]:
    return [record.attempt for record in world.ledger.partitions(world.id).values()]


@pytest.mark.parametrize("sql", [BALANCE, FROM_ALL_BEFORE], ids=["the day before", "all days before"])
def test_the_chain_gives_what_a_single_pass_over_all_gives(bank: World, sql: str) -> None:
    bank.spec = spec(sql)
    right = bank.engine.rows(SINGLE_PASS)
    assert balances(bank) != right
    scoped = bank.scope()
    assert [batch.keys for batch in scoped.batches] == [DAYS], "one task, in order"
    assert scoped.plan.trial_partition.key == DAYS[0]
    assert bank.try_one().tried
    bank.stage(scoped)
    bank.validate(scoped)
    bank.publish()
    assert balances(bank) == right


def test_a_failed_link_stops_the_chain_and_clearing_goes_on_from_it(bank: World) -> None:
    right = bank.engine.rows(SINGLE_PASS)
    breaks = BALANCE.replace("+ m.moved", "+ m.moved + CAST(CASE WHEN m.moved > 1000 THEN 'x' ELSE '0' END AS BIGINT)")
    bank.spec = spec(breaks, compute={"conn_id": "warehouse", "fail_fast": False})
    bank.engine.execute("UPDATE raw.moves SET moved = moved + 10000 WHERE day = DATE '2024-03-05' AND account = 1")
    scoped = bank.scope()
    with pytest.raises(WarehouseError, match=r"1 of 10 partitions .* 4 others are, 5 were not begun.*2024-03-05"):
        stage_batch(bank.work(), scoped.batches[0].keys)
    bank.engine.execute("UPDATE raw.moves SET moved = moved - 10000 WHERE day = DATE '2024-03-05' AND account = 1")
    assert stage_batch(bank.work(), scoped.batches[0].keys).reused == 4
    assert attempts(bank) == [1] * 4 + [2] * 6
    bank.validate(scoped)
    bank.publish()
    assert balances(bank) == right


def test_a_link_that_is_staged_again_takes_everything_after_it_along(bank: World) -> None:
    scoped = bank.scope()
    bank.stage(scoped)
    bank.validate(scoped)
    bank.engine.execute("UPDATE raw.moves SET moved = moved + 100 WHERE day = DATE '2024-03-04' AND account = 2")
    for state in (PartitionState.STAGED, PartitionState.REJECTED):
        bank.ledger.move_partitions(bank.id, [DAYS[3]], state, by="tester")
    assert validate_batch(bank.work(), scoped.batches[0].keys).validated == 7
    assert attempts(bank) == [1] * 3 + [2] * 7
    bank.validate(scoped)
    bank.publish()
    assert balances(bank) == bank.engine.rows(SINGLE_PASS)


def test_a_rebase_of_the_first_link_takes_every_later_one_along(bank: World) -> None:
    bank.spec = spec(source={"table": "raw.moves", "partition_by": "day"})
    bank.prepare()
    bank.engine.execute("INSERT INTO raw.moves VALUES (7, DATE '2024-03-01', 50)")
    bank.engine.execute("UPDATE raw.moves SET moved = moved + 100 WHERE day = DATE '2024-03-01' AND account < 7")
    scoped = bank.scope(rebase=True)
    bank.try_one()
    bank.stage(scoped)
    bank.validate(scoped)
    bank.publish()
    assert balances(bank) == bank.engine.rows(SINGLE_PASS)


def test_a_trial_that_stages_the_first_link_again_takes_every_later_one_along(bank: World) -> None:
    scoped = bank.scope()
    bank.stage(scoped)
    bank.validate(scoped)
    bank.engine.execute("UPDATE raw.moves SET moved = moved + 100 WHERE day = DATE '2024-03-01'")
    for state in (PartitionState.STAGED, PartitionState.REJECTED):
        bank.ledger.move_partitions(bank.id, [DAYS[0]], state, by="tester")
    assert bank.try_one().tried
    bank.stage(scoped)
    bank.validate(scoped)
    bank.publish()
    assert balances(bank) == bank.engine.rows(SINGLE_PASS)


def test_a_chain_that_cannot_be_told_is_refused_when_the_plan_is_made(bank: World) -> None:
    unread = "(SELECT account, day, moved AS balance FROM raw.moves) AS"
    bank.spec = spec(BALANCE.replace("analytics.balances AS", unread))
    with pytest.raises(SpecError, match=r"does not read analytics.balances.*not the name of a view"):
        bank.scope()
    bank.engine.execute("CREATE VIEW balances AS SELECT * FROM analytics.balances")
    for depends_on_past in (True, None):
        bank.spec = spec(BALANCE.replace("analytics.balances AS", "balances AS"), depends_on_past=depends_on_past)
        with pytest.raises(SpecError, match=r"may be analytics.balances, the one that it rebuilds, under another name"):
            bank.scope()
    assert bank.ledger.find_backfill(bank.id) is None


def test_a_later_link_that_reads_the_table_in_another_way_is_not_computed_from_what_is_published(bank: World) -> None:
    later = "{% if (data_interval_start | ds) == '2024-03-01' %}analytics.balances{% else %}balances{% endif %} AS"
    bank.engine.execute("CREATE VIEW balances AS SELECT * FROM analytics.balances")
    bank.spec = spec(BALANCE.replace("analytics.balances AS", later))
    scoped = bank.scope()
    with pytest.raises(
        WarehouseError, match=r"1 others are, 8 were not begun.*2024-03-02: The SQL of 2024-03-02 reads"
    ):
        stage_batch(bank.work(), scoped.batches[0].keys)


def test_a_chain_ends_before_the_partition_that_is_still_being_written(bank: World) -> None:
    bank.now = datetime(2024, 3, 10, 12, tzinfo=UTC)
    with pytest.raises(SpecError, match=r"2024-03-10 is still being written.*Leave include_live out"):
        bank.scope(include_live=True)
    assert bank.scope().plan.keys == DAYS[:-1]


def test_side_by_side_it_is_refused_when_the_plan_is_made_unless_it_reads_its_own_partition_alone(bank: World) -> None:
    bank.spec = spec(depends_on_past=None)
    with pytest.raises(SpecError, match=r"reads analytics.balances, the table that it rebuilds.*depends_on_past: true"):
        bank.scope()
    assert bank.ledger.find_backfill(bank.id) is None
    bank.spec = spec(depends_on_past=False)
    assert len(bank.scope().batches) > 1


@pytest.mark.parametrize("depends_on_past", [None, True])
def test_a_view_of_the_table_under_any_name_is_seen_through(bank: World, depends_on_past: bool | None) -> None:
    bank.engine.execute(
        "CREATE VIEW raw.known AS WITH latest AS (SELECT * FROM analytics.balances) SELECT * FROM latest WHERE balance > 0"
    )
    bank.spec = spec(BALANCE.replace("analytics.balances AS", "raw.known AS"), depends_on_past=depends_on_past)
    with pytest.raises(
        SpecError, match=r"reads raw.known, which shows rows of analytics.balances.*depends_on_past: true"
    ):
        bank.scope()
    assert bank.ledger.find_backfill(bank.id) is None
    bank.spec = spec(BALANCE.replace("analytics.balances AS", "raw.known AS"), depends_on_past=False)
    bank.scope()


def test_a_view_of_another_table_is_no_second_name(bank: World) -> None:
    bank.engine.execute("CREATE VIEW raw.moved AS SELECT * FROM raw.moves")
    bank.spec = spec(BALANCE.replace("raw.moves AS", "raw.moved AS"))
    assert [batch.keys for batch in bank.scope().batches] == [DAYS]


def test_what_has_no_order_has_no_past() -> None:
    with pytest.raises(ValidationError, match="which scope: range does not"):
        make_spec(transform={"sql": "SELECT 1", "depends_on_past": True, "scope": "range"})
    with pytest.raises(ValidationError, match="leave the rows out in the SQL"):
        spec(schema={"mode": "discard_rows", "max_discarded": 1})
    listed = {"table": "a.b", "partition_by": "c", "key": ["d"], "grain": "list"}
    with pytest.raises(ValidationError, match="whose values have no order"):
        make_spec(target=listed, source=None, compare=[], transform={"sql": "SELECT 1", "depends_on_past": True})
