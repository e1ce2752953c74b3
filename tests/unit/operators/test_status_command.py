"""What `status` prints of a long audit trail."""

from __future__ import annotations

from argparse import Namespace

import pytest
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.cli.ledger import status
from airflow_backfill_provider.identity import backfill_id


def told(capsys: pytest.CaptureFixture[str], *, trail: bool) -> list[str]:
    """The lines of the audit trail."""
    capsys.readouterr()
    status(Namespace(backfill_id=backfill_id("by_hand", "scheduled__2024-03-04"), trail=trail))
    return capsys.readouterr().out.partition("Audit trail\n")[2].splitlines()


def test_a_long_trail_is_shown_by_its_end_unless_all_of_it_is_asked_for(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    HandRun(wired(shop.spec, request=OF_THE_DAY)).execute("plan_it")
    found = backfill_id("by_hand", "scheduled__2024-03-04")
    assert any("backfill.opened" in line for line in told(capsys, trail=False)), "a short one is whole"
    with shop.ledger() as ledger:
        for number in range(50):
            ledger.record_event(found, f"look.{number}", by="tester")
    earlier, *last = told(capsys, trail=False)
    assert earlier == f"  … earlier lines: airflow safe-backfill status {found} --trail"
    assert [line.split()[1] for line in last] == [f"look.{number}" for number in range(10, 50)]
    whole = told(capsys, trail=True)
    assert whole[-40:] == last
    assert any("backfill.opened" in line for line in whole)
