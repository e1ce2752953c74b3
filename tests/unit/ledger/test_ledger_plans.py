from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import process_time

import pytest
from ledger_world import (
    FIRST,
    TARGET,
    B,
    P,
    days,
    new_backfill,
    open_backfill,
    put_backfill_in,
    put_partition_in,
    stage,
    stored_plan,
    window,
)
from sqlalchemy import select

from airflow_backfill_provider.errors import LedgerError, RangeLocked, TransitionRefused
from airflow_backfill_provider.ledger.states import BACKFILL_MOVES, BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.tables import EvidenceRow
from airflow_backfill_provider.windows import merge

KEYS = ("2013-02-01", "2013-02-02", "2013-02-03")


def test_an_opened_backfill_reads_back_as_it_was_opened(ledger_url: str):
    at = datetime(2026, 11, 29, 12, 30, 15, 123456, tzinfo=UTC)
    with Ledger(ledger_url, now=lambda: at) as ledger:
        ledger.upgrade()
        new = new_backfill(partitions=days(1, 3))
        ledger.open_backfill(new, by="ana")
        backfill = ledger.backfill("bf1")
        for name in ("name", "target", "tenant", "dag_id", "run_id", "mode", "reason", "requested_by"):
            assert getattr(backfill, name) == getattr(new, name)
        assert (backfill.state, backfill.revision) == (B.PLANNED, 1)
        assert (backfill.created_at, backfill.updated_at) == (at, at)
        assert (backfill.backup_location, backfill.backup_fingerprints) == (None, {})
        assert ledger.plan("bf1") == new.plan
        partitions = ledger.partitions("bf1")
        assert [(key, record.span) for key, record in partitions.items()] == [
            (partition.key, partition.span) for partition in new.partitions
        ]
        assert {(record.state, record.attempt, record.location) for record in partitions.values()} == {
            (P.PENDING, 0, None)
        }
        assert ledger.find_backfill("bf1") == backfill
        [event] = ledger.events("bf1")
        assert (event.action, event.by, event.at) == ("backfill.opened", "ana", at)
        assert event.detail["plan_hash"] == "plan-v1"


def test_a_backfill_is_opened_once(ledger: Ledger):
    open_backfill(ledger)
    with pytest.raises(LedgerError, match="'bf1' is in the ledger already"):
        ledger.open_backfill(new_backfill("bf1", days(20, 21), target="another"), by="bob")
    assert ledger.lock_owner("another", [window(1, 30)]) is None
    assert len(ledger.events("bf1")) == 1


@pytest.mark.parametrize(
    ("partitions", "windows", "why"),
    [
        ((), (window(1, 3),), "has no partition"),
        ((*days(1, 2), *days(2, 3)), (window(1, 3),), "'2013-02-02' 2 times"),
        (days(1, 3), (window(1, 2),), r"2013-02-03.*, which no span to claim covers"),
        (days(1, 3), (), r"2013-02-01.*, which no span to claim covers"),
    ],
)
def test_a_backfill_whose_partitions_are_none_repeated_or_unclaimed_is_not_opened(
    ledger: Ledger, partitions, windows, why: str
):
    with pytest.raises(LedgerError, match=why):
        ledger.open_backfill(new_backfill("bf1", partitions, spans=windows), by="ana")
    assert ledger.find_backfill("bf1") is None


def test_the_newest_backfills_come_first(ledger_url: str):
    moments = iter(FIRST + timedelta(seconds=number) for number in range(10))
    with Ledger(ledger_url, now=lambda: next(moments)) as ledger:
        ledger.upgrade()
        for number, name in enumerate(("a", "b", "a")):
            open_backfill(ledger, f"bf{number}", number + 1, number + 1, name=name)
        assert [found.backfill_id for found in ledger.backfills()] == ["bf2", "bf1", "bf0"]
        assert [found.backfill_id for found in ledger.backfills(name="a")] == ["bf2", "bf0"]
        assert [found.backfill_id for found in ledger.backfills(limit=1)] == ["bf2"]


