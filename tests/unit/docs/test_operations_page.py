"""``docs/operations.md``, ``docs/capacity.md`` and ``docs/scaling.md`` name what the code names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_backfill_provider.spec.throttle import Throttle
from airflow_backfill_provider.steps import metrics

DOCS = Path(__file__).parents[3] / "docs"


def test_every_metric_is_on_the_page_and_no_other() -> None:
    told = {value for name, value in vars(metrics).items() if name.isupper() and isinstance(value, str)}
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(safe_backfill\.[\w.]+)`", page, re.MULTILINE)) == told


def test_every_key_of_a_throttle_is_in_the_spec_page() -> None:
    page = (DOCS / "spec.md").read_text(encoding="utf-8")
    section = page.partition("## `throttle`")[2].partition("\n## ")[0]
    assert set(Throttle.model_fields) <= set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


@pytest.mark.parametrize("name", ["operations.md", "capacity.md", "scaling.md"])
def test_every_link_of_the_page_leads_to_a_file(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", page):
        assert (DOCS / target).exists(), target
    assert f"({name})" in (DOCS / "index.md").read_text(encoding="utf-8")
