"""Every example of docs/checks.md is loaded as part of a spec; every kind has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_backfill_provider.checks.outcome import Verdict
from airflow_backfill_provider.operators.check_results import AT_MOST, TEXT_AT_MOST
from airflow_backfill_provider.spec.checks import CHECK_KINDS
from airflow_backfill_provider.spec.comparisons import COMPARISON_KINDS
from airflow_backfill_provider.spec.load import load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "checks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
AROUND = """\
name: documented
target: {table: analytics.fct_orders, partition_by: order_date, key: [order_id]}
transform: {sql: a.sql}
compute: {conn_id: warehouse}
"""


def load(example: str) -> BackfillSpec:
    return load_spec_text(AROUND + example, "docs/checks.md", lambda path: "SELECT 1")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[1].strip()[:40])
def test_every_example_loads_and_asks_for_something(example: str) -> None:
    spec = load(example)
    assert spec.checks or spec.comparisons


def test_every_check_and_comparison_has_an_example() -> None:
    specs = [load(example) for example in EXAMPLES]
    assert {check.kind for spec in specs for check in spec.checks} == set(CHECK_KINDS)
    assert {entry.kind for spec in specs for entry in spec.comparisons} == set(COMPARISON_KINDS)


def test_the_bounds_and_outcomes_on_the_page_are_those_of_the_code() -> None:
    assert f"at most\n{AT_MOST} failures" in PAGE
    assert f"cut at {TEXT_AT_MOST} characters" in PAGE
    assert all(f"| `{verdict}` |" in PAGE for verdict in Verdict)
    assert "(checks.md)" in (DOCS / "index.md").read_text(encoding="utf-8")
