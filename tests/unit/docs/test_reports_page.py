"""docs/reports.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_backfill_provider.cli import get_cli_commands
from airflow_backfill_provider.get_provider_info import get_provider_info
from airflow_backfill_provider.operators.report_files import OPTION
from airflow_backfill_provider.reporting import charts
from airflow_backfill_provider.reporting.documents import PAGE as HTML
from airflow_backfill_provider.reporting.documents import PLAN
from airflow_backfill_provider.reporting.sections.old_and_new import SHOWN

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")


def test_every_file_of_a_report_is_on_the_page() -> None:
    assert re.findall(r"^    (\S+)  ", PAGE, flags=re.MULTILINE) == [
        HTML,
        "old_vs_new.csv",
        "checks.csv",
        "range_evidence.csv",
        "reconciliation.csv",
        "control_period.csv",
        "audit.csv",
        PLAN,
    ]


def test_the_setting_and_its_default_are_on_the_page() -> None:
    option = get_provider_info()["config"]["safe_backfill"]["options"][OPTION]
    assert f"{OPTION} = {option['example']}" in PAGE
    assert f"`{option['default']}`" in PAGE


def test_the_command_on_the_page_is_one() -> None:
    (group,) = get_cli_commands()
    (command,) = (one for one in group.subcommands if one.name == "report")
    assert [flag for argument in command.args for flag in argument.flags] == ["backfill_id", "--folder"]
    assert "airflow safe-backfill report 0123456789ab --folder" in PAGE


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    assert f"the {SHOWN} partitions that moved most" in PAGE
    assert f"at most {charts.POINTS} points" in PAGE


def test_the_index_and_every_link_lead_to_a_page() -> None:
    assert "(reports.md)" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
