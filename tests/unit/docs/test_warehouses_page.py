"""``docs/warehouses.md`` has every promise and every engine, and says of mechanisms what the engines say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from contract_engines import ENGINES, Engine
from guarantees import END, PAGE, PROMISES, START

from airflow_backfill_provider.warehouses import KINDS

ROOT = Path(__file__).parents[3]
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT[TEXT.index(START) : TEXT.index(END)].splitlines()
    if line.startswith("|")
]
BY_TITLE = {row[0]: dict(zip(ROWS[0][1:], row[1:], strict=True)) for row in ROWS}


def test_every_contract_module_holds_a_promise_that_the_page_has() -> None:
    modules = {path.stem.removeprefix("test_contract_") for path in (ROOT / "tests" / "contract").glob("test_*.py")}
    assert set(PROMISES) == modules
    assert set(PROMISES.values()) <= set(BY_TITLE)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_the_page_says_of_each_engine_what_it_says_of_itself(engine: type[Engine], tmp_path: Path) -> None:
    warehouse = engine().create(tmp_path)
    try:
        capabilities = warehouse.capabilities
    finally:
        warehouse.close()
    assert re.findall(r"`(\w+)`", BY_TITLE["Mechanisms"][engine.name]) == sorted(capabilities.mechanisms)
    assert BY_TITLE["Not proven"][engine.name] == " ".join(capabilities.unproven)
    assert BY_TITLE["Workers"][engine.name] == ("one host" if capabilities.one_host else "any host")
    for promise in PROMISES.values():
        assert re.match(r"\d+ tests|not offered", BY_TITLE[promise][engine.name])
    assert "tests" in BY_TITLE[PROMISES["publish"]][engine.name]


def test_every_engine_that_can_be_chosen_has_a_page_of_its_own() -> None:
    for kind in KINDS:
        assert f"`{kind}`" in TEXT
        assert (ROOT / "docs" / f"{kind}.md").is_file()
