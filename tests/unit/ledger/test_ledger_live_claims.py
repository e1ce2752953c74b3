"""Runs of the scheduled pipeline and backfills never hold one range of a target at the same time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ledger_processes import kill_after_every_statement, run_together
from ledger_world import TARGET, B, bring_backfill_to, live_run, new_backfill, open_backfill, window

from airflow_backfill_provider.errors import LedgerError, RangeLocked
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.windows import Span, Value, list_partition


def test_a_backfill_of_a_range_that_a_run_is_writing_is_refused_and_told_the_run(ledger: Ledger):
    ledger.claim_live(live_run(), TARGET, [window(3, 3)])
    with pytest.raises(RangeLocked) as refused:
        open_backfill(ledger, "bf1", 1, 5)
    assert refused.value.owner == "claim1"
    message = str(refused.value)
    assert message.startswith("The run 'scheduled__2013-02-01' of DAG 'flights_daily' (task publish_day) is writing")
    assert "airflow safe-backfill abandon claim1" in message
    assert ledger.find_backfill("bf1") is None
    open_backfill(ledger, "beside", 4, 5)
    assert ledger.release_live("claim1") is True
    open_backfill(ledger, "bf1", 1, 3)


def test_a_run_is_refused_a_range_of_a_backfill_and_told_which_and_what_to_do(ledger: Ledger):
    open_backfill(ledger, "bf1", 1, 5)
    with pytest.raises(RangeLocked) as refused:
        ledger.claim_live(live_run(), TARGET, [window(5, 6)])
    assert refused.value.owner == "bf1"
    assert "Backfill 'bf1' owns" in str(refused.value)
    assert "airflow safe-backfill status bf1" in str(refused.value)
    assert ledger.live_claims() == []
    bring_backfill_to(ledger, "bf1", B.COMPLETED)
    ledger.claim_live(live_run(), TARGET, [window(5, 6)])


def test_a_rollback_waits_for_a_run_as_a_backfill_does(ledger: Ledger):
    open_backfill(ledger, "bf1", 1, 5)
    bring_backfill_to(ledger, "bf1", B.COMPLETED)
    ledger.claim_live(live_run(), TARGET, [window(2, 2)])
    with pytest.raises(RangeLocked, match="'scheduled__2013-02-01'"):
        ledger.claim_range("bf1", [window(1, 5)], by="ana")


def test_one_run_keeps_another_out_and_other_ranges_and_targets_are_free(ledger: Ledger):
    ledger.claim_live(live_run("one"), TARGET, [window(1, 2)])
    with pytest.raises(RangeLocked, match=r"The run .* is writing .* about to write too"):
        ledger.claim_live(live_run("two", run_id="manual__1"), TARGET, [window(2, 3)])
    ledger.claim_live(live_run("two"), TARGET, [window(3, 3)])
    ledger.claim_live(live_run("three"), "analytics.other", [window(1, 2)])
    assert [(claim.run.claim_id, claim.target) for claim in ledger.live_claims()] == [
        ("one", TARGET),
        ("two", TARGET),
        ("three", "analytics.other"),
    ]


def test_the_next_attempt_takes_over_what_a_dead_one_left(ledger: Ledger):
    ledger.claim_live(live_run(attempt=1), TARGET, [window(1, 2)])
    ledger.claim_live(live_run(attempt=2), TARGET, [window(2, 3)])
    assert [(claim.run.attempt, claim.span) for claim in ledger.live_claims()] == [(2, window(2, 3))]
    assert ledger.release_live("claim1", attempt=1) is False, "a zombie gives nothing of its successor back"
    assert ledger.release_live("claim1", attempt=2) is True
    assert ledger.release_live("claim1") is False


@pytest.mark.parametrize("span", [Value("eu"), window(1, 1)])
def test_values_are_held_as_windows_are_and_the_two_collide(ledger: Ledger, span: Span):
    ledger.claim_live(live_run(), TARGET, [span])
    with pytest.raises(RangeLocked):
        ledger.open_backfill(new_backfill("bf1", [list_partition("eu")]), by="ana")
    with pytest.raises(RangeLocked):
        ledger.claim_live(live_run("other"), TARGET, [Value("eu")])


def test_a_run_holds_its_range_for_every_tenant(ledger: Ledger):
    ledger.claim_live(live_run(), TARGET, [window(1, 1)])
    with pytest.raises(RangeLocked):
        open_backfill(ledger, "north", 1, 1, tenant="north")


def test_no_span_is_never_claimed(ledger: Ledger):
    with pytest.raises(LedgerError, match="claims no span"):
        ledger.claim_live(live_run(), TARGET, [])


def test_of_a_run_and_a_backfill_that_claim_a_range_at_once_one_wins(ledger: Ledger, ledger_url: str):
    def backfill(ledger: Ledger) -> list[bool]:
        return [_won(lambda n=n: open_backfill(ledger, f"bf{n}", n * 10 + 1, n * 10 + 5)) for n in range(20)]

    def live(ledger: Ledger) -> list[bool]:
        return [
            _won(lambda n=n: ledger.claim_live(live_run(f"run{n}"), TARGET, [window(n * 10 + 5, n * 10 + 6)]))
            for n in range(20)
        ]

    first, second = run_together(ledger_url, [backfill, live])
    assert all(one is not other for one, other in zip(first, second, strict=True))
    held = {claim.run.claim_id for claim in ledger.live_claims()}
    for n, won in enumerate(first):
        assert (ledger.find_backfill(f"bf{n}") is not None, f"run{n}" in held) == (won, not won)


def _won(claim: Callable[[], object]) -> bool:
    try:
        claim()
    except RangeLocked:
        return False
    return True


def test_a_run_that_is_killed_while_it_claims_holds_all_or_nothing(ledger: Ledger, ledger_url: str):
    spans = [window(1, 1), window(3, 3)]
    killed = 0
    for _ in kill_after_every_statement(ledger_url, lambda opened: opened.claim_live(live_run(), TARGET, spans)):
        killed += 1
        assert ledger.live_claims() == []
    assert killed > 4, "statements and the moment before COMMIT"
    assert [claim.span for claim in ledger.live_claims()] == spans