UNKNOWN: dict[str, Callable[[Ledger], object]] = {
    "backfill": lambda ledger: ledger.backfill("nope"),
    "plan": lambda ledger: ledger.plan("nope"),
    "partitions": lambda ledger: ledger.partitions("nope"),
    "counts": lambda ledger: ledger.counts("nope"),
    "move": lambda ledger: ledger.move("nope", B.RUNNING, by="x"),
    "move_partitions": lambda ledger: ledger.move_partitions("nope", ["k"], P.PENDING, by="x"),
    "start_staging": lambda ledger: ledger.start_staging("nope", ["k"], owner="x"),
    "evidence": lambda ledger: ledger.evidence("nope"),
    "record_evidence": lambda ledger: ledger.record_evidence("nope", {None: []}, by="x"),
    "set_backup": lambda ledger: ledger.set_backup("nope", "l", {}, by="x"),
    "record_event": lambda ledger: ledger.record_event("nope", "a", by="x"),
    "events": lambda ledger: ledger.events("nope"),
    "claim_range": lambda ledger: ledger.claim_range("nope", [window(1, 2)], by="x"),
    "begin_way_back": lambda ledger: ledger.begin_way_back("nope", [window(1, 2)], by="x"),
    "end_way_back": lambda ledger: ledger.end_way_back("nope", by="x"),
    "revise_plan": lambda ledger: ledger.revise_plan(
        "nope", stored_plan(), restage=[], revalidate=[], by="x", reason="r"
    ),
}


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_backfill_is_named(ledger: Ledger, call: Callable[[Ledger], object]):
    assert ledger.find_backfill("nope") is None
    with pytest.raises(LedgerError, match="no backfill 'nope'"):
        call(ledger)


def test_an_unknown_partition_is_named(ledger: Ledger):
    open_backfill(ledger)
    for call in (
        lambda: ledger.partitions("bf1", ["2013-02-01", "2013-03-01"]),
        lambda: ledger.move_partitions("bf1", ["2013-02-01", "2013-03-01"], P.SKIPPED, by="x"),
        lambda: ledger.start_staging("bf1", ["2013-03-01"], owner="x"),
        lambda: ledger.record_evidence("bf1", {"2013-03-01": [{}]}, by="x"),
    ):
        with pytest.raises(LedgerError, match="no partition '2013-03-01'"):
            call()
    assert ledger.counts("bf1") == {P.PENDING: 3}


def test_only_the_partitions_asked_for_are_read(ledger: Ledger):
    open_backfill(ledger)
    assert list(ledger.partitions("bf1", [KEYS[2], KEYS[0]])) == [KEYS[0], KEYS[2]]
    assert ledger.partitions("bf1", []) == {}


def test_a_revised_plan_sends_back_what_it_changes_and_loses_no_document(ledger: Ledger):
    open_backfill(ledger, last=4)
    keys = list(ledger.partitions("bf1"))
    for key in keys[:3]:
        stage(ledger, "bf1", key)
    ledger.move_partitions("bf1", keys[:2], P.VALIDATED, by="w")
    ledger.move_partitions("bf1", keys[2:3], P.REJECTED, by="w")
    for key in (*keys[:3], None):
        ledger.record_evidence("bf1", {key: [{"check": "row_count"}]}, by="w")
    ledger.move("bf1", B.RUNNING, by="w")
    ledger.move("bf1", B.REJECTED, by="w")

    revision = ledger.revise_plan(
        "bf1", stored_plan("v2"), restage=keys[:1], revalidate=keys[2:], by="ana", reason="rebase"
    )

    assert revision == 2
    assert (ledger.backfill("bf1").state, ledger.backfill("bf1").revision) == (B.PLANNED, 2)
    partitions = ledger.partitions("bf1")
    assert [partitions[key].state for key in keys] == [P.PENDING, P.VALIDATED, P.STAGED, P.PENDING]
    forgotten = partitions[keys[0]]
    assert (forgotten.location, forgotten.rows, forgotten.digest, forgotten.staged_intent) == (None,) * 4
    assert forgotten.attempt == 1, "attempt numbers never start again"
    assert partitions[keys[2]].location == "stage-1"
    assert list(ledger.evidence("bf1")) == [keys[1]]
    assert (ledger.plan("bf1").document["text"], ledger.plan("bf1").revision) == ("v2", 2)
    assert ledger.plan("bf1", 1).document == stored_plan("v1").document
    event = ledger.events("bf1")[-1]
    assert (event.action, event.by, event.detail["reason"]) == ("plan.revised", "ana", "rebase")
    assert (event.detail["plan_hash"], event.detail["replaces"]["plan_hash"]) == ("plan-v2", "plan-v1")


def test_what_was_found_about_the_whole_range_does_not_outlive_the_plan(ledger: Ledger):
    open_backfill(ledger)
    ledger.record_evidence("bf1", {None: [{"check": "row_count"}]}, by="w")
    ledger.record_evidence("bf1", {KEYS[0]: [{"check": "row_count"}]}, by="w")
    ledger.revise_plan("bf1", stored_plan("v2"), restage=[], revalidate=[], by="ana", reason="new facts")
    assert list(ledger.evidence("bf1")) == [KEYS[0]]


def test_a_plan_revision_that_does_not_exist_is_named(ledger: Ledger):
    open_backfill(ledger)
    with pytest.raises(LedgerError, match="no plan revision 7; it has 1 to 1"):
        ledger.plan("bf1", 7)


