from __future__ import annotations

import pytest
from ledger_world import B, P, bring_backfill_to, open_backfill, put_backfill_in, put_partition_in, stage, window

from airflow_backfill_provider.errors import LedgerError, TransitionRefused
from airflow_backfill_provider.ledger.moves import apply_move, backfills, partitions_of
from airflow_backfill_provider.ledger.records import FinishedStage
from airflow_backfill_provider.ledger.states import (
    ACTIVE,
    BACKFILL_MOVES,
    MAY_STAGE,
    PARTITION_MOVES,
    RELEASES_LOCK,
    STOPPED,
    TERMINAL,
    WRITTEN,
    BackfillState,
    PartitionState,
)
from airflow_backfill_provider.ledger.store import Ledger

KEY = "2013-02-01"


@pytest.mark.parametrize("old", list(BackfillState))
def test_every_pair_of_backfill_states_is_allowed_as_the_table_says_or_refused(ledger: Ledger, old: BackfillState):
    backfill_id = open_backfill(ledger)
    for new in BackfillState:
        put_backfill_in(ledger, backfill_id, old)
        before = ledger.events(backfill_id)
        if new in BACKFILL_MOVES[old]:
            ledger.move(backfill_id, new, by="test", reason="why")
            event = ledger.events(backfill_id)[-1]
            assert ledger.backfill(backfill_id).state is new
            assert (event.action, event.by) == ("backfill.moved", "test")
            assert event.detail.items() >= {"from": old.value, "to": new.value, "reason": "why"}.items()
        elif new is old:
            ledger.move(backfill_id, new, by="test")
            assert ledger.events(backfill_id) == before
        else:
            with pytest.raises(TransitionRefused) as refused:
                ledger.move(backfill_id, new, by="test")
            assert (refused.value.current, refused.value.wanted) == (old.value, new.value)
            assert backfill_id in refused.value.subject
            assert ledger.backfill(backfill_id).state is old
            assert ledger.events(backfill_id) == before


@pytest.mark.parametrize("old", list(PartitionState))
def test_every_pair_of_partition_states_is_allowed_as_the_table_says_or_refused(ledger: Ledger, old: PartitionState):
    backfill_id = open_backfill(ledger)
    for new in PartitionState:
        put_partition_in(ledger, backfill_id, KEY, old)
        before = ledger.events(backfill_id)

        def go(new: PartitionState = new) -> None:
            if new is P.STAGING:
                ledger.start_staging(backfill_id, [KEY], owner="test")
            elif new is P.STAGED and old is P.STAGING:
                ledger.finish_staging(backfill_id, [FinishedStage(KEY, 1, "l", 1, "d", "m", 1.0)], by="test")
            else:
                ledger.move_partitions(backfill_id, [KEY], new, by="test", reason="why")

        if new in PARTITION_MOVES[old]:
            go()
            assert ledger.partitions(backfill_id)[KEY].state is new
            assert len(ledger.events(backfill_id)) == len(before) + 1
        elif new is old:
            go()
            assert ledger.events(backfill_id) == before
        else:
            with pytest.raises(TransitionRefused) as refused:
                go()
            assert (refused.value.current, refused.value.wanted) == (old.value, new.value)
            assert backfill_id in refused.value.subject
            assert KEY in refused.value.subject
            assert ledger.partitions(backfill_id)[KEY].state is old
            assert ledger.events(backfill_id) == before


def test_every_arrow_has_a_sentence_and_every_state_has_its_arrows():
    for states, moves in ((BackfillState, BACKFILL_MOVES), (PartitionState, PARTITION_MOVES)):
        assert set(moves) == set(states)
        sentences = [sentence for arrows in moves.values() for sentence in arrows.values()]
        assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in sentences)


