"""Reading a table that keeps its own history: at the row's time, or as it is today."""

from __future__ import annotations

import pytest

from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform import Finding, lint
from airflow_backfill_provider.windows import Grain, parse_key

BOUND = "o.d >= '{{ data_interval_start }}' AND o.d < '{{ data_interval_end }}'"
COLUMNS = {
    "raw.orders": ["id", "d", "customer_id"],
    "dim.customer": ["customer_id", "region", "Valid_From", "valid_to"],
    "dim.snapshot": ["customer_id", "region", "dbt_valid_from", "dbt_valid_to"],
    "dim.price": ["customer_id", "since"],
}


def findings(joined: str, where: str = "TRUE", history: list[dict[str, str]] | None = None) -> list[Finding]:
    spec = BackfillSpec.model_validate(
        {
            "name": "fct",
            "target": {"table": "analytics.fct", "partition_by": "d", "key": ["id"]},
            "transform": {"sql": f"SELECT o.id, c.region FROM raw.orders AS o {joined} WHERE {BOUND} AND {where}"},
            "compute": {"conn_id": "w"},
            "source": {"table": "raw.orders", "partition_by": "d", "history": history or []},
        }
    )
    found = lint(spec, parse_key("2013-02-05", Grain.DAY), "duckdb", lambda table: COLUMNS.get(table, ()))
    return [finding for finding in found if finding.code == "as_of_today"]


@pytest.mark.parametrize(
    ("joined", "where"),
    [
        ("JOIN dim.customer AS c USING (customer_id)", "TRUE"),
        ("JOIN dim.customer AS c USING (customer_id)", "c.valid_to IS NULL"),
        ("JOIN dim.customer AS c ON o.customer_id = c.customer_id AND c.valid_to = DATE '9999-12-31'", "TRUE"),
        ("JOIN dim.customer AS c USING (customer_id)", "c.valid_from IS NOT NULL"),
        ("JOIN dim.snapshot AS c USING (customer_id)", "c.dbt_valid_to IS NULL"),
        ("JOIN (SELECT * FROM dim.customer WHERE valid_to IS NULL) AS c USING (customer_id)", "TRUE"),
        ("JOIN dim.customer AS c USING (customer_id) JOIN dim.customer AS b ON b.valid_from <= o.d", "TRUE"),
    ],
)
def test_a_table_that_is_joined_as_it_is_today_is_flagged(joined: str, where: str) -> None:
    (finding,) = findings(joined, where)
    assert "this rewrites history as of today" in finding.message
    assert finding.line == 1


@pytest.mark.parametrize(
    ("joined", "where"),
    [
        (
            "JOIN dim.customer AS c USING (customer_id)",
            "c.valid_from <= o.d AND (c.valid_to > o.d OR c.valid_to IS NULL)",
        ),
        ("JOIN dim.customer AS c ON o.customer_id = c.customer_id AND o.d BETWEEN c.valid_from AND c.valid_to", "TRUE"),
        ("JOIN dim.customer AS c ON o.customer_id = c.customer_id AND o.d >= VALID_FROM AND o.d < valid_to", "TRUE"),
        ("ASOF JOIN dim.snapshot AS c ON o.customer_id = c.customer_id AND o.d >= c.dbt_valid_from", "TRUE"),
        ("JOIN (SELECT * FROM dim.customer) AS c ON o.customer_id = c.customer_id AND c.valid_from <= o.d", "TRUE"),
        ("JOIN dim.price AS c USING (customer_id)", "TRUE"),
        ("JOIN dim.unknown AS c USING (customer_id)", "TRUE"),
    ],
)
def test_a_version_of_the_row_s_own_time_is_not_flagged(joined: str, where: str) -> None:
    assert findings(joined, where) == []


def test_a_table_that_the_spec_names_needs_no_well_known_columns() -> None:
    declared = [{"table": "dim.price", "valid_from": "since", "valid_to": "until"}]
    assert len(findings("JOIN dim.price AS c USING (customer_id)", history=declared)) == 1
    assert findings("JOIN dim.price AS c USING (customer_id)", "c.since <= o.d", history=declared) == []
