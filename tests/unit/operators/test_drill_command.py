"""The command `drill`, on one DuckDB file."""

from __future__ import annotations

from argparse import Namespace

import pytest
from operators_world import Shop

from airflow_backfill_provider.cli.specs import drill
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState


def asked(shop: Shop) -> Namespace:
    return Namespace(name=str(shop.spec_file), from_date="2024-03-01", to_date="2024-03-02", partition=[], reason="")


@pytest.mark.parametrize("switch", ['{"orders": true}', "no switch"])
def test_a_stop_of_the_backfill_holds_its_drill_back(shop: Shop, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", switch)
    with pytest.raises(SystemExit, match="Stopped: the kill switch"):
        drill(asked(shop))
    with shop.ledger() as ledger:
        assert ledger.backfills() == []


def test_a_throttle_ends_the_drill_with_one_line_and_nothing_is_staged(throttled: Shop) -> None:
    with pytest.raises(SystemExit, match=r"^Throttled: .*: lag is 42, above 30\. .* A command does not wait") as ended:
        drill(asked(throttled))
    assert "\n" not in str(ended.value)
    with throttled.ledger() as ledger:
        (held_back,) = ledger.backfills()
        records = ledger.partitions(held_back.backfill_id).values()
    assert held_back.state is BackfillState.EXPIRED
    assert {(record.state, record.attempt) for record in records} == {(PartitionState.PENDING, 0)}
    assert throttled.corrected() == []
