"""The command `drill`, on one DuckDB file."""

from __future__ import annotations

from argparse import Namespace

import pytest
from operators_world import Shop

from airflow_backfill_provider.cli.specs import drill


@pytest.mark.parametrize("switch", ['{"orders": true}', "no switch"])
def test_a_stop_of_the_backfill_holds_its_drill_back(shop: Shop, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_SAFE_BACKFILL_KILL_SWITCH", switch)
    asked = Namespace(name=str(shop.spec_file), from_date="2024-03-01", to_date="2024-03-02", partition=[], reason="")
    with pytest.raises(SystemExit, match="Stopped: the kill switch"):
        drill(asked)
    with shop.ledger() as ledger:
        assert ledger.backfills() == []
