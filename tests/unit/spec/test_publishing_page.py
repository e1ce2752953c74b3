"""The examples of docs/publishing.md are specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from airflow_backfill_provider.spec.model import PublishSpec

PAGE = Path(__file__).parents[3] / "docs" / "publishing.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_publish_section(example: str) -> None:
    section = yaml.safe_load(example)["publish"]
    spec = PublishSpec.model_validate(section)
    assert {name: getattr(spec, name) for name in section} == section


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) == 7
