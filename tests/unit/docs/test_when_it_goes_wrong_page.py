"""docs/when-it-goes-wrong.md has a word for every error and every state, and its commands are commands."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_backfill_provider import errors
from airflow_backfill_provider.cli import get_cli_commands
from airflow_backfill_provider.errors import BackfillError
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "when-it-goes-wrong.md").read_text(encoding="utf-8")
STUCK = PAGE.partition("## My backfill is stuck")[2].partition("## And also")[0]
BASE = {"BackfillError"}


def test_every_state_of_a_backfill_has_its_section_in_the_order_of_its_life() -> None:
    assert re.findall(r"^### `(\w+)`$", STUCK, flags=re.MULTILINE) == [state.value for state in BackfillState]
    for section in STUCK.split("### `")[1:]:
        assert len(section.split("\n", 2)[2].strip()) > 20, section


def test_every_state_of_a_partition_has_its_line() -> None:
    assert re.findall(r"^\| `(\w+)` \|", STUCK, flags=re.MULTILINE) == [state.value for state in PartitionState]


def test_every_error_has_its_line() -> None:
    lines = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[A-Z][^|]*)\|", PAGE, flags=re.MULTILINE))))
    found = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, BackfillError)}
    assert found - BASE == lines


def test_the_commands_on_the_page_are_commands_and_its_links_lead_to_pages() -> None:
    (group,) = get_cli_commands()
    commands = {command.name for command in group.subcommands}
    assert set(re.findall(r"airflow safe-backfill\s+(\w+)", PAGE)) <= commands
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