@pytest.mark.parametrize(
    "state", [state for state in BackfillState if state is not B.PLANNED and B.PLANNED not in BACKFILL_MOVES[state]]
)
def test_a_plan_is_not_revised_while_publishing_or_later(ledger: Ledger, state: BackfillState):
    open_backfill(ledger)
    put_backfill_in(ledger, "bf1", state)
    with pytest.raises(TransitionRefused):
        ledger.revise_plan("bf1", stored_plan("v2"), restage=[], revalidate=[], by="ana", reason="r")
    assert ledger.plan("bf1").plan_hash == "plan-v1"


def test_a_refused_revision_changes_nothing(ledger: Ledger):
    open_backfill(ledger)
    put_partition_in(ledger, "bf1", KEYS[2], P.PUBLISHED)
    with pytest.raises(TransitionRefused, match=KEYS[2]):
        ledger.revise_plan("bf1", stored_plan("v2"), restage=KEYS, revalidate=[], by="ana", reason="r")
    assert ledger.backfill("bf1").revision == 1
    assert ledger.plan("bf1").plan_hash == "plan-v1"


def test_evidence_is_replaced_per_key_and_what_it_replaced_is_kept(ledger: Ledger):
    open_backfill(ledger)
    ledger.record_evidence("bf1", {KEYS[0]: [{"n": 1}, {"n": 2, "none": None}]}, by="w")
    ledger.record_evidence("bf1", {None: [{"whole": True}]}, by="w")
    ledger.record_evidence("bf1", {KEYS[0]: [{"n": 3}]}, by="w")
    assert ledger.evidence("bf1") == {KEYS[0]: [{"n": 3}], None: [{"whole": True}]}
    with ledger._engine.read() as connection:
        kept = connection.execute(select(EvidenceRow.body).where(EvidenceRow.superseded_at.is_not(None))).scalars()
        assert list(kept) == [{"n": 1}, {"n": 2, "none": None}]
    ledger.record_evidence("bf1", {KEYS[0]: []}, by="w")
    assert KEYS[0] not in ledger.evidence("bf1")


@pytest.mark.parametrize("value", [datetime(2013, 1, 1, tzinfo=UTC), float("nan"), {1, 2}])
def test_a_value_that_is_not_json_is_refused_and_nothing_is_recorded(ledger: Ledger, value: object):
    open_backfill(ledger)
    with pytest.raises(LedgerError, match="JSON"):
        ledger.record_evidence("bf1", {None: [{"ok": 1}, {"value": value}]}, by="w")
    assert ledger.evidence("bf1") == {}
    assert len(ledger.events("bf1")) == 1


def test_a_backup_is_remembered_with_its_fingerprints_and_what_it_replaced(ledger: Ledger):
    open_backfill(ledger)
    ledger.set_backup("bf1", "backup-1", {KEYS[0]: {"rows": 1}}, by="w")
    ledger.set_backup("bf1", "backup-2", {KEYS[0]: {"rows": 2}}, by="w")
    backfill = ledger.backfill("bf1")
    assert (backfill.backup_location, backfill.backup_fingerprints) == ("backup-2", {KEYS[0]: {"rows": 2}})
    assert ledger.events("bf1")[-1].detail["replaces"] == "backup-1"


def test_events_come_in_order_and_carry_who_and_what(ledger: Ledger):
    open_backfill(ledger)
    ledger.record_event("bf1", "approval.given", by="bob", detail={"plan_hash": "plan-v1"})
    ledger.record_event("bf1", "note", by="cy")
    events = ledger.events("bf1")
    assert [(event.action, event.by) for event in events] == [
        ("backfill.opened", "ana"),
        ("approval.given", "bob"),
        ("note", "cy"),
    ]
    assert events[1].detail == {"plan_hash": "plan-v1"}
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})


def test_3182_partitions_are_opened_and_moved_in_bulk(ledger: Ledger):
    partitions = days(1, 3182)
    began = process_time()
    ledger.open_backfill(new_backfill("big", partitions), by="ana")
    keys = [partition.key for partition in partitions]
    ledger.move_partitions("big", keys, P.SKIPPED, by="w", reason="all of them")
    assert ledger.counts("big") == {P.SKIPPED: 3182}
    assert len(ledger.partitions("big", keys)) == 3182
    assert process_time() - began < 3, "seconds"
    [_, event] = ledger.events("big")
    assert event.detail["keys"] == keys


def test_a_scattered_range_of_many_windows_is_claimed_and_checked_quickly(ledger: Ledger):
    every_day = days(1, 6000)
    every_other, the_others = every_day[::2], every_day[1::2]
    began = process_time()
    ledger.open_backfill(new_backfill("odd", every_other), by="ana")
    ledger.open_backfill(new_backfill("even", the_others), by="ana")
    with pytest.raises(RangeLocked):
        ledger.open_backfill(new_backfill("more", days(6000, 6000)), by="ana")
    assert ledger.holds_range("odd", merge(every_other))
    assert ledger.lock_owner(TARGET, [window(5999, 5999)]) == "odd"
    assert process_time() - began < 3, "seconds"
