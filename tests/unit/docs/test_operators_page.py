"""Every example of docs/operators.md makes the DAG it shows, and the page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_backfill_provider.operators import guard
from airflow_backfill_provider.spec.request import Request

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: str(re.findall(r'DAG\("(\w+)"', text)))
def test_every_example_makes_a_dag_that_can_be_stored(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(example, "docs/operators.md", "exec"), names)
    dag = names["dag"]
    assert isinstance(dag, DAG)
    assert dag.task_ids
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_every_word_of_a_request_is_on_the_page() -> None:
    assert all(f"`{field}`" in PAGE for field in Request.model_fields)


def test_the_patience_on_the_page_is_that_of_the_code() -> None:
    assert f"`patience` ({guard.PATIENCE.seconds} seconds unless" in PAGE
    assert "(operators.md)" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_every_link_of_the_page_leads_to_a_file() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
