"""docs/live-neighbours.md: its example makes a DAG, its words are the code's, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_backfill_provider.operators.settled import SHORTEST_WAIT
from airflow_backfill_provider.steps.live import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "live-neighbours.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
def test_the_examples_make_dags(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(example, "docs/live-neighbours.md", "exec"), names)
    assert isinstance(names["dag"], DAG)


def test_the_seconds_on_the_page_are_those_of_the_code() -> None:
    assert f"waiting up to {PATIENCE.seconds} seconds for a run" in PAGE
    assert f"never below {SHORTEST_WAIT.seconds}." in PAGE


def test_every_link_of_the_page_leads_to_a_file() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
