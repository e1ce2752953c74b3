"""No statement that Databricks is told overwrites more than a range, and sqlglot can read each of them.

The contract suite and the tests of the adapter on a local Spark hold every statement to ``require_bounded``; here it is
seen to refuse, and the statements of a publish are held to it without a Spark.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from databricks_local.bounds import require_bounded, require_settings
from sqlglot.errors import SqlglotError

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from airflow_backfill_provider.warehouses import databricks
from airflow_backfill_provider.warehouses.base import Action, Column, Fingerprint, Publication, Published, Target
from airflow_backfill_provider.warehouses.clocks import UTC_DATE
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT
from airflow_backfill_provider.warehouses.databricks.writes import merging, replacing
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.windows import Grain, partition_at

DAYS = tuple(partition_at(date(2024, 1, number), Grain.DAY) for number in (2, 3, 5))
TARGET = Target(
    "analytics.orders",
    "day",
    UTC_DATE,
    ("id",),
    (Column("id", "BIGINT"), Column("day", "DATE"), Column("amount", "DECIMAL(12,2)")),
)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT OVERWRITE analytics.orders SELECT 1",
        "INSERT INTO analytics.orders REPLACE WHERE TRUE SELECT 1",
        "DELETE FROM analytics.orders",
        "DELETE FROM analytics.orders WHERE day = DATE '2024-01-01'",
        "UPDATE analytics.orders SET amount = 0",
        "TRUNCATE TABLE analytics.orders",
        "CREATE OR REPLACE TABLE analytics.orders AS SELECT 1 AS id",
        "MERGE INTO a.b AS r USING a.c AS s ON TRUE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "MERGE INTO a.b AS r USING a.c AS s ON r.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        "RESTORE TABLE analytics.orders TO VERSION AS OF 1",
        "OPTIMIZE analytics.orders",
        "SELECT FROM WHERE",
    ],
)
def test_a_statement_that_may_write_more_than_a_range_is_refused(sql: str) -> None:
    with pytest.raises((AssertionError, SqlglotError)):
        require_bounded(sql)


def test_a_session_that_overwrites_in_another_way_is_refused() -> None:
    with pytest.raises(AssertionError):
        require_settings({"spark.sql.sources.partitionOverwriteMode": "dynamic"})
    require_settings({"STATEMENT_TIMEOUT": "60"})


@pytest.mark.parametrize("write", [replacing, merging])
@pytest.mark.parametrize("partitions", [DAYS[:1], DAYS], ids=["one day", "days apart"])
def test_a_publish_is_one_statement_with_its_range_in_it(write: Any, partitions: Any) -> None:
    marks = {partition.key: Fingerprint(1, "1", "databricks-xxhash64") for partition in partitions}
    publication = Publication("b1", Action.PUBLISH, "p1", partitions, Published(), marks, marks)
    landing = [Piece.of(DIALECT, TARGET, "`backfill_staging`.`stage`", partitions)]
    sql = write("`analytics`.`orders`", TARGET, publication, landing)
    require_bounded(sql)
    assert sql.count("DATE '2024-01-02'") >= 2, "in what is replaced, and in what lands"


def test_no_line_of_the_adapter_names_the_mode_that_overwrites_whatever_partitions_come() -> None:
    files = sorted(Path(databricks.__file__).parent.glob("*.py"))
    assert len(files) > 10
    assert not [file.name for file in files if "partitionoverwrite" in file.read_text().casefold()]
