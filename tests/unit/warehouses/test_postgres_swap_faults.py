"""An exchange of partitions that is ended at any statement by anything but a kill: it has happened or it has not."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
from contract_faults import Broken, Fault, InterruptedPostgres
from partitioned_shop import partitioned
from postgres_shop import RANGE, Shop, clean_server, pytestmark, raised

from airflow_backfill_provider.errors import BackfillError, PublishRefused
from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt, Staged
from airflow_backfill_provider.warehouses.postgres.session import Session

__all__ = ["clean_server", "pytestmark"]

EVERYTHING = "BACKFILL_EVERY_FAULT" in os.environ
STRIKES = 10
"""Statements that are met, by one fault each, unless all are by all."""
LOST = next(fault for fault in InterruptedPostgres.faults if not fault.answered)


def publish(shop: Shop, staged: Staged, backfill_id: str) -> Receipt:
    """Fill what takes the place of the partitions, and exchange it."""
    after = {entry.partition.key: entry.fingerprint for entry in staged.partitions}
    before = shop.fingerprint(*RANGE)
    filled = shop.warehouse.fill_children(shop.target, backfill_id, staged)
    return shop.warehouse.swap_children(
        shop.target, Publication(backfill_id, Action.PUBLISH, "p1", RANGE, filled, before, after)
    )


@dataclass
class Struck:
    """One publish, met by a fault at most once."""

    statements: list[str]
    error: Exception | None = None


def struck(shop: Shop, staged: Staged, backfill_id: str, number: int = -1, fault: Fault | None = None) -> Struck:
    """Publish, and let the fault strike at the statement of that number."""
    found = Struck([])
    original = Session.run

    def run(session: Session, sql: str) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return original(session, sql)
        found.statements.append(sql)
        strikes = fault is not None and len(found.statements) == number + 1
        if strikes and fault.answered:
            fault.strike(shop.warehouse, session.connection)
        rows = original(session, sql)
        if strikes and not fault.answered:
            fault.strike(shop.warehouse, session.connection)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "run", run)
        try:
            publish(shop, staged, backfill_id)
        except (BackfillError, Broken) as error:
            found.error = error
    return found


def strikes(statements: list[str]) -> list[tuple[int, Fault]]:
    """Where which fault strikes: a lost answer at each commit, and others in turn over all of it."""
    faults = InterruptedPostgres.faults
    if EVERYTHING:
        return [(number, fault) for number in range(len(statements)) for fault in faults]
    commits = [number for number, sql in enumerate(statements) if sql == "COMMIT"]
    # From the end, where the exchange itself is.
    others = range(len(statements) - 1, -1, -max(1, len(statements) // (STRIKES - len(commits))))
    striking = [fault for fault in faults if fault.answered]
    return [(number, LOST) for number in commits] + [
        (number, striking[turn % len(striking)]) for turn, number in enumerate(others)
    ]


def test_ended_at_any_statement_by_any_fault_an_exchange_has_happened_or_has_not_and_works_when_repeated() -> None:
    shop = partitioned()
    outside = shop.outside()
    happened = set()
    # The first one makes what later ones find.
    _, statements = (struck(shop, shop.stage(*RANGE, backfill_id=one), one).statements for one in ("first", "second"))
    for number, fault in strikes(statements):
        backfill_id, note = f"b{len(happened)}x{number}{fault.name[:2]}", f"{fault.name} at {statements[number][:80]}"
        old, receipts = shop.amounts(), len(shop.warehouse.receipts(shop.target))
        staged = shop.stage(*RANGE, backfill_id=backfill_id)

        met = struck(shop, staged, backfill_id, number, fault)

        until = time.monotonic() + 30
        while shop.database.running() and time.monotonic() < until:
            time.sleep(0.01)
        assert met.statements[number].split()[:2] == statements[number].split()[:2], note
        assert met.error is None or type(met.error) in fault.raises, f"{note}: {met.error!r}"
        landed = len(shop.warehouse.receipts(shop.target)) > receipts
        happened.add(landed)
        assert shop.amounts() == (raised(old) if landed else old), note
        assert shop.outside() == outside, note
        if landed:
            with pytest.raises(PublishRefused):
                publish(shop, staged, backfill_id)
        else:
            publish(shop, staged, backfill_id)
        assert shop.amounts() == raised(old), note
        assert shop.outside() == outside, note
        assert len(shop.warehouse.receipts(shop.target)) == receipts + 1, note
    assert happened == {True, False}
