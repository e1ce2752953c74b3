"""What can go wrong on Databricks SQL alone: other writers, statements that are cancelled, answers that are lost."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from databricks_local.shop import (
    DAY,
    TABLE,
    client,
    create,
    needs_spark,
    open_warehouse,
    opened,
    publication,
    rows,
    run,
    select,
)

from airflow_backfill_provider.errors import (
    BackfillError,
    ConnectionLost,
    PublishRefused,
    SpecError,
    TargetMoved,
    WarehouseError,
)
from airflow_backfill_provider.warehouses.base import Published, Recompute, Staged, Target, Warehouse

pytestmark = [needs_spark, pytest.mark.spark]

# More than anybody waits for; it is cancelled, or ended by its timeout.
ENDLESS = "SELECT count(*) AS id FROM range(10000000000) AS a WHERE hash(id) % 7 = 8"


@pytest.fixture
def warehouse() -> Iterator[Warehouse]:
    yield from opened()


@pytest.fixture
def target(warehouse: Warehouse) -> Target:
    return warehouse.describe(TABLE, "day", ["id"])


def staged(warehouse: Warehouse, target: Target) -> Staged:
    with warehouse.open_stage(target, "b1", "batch") as writer:
        return Staged(writer.write(Recompute((DAY,), select())))


def amounts() -> dict[int, str]:
    return {key: str(amount) for key, amount in rows(f"SELECT id, amount FROM {TABLE}")}


class Interrupting:
    """A connection in which something happens just before, or just after, the statement that publishes."""

    def __init__(self, settings: Mapping[str, str], before: Any = None, after: Any = None) -> None:
        self._connection = client.connect(settings)
        self._before, self._after = before, after

    def cursor(self) -> Any:
        cursor = self._connection.cursor()
        execute = cursor.execute

        def interrupted(sql: str) -> Any:
            publishes = sql.startswith(
                f"INSERT INTO `spark_catalog`.{'.'.join(f'`{part}`' for part in TABLE.split('.'))}"
            )
            if publishes and self._before is not None:
                self._before()
            answer = execute(sql)
            if publishes and self._after is not None:
                self._after()
            return answer

        cursor.execute = interrupted
        return cursor

    def close(self) -> None:
        self._connection.close()


def interrupted(**happening: Any) -> Warehouse:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    return DatabricksWarehouse(lambda settings: Interrupting(settings, **happening))


def test_a_row_that_is_appended_outside_the_range_before_the_commit_stays(warehouse: Warehouse, target: Target) -> None:
    ready = publication(warehouse, target, staged(warehouse, target))
    other = interrupted(before=lambda: run(f"INSERT INTO {TABLE} VALUES (9, DATE '2024-01-09', 9.00)"))

    other.replace_partitions(target, ready)

    assert amounts() == {1: "1.00", 2: "12.00", 3: "3.00", 9: "9.00"}


def test_a_row_that_is_appended_inside_the_range_before_the_commit_is_noticed(
    warehouse: Warehouse, target: Target
) -> None:
    ready = publication(warehouse, target, staged(warehouse, target))
    other = interrupted(before=lambda: run(f"INSERT INTO {TABLE} VALUES (9, DATE '2024-01-02', 9.00)"))

    with pytest.raises(TargetMoved) as moved:
        other.replace_partitions(target, ready)

    assert moved.value.moved == {"2024-01-02": (1, 2)}
    assert amounts() == {1: "1.00", 2: "2.00", 3: "3.00", 9: "9.00"}
    assert warehouse.receipts(target) == ()


def test_an_answer_that_is_lost_after_the_commit_is_found_in_the_history(warehouse: Warehouse, target: Target) -> None:
    from databricks.sql.exc import OperationalError

    def lose() -> None:
        raise OperationalError("the connection was closed")

    ready = publication(warehouse, target, staged(warehouse, target))

    receipt = interrupted(after=lose).replace_partitions(target, ready)

    assert amounts()[2] == "12.00"
    assert warehouse.receipts(target) == (receipt,)


def test_an_answer_that_is_lost_is_found_in_the_history_behind_many_commits_of_others(
    warehouse: Warehouse, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    from databricks.sql.exc import OperationalError

    from airflow_backfill_provider.warehouses.databricks import receipts

    def lose() -> None:
        run(*(f"INSERT INTO {TABLE} VALUES ({key}, DATE '2024-01-09', 9.00)" for key in (9, 10, 11)))
        raise OperationalError("the connection was closed")

    monkeypatch.setattr(receipts, "_RECENT", 2)
    ready = publication(warehouse, target, staged(warehouse, target))

    receipt = interrupted(after=lose).replace_partitions(target, ready)

    assert receipt.sequence == 2
    assert warehouse.receipts(target) == (receipt,)


def test_a_warehouse_that_ignores_the_parameter_of_receipts_is_told_nothing_to_write(
    warehouse: Warehouse, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse, receipts

    ignoring = DatabricksWarehouse(lambda settings: client.connect({}))
    ready = publication(warehouse, target, staged(warehouse, target))

    with pytest.raises(SpecError, match=r"userMetadata.*http_path of a cluster"):
        ignoring.receipt_cautions(target, needed=timedelta(days=1))
    with pytest.raises(PublishRefused, match="userMetadata") as refused:
        ignoring.replace_partitions(target, ready)
    assert not isinstance(refused.value, TargetMoved)
    assert amounts()[2] == "2.00"

    monkeypatch.setattr(receipts, "require_kept", lambda session, metadata: None)
    with pytest.raises(WarehouseError, match="its rows may be there"):
        ignoring.replace_partitions(target, ready)
    assert amounts()[2] == "12.00"
    ignoring.close()


def test_every_commit_has_the_metadata_of_its_own_publish_alone(warehouse: Warehouse, target: Target) -> None:
    ready = publication(warehouse, target, staged(warehouse, target))
    warehouse.replace_partitions(target, ready)
    run(f"INSERT INTO {TABLE} VALUES (9, DATE '2024-01-09', 9.00)")

    with client.shared() as connection, connection.cursor() as cursor:
        cursor.execute(f"DESCRIBE HISTORY {TABLE}")
        history = {row["version"]: row for row in cursor.fetchall()}
    assert [bool(history[version]["userMetadata"]) for version in (1, 2, 3)] == [False, True, False]
    assert history[2]["operationParameters"] is not None


def test_a_statement_is_ended_from_another_thread(warehouse: Warehouse, target: Target) -> None:
    canceller = threading.Timer(3, warehouse.cancel)
    canceller.start()
    began = time.monotonic()

    with pytest.raises(WarehouseError, match="cancelled"):
        warehouse.count_rows(target, staged(warehouse, target), ENDLESS)

    assert time.monotonic() - began < 120
    assert warehouse.fingerprint(target, Published(), [DAY])[DAY.key].rows == 1


def test_a_statement_longer_than_its_timeout_is_ended(target: Target) -> None:
    impatient = open_warehouse(statement_timeout=timedelta(seconds=2))

    with (
        pytest.raises(WarehouseError, match="timed out"),
        impatient.open_stage(target, "b1", "long") as writer,
    ):
        writer.write(Recompute((DAY,), f"SELECT s.id, DATE '{DAY.key}' AS day, 1.00 AS amount FROM ({ENDLESS}) AS s"))
    impatient.close()


def test_rows_that_break_a_constraint_are_refused_when_they_land(warehouse: Warehouse, target: Target) -> None:
    ready = publication(warehouse, target, staged(warehouse, target))
    run(f"ALTER TABLE {TABLE} ADD CONSTRAINT small CHECK (amount < 10)")

    with pytest.raises(PublishRefused, match="small"):
        warehouse.replace_partitions(target, ready)

    assert amounts() == {1: "1.00", 2: "2.00", 3: "3.00"}


def test_a_source_that_was_changed_in_place_and_one_that_is_soon_gone_are_told(warehouse: Warehouse) -> None:
    run(
        f"UPDATE {TABLE} SET amount = 0 WHERE id = 1",
        f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 2 hours')",
    )

    changed, soon = warehouse.source_cautions({TABLE: 3}, since=None, needed=timedelta(days=1))

    assert "1 UPDATE, the last at version 2" in changed
    assert "for 2 hours" in soon
    assert warehouse.source_cautions({TABLE: 1}, since=None, needed=timedelta(hours=1)) == ()


def test_an_append_only_table_is_refused(warehouse: Warehouse) -> None:
    run(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")

    with pytest.raises(SpecError, match="appendOnly"):
        warehouse.describe(TABLE, "day", ["id"])


def test_a_table_of_other_files_is_refused(warehouse: Warehouse) -> None:
    run("CREATE TABLE analytics.other (id BIGINT, day DATE) USING parquet")

    with pytest.raises(SpecError, match="parquet files"):
        warehouse.describe("analytics.other", "day", ["id"])


def test_a_column_that_delta_numbers_itself_is_refused_and_other_generated_columns_are_published(
    warehouse: Warehouse,
) -> None:
    columns = "at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE))"
    run(
        f"CREATE TABLE analytics.numbered (id BIGINT GENERATED ALWAYS AS IDENTITY, {columns})",
        f"CREATE TABLE analytics.by_hand (id BIGINT GENERATED BY DEFAULT AS IDENTITY, {columns})",
    )

    with pytest.raises(SpecError, match=r"numbers id itself.*GENERATED BY DEFAULT AS IDENTITY"):
        warehouse.describe("analytics.numbered", "day", ["id"])
    target = warehouse.describe("analytics.by_hand", "day", ["id"])
    with warehouse.open_stage(target, "b1", "batch") as writer:
        landed = Staged(
            writer.write(
                Recompute((DAY,), f"SELECT 7 AS id, TIMESTAMP '{DAY.key} 03:00:00' AS at, DATE '{DAY.key}' AS day")
            )
        )
    warehouse.replace_partitions(target, publication(warehouse, target, landed))
    assert rows("SELECT id, CAST(day AS STRING) FROM analytics.by_hand") == [(7, DAY.key)]


def test_a_killed_writer_s_stage_is_listed_with_its_backfill_and_dropped(warehouse: Warehouse, target: Target) -> None:
    location = staged(warehouse, target).partitions[0].location

    (item,) = warehouse.storage()
    assert (item.backfill_id, item.kind, item.location) == ("b1", "stage", location)
    assert item.bytes > 0
    warehouse.drop(location)
    warehouse.drop(location)
    assert warehouse.storage() == ()


def test_a_stage_that_goes_while_all_are_listed_is_left_out(
    warehouse: Warehouse, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_backfill_provider.warehouses.databricks.session import Session

    gone, kept = (staged(warehouse, target).partitions[0].location for _ in range(2))
    look = Session.records

    def after_a_drop(session: Any, statement: str) -> Any:
        if gone in statement:
            warehouse.drop(gone)
        return look(session, statement)

    monkeypatch.setattr(Session, "records", after_a_drop)
    assert [item.location for item in warehouse.storage()] == [kept]


@pytest.mark.parametrize(
    "location", ["analytics.shop", "shop", "stage__b1__x`; DROP TABLE analytics.shop; --__0123456789ab"]
)
def test_nothing_but_a_stage_or_a_backup_can_be_dropped(warehouse: Warehouse, location: str) -> None:
    with pytest.raises(WarehouseError, match="is not the location"):
        warehouse.drop(location)

    assert len(amounts()) == 3


def test_an_error_of_spark_quotes_no_value_of_a_row(warehouse: Warehouse) -> None:
    from airflow_backfill_provider.warehouses.databricks.errors import translated

    run(f"ALTER TABLE {TABLE} ADD CONSTRAINT positive CHECK (id > 0)")
    for statement, named in {
        "SELECT CAST(note AS INT) FROM VALUES ('4111-secret') AS t (note)": "CAST_INVALID_INPUT",
        f"INSERT INTO {TABLE} (id, day) VALUES (-98765, DATE '2024-03-01')": "positive",
        "SELECT to_timestamp(note, 'yyyy') FROM VALUES ('4111-secret') AS t (note)": "CANNOT_PARSE_TIMESTAMP",
    }.items():
        with pytest.raises(BackfillError, match=named) as refused, translated("Staging"):
            run(statement)
        shown = "".join(traceback.format_exception(refused.value))
        assert "4111-secret" not in shown
        assert "-98765" not in shown


def test_a_session_that_the_warehouse_ended_is_not_used_again() -> None:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    create()
    opened: list[Any] = []
    warehouse = DatabricksWarehouse(lambda settings: opened.append(client.connect(settings)) or opened[-1])
    warehouse.storage()
    (idle,) = opened
    idle.session.backend.close_session(idle.session._session_id)

    with pytest.raises(ConnectionLost, match="Invalid SessionHandle"):
        warehouse.storage()
    assert warehouse.storage() == ()
    assert len(opened) == 2
    warehouse.close()


class Repeating:
    """A connection that sends each statement that writes twice, as the connector does when one breaks under the first."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._connection = client.connect(settings)

    def cursor(self) -> Any:
        cursor = self._connection.cursor()
        execute = cursor.execute

        def twice(sql: str) -> Any:
            if sql.startswith(("INSERT", "CREATE TABLE")):
                execute(sql)
            return execute(sql)

        cursor.execute = twice
        return cursor

    def close(self) -> None:
        self._connection.close()


def test_a_statement_that_the_connector_sends_twice_writes_its_rows_once(warehouse: Warehouse, target: Target) -> None:
    from airflow_backfill_provider.warehouses.databricks import DatabricksWarehouse

    other = DatabricksWarehouse(Repeating)

    (entry,) = staged(other, target).partitions
    with other.open_shadow(target, "b1", [DAY]) as shadow:
        rehearsed = shadow.warehouse.fingerprint(shadow.target, Published(), [DAY])
    other.close()

    assert rows(f"SELECT id FROM backfill_staging.{entry.location}") == [(2,)]
    assert entry.fingerprint.rows == 1
    assert rehearsed == warehouse.fingerprint(target, Published(), [DAY])
