"""The SELECT of a second run: rows stored in another order, or its own result published already."""

from __future__ import annotations

import pytest

from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform import over, reordered, unrepeatable
from airflow_backfill_provider.windows import Grain, Partition, parse_key

SORTED = "(SELECT * FROM {} AS safe_backfill_rows ORDER BY safe_backfill_rows DESC)"


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_every_table_is_read_downwards_and_all_else_in_the_text_stays(dialect: str) -> None:
    select = "WITH big AS (SELECT * FROM raw.orders  WHERE a>1)\nSELECT b.id, c.name -- as it was\nFROM big AS b JOIN crm.customers c ON c.id = b.id"
    assert reordered(select, dialect) == select.replace(
        "raw.orders", f"{SORTED.format('raw.orders')} AS orders"
    ).replace("crm.customers c", f"{SORTED.format('crm.customers')} c")


@pytest.mark.parametrize(
    "select", ["SELECT 1 AS a", "SELECT * FROM raw.orders TABLESAMPLE (10 PERCENT)", "SELECT * FROM range(3) AS t(i)"]
)
def test_what_is_no_plain_read_of_a_table_is_left_alone(select: str) -> None:
    assert reordered(select, "duckdb") is None


def test_reads_of_the_target_become_reads_of_what_it_would_be_and_others_stay() -> None:
    select = "SELECT o.id FROM raw.orders o WHERE NOT EXISTS (SELECT 1 FROM analytics.orders WHERE orders.id = o.id)"
    assert over(select, "analytics.orders", "later", "duckdb") == select.replace(
        "FROM analytics.orders", "FROM (SELECT * FROM later) AS orders"
    )
    assert over(select, "analytics.sales", "later", "duckdb") is None


def codes(sql: str) -> list[str]:
    spec = BackfillSpec.model_validate(
        {
            "name": "orders",
            "target": {"table": "analytics.orders", "partition_by": "d", "key": ["id"]},
            "transform": {"sql": sql},
            "compute": {"conn_id": "w"},
        }
    )
    day: Partition = parse_key("2024-03-01", Grain.DAY)
    return [finding.code for finding in unrepeatable(spec, day, "duckdb")]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("now()", ["clock"]),
        ("random()", ["random"]),
        ("row_number() OVER ()", ["unordered_window"]),
        ("row_number() OVER (ORDER BY d)", ["window_ties"]),
        ("row_number() OVER (ORDER BY d) + random()", ["random", "window_ties"]),
        ("any_value(x)", ["unordered_aggregate"]),
        ("sum(x)", []),
    ],
)
def test_what_may_come_out_otherwise_is_listed_with_ties_last(expression: str, found: list[str]) -> None:
    assert (
        codes(
            f"SELECT {expression} AS x FROM raw.orders WHERE d = DATE '{{{{ ds }}}}'".replace("{{ ds }}", "2024-03-01")
        )
        == found
    )