def test_the_arrows_keep_the_promises_of_the_named_subsets():
    reachable = {state: set(arrows) for state, arrows in BACKFILL_MOVES.items()}
    assert {state for state in TERMINAL if reachable[state]} == set(TERMINAL)
    assert reachable[B.EXPIRED] | reachable[B.ROLLED_BACK] <= WRITTEN, (
        "only a commit that is found leads out of what is over"
    )
    assert set(BackfillState) == {*ACTIVE, *STOPPED, *TERMINAL, B.COMPLETED, B.PUBLISHED_UNVERIFIED}
    for state in STOPPED:
        assert {B.PLANNED, B.RUNNING, B.EXPIRED} <= reachable[state], "stopped work can be resumed or given up"
    for state in WRITTEN:
        assert B.ROLLED_BACK in reachable[state], "what was written can be rolled back"
        way_back_ended = {B.EXPIRED} if state is B.COMPLETED else set()
        assert reachable[state] <= {*WRITTEN, B.ROLLED_BACK, *way_back_ended}, "what was written never looks unwritten"
    for state in MAY_STAGE:
        assert B.EXPIRED in reachable[state]
    assert B.EXPIRED not in reachable[B.PUBLISHING], "nobody knows yet whether the commit happened"
    assert P.STAGING not in PARTITION_MOVES[P.PUBLISHED]


def test_a_bulk_move_with_one_refused_partition_moves_none(ledger: Ledger):
    open_backfill(ledger)
    for key in ("2013-02-01", "2013-02-02"):
        stage(ledger, "bf1", key)
    with pytest.raises(TransitionRefused, match="2013-02-03"):
        ledger.move_partitions("bf1", [KEY, "2013-02-02", "2013-02-03"], P.VALIDATED, by="test")
    assert ledger.counts("bf1") == {P.STAGED: 2, P.PENDING: 1}


def test_a_refused_bulk_move_names_the_first_partition_and_counts_the_others(ledger: Ledger):
    open_backfill(ledger)
    with pytest.raises(TransitionRefused, match=r"'2013-02-01' of backfill 'bf1' \(and 2 more\)"):
        ledger.move_partitions("bf1", list(ledger.partitions("bf1")), P.ROLLED_BACK, by="test")


def test_a_move_decided_on_a_state_that_has_changed_since_is_refused_with_the_state_it_has_now(ledger: Ledger):
    open_backfill(ledger)
    stage(ledger, "bf1", KEY)
    ledger.move_partitions("bf1", [KEY], P.REJECTED, by="other")
    ledger.move("bf1", B.HALTED, by="other")
    for subjects, stale, to, now in (
        (partitions_of("bf1"), {KEY: P.STAGED}, P.VALIDATED, "rejected"),
        (backfills(), {"bf1": B.PLANNED}, B.RUNNING, "halted"),
    ):
        with pytest.raises(TransitionRefused) as refused, ledger._engine.write() as connection:
            apply_move(connection, subjects, stale, to, {})
        assert refused.value.current == now
    assert ledger.backfill("bf1").state is B.HALTED
    assert ledger.partitions("bf1")[KEY].state is P.REJECTED


def test_staging_is_begun_and_finished_only_by_the_calls_that_record_it(ledger: Ledger):
    open_backfill(ledger)
    with pytest.raises(LedgerError, match="start_staging"):
        ledger.move_partitions("bf1", [KEY], P.STAGING, by="test")
    ledger.start_staging("bf1", [KEY], owner="worker")
    with pytest.raises(LedgerError, match="finish_staging"):
        ledger.move_partitions("bf1", [KEY], P.STAGED, by="test")


@pytest.mark.parametrize("state", sorted(set(BackfillState) - MAY_STAGE))
def test_nothing_is_staged_while_publishing_or_later(ledger: Ledger, state: BackfillState):
    open_backfill(ledger)
    put_backfill_in(ledger, "bf1", state)
    with pytest.raises(LedgerError, match=f"'bf1' is '{state}'"):
        ledger.start_staging("bf1", [KEY], owner="late worker")


@pytest.mark.parametrize("state", list(BackfillState))
def test_the_range_is_owned_until_completed_rolled_back_or_expired(ledger: Ledger, state: BackfillState):
    open_backfill(ledger)
    bring_backfill_to(ledger, "bf1", state)
    assert ledger.holds_range("bf1", [window(1, 3)]) is (state not in RELEASES_LOCK)
