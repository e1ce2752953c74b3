"""`abandon` and `accept` ask what the table holds, and nothing that is about computing."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import duckdb_outside
import pytest
from hand_run import HandRun
from operators_world import SPEC, Shop, wired

from airflow_backfill_provider import connections
from airflow_backfill_provider.cli.ledger import abandon, accept_published
from airflow_backfill_provider.cli.way_back import rollback
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.warehouses.duckdb import DuckDBWarehouse

RANGE = {"start_date": "2024-03-02", "end_date": "2024-03-03"}
FOUND = backfill_id("by_hand", "one")


@pytest.fixture
def shared(shop: Shop) -> Shop:
    """The shop, whose spec names the live pipeline's connection, which is gone once the backfill has run."""
    shop.spec_file.write_text(SPEC.replace("{conn_id: shop,", "{conn_id: shop, live_conn_id: gone,"), encoding="utf-8")
    return shop


def run(shop: Shop, **conf: Any) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_refuse_shared", lambda *connections: None)
        return HandRun(wired(shop.spec, request=RANGE | conf), run_id="one").run()


def state(shop: Shop) -> BackfillState:
    with shop.ledger() as ledger:
        return ledger.backfill(FOUND).state


def test_a_backfill_is_given_up_though_the_live_connection_of_its_plan_is_gone(shared: Shop) -> None:
    run(shared, mode="stage")
    assert state(shared) is BackfillState.VALIDATED
    abandon(Namespace(backfill_id=FOUND, reason="not needed", publish_is_dead=False, rollback_is_dead=False))
    assert state(shared) is BackfillState.EXPIRED


def test_what_was_published_is_accepted_or_put_back_though_the_live_connection_of_its_plan_is_gone(
    shared: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = DuckDBWarehouse.replace_partitions
    change = "UPDATE analytics.orders SET amount = 7 WHERE order_date = DATE '2024-03-03'"

    def then_change(*given: Any) -> Any:
        receipt = replace(*given)
        duckdb_outside.run(shared.folder / "shop.duckdb", change)
        return receipt

    monkeypatch.setattr(DuckDBWarehouse, "replace_partitions", then_change)
    with pytest.raises(Exception, match="do not hold what was staged"):
        run(shared)
    monkeypatch.setattr(DuckDBWarehouse, "replace_partitions", replace)
    assert state(shared) is BackfillState.PUBLISHED_UNVERIFIED
    accept_published(Namespace(backfill_id=FOUND, reason="seven is right"))
    assert state(shared) is BackfillState.COMPLETED
    given = {"force": True, "restore_overwritten": False, "publish_is_dead": False, "conn_id": None}
    rollback(Namespace(backfill_id=FOUND, **given))
    assert state(shared) is BackfillState.ROLLED_BACK
