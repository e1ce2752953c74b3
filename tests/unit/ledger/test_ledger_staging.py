from __future__ import annotations

import pytest
from ledger_world import STAGE, P, open_backfill, stage, stored_plan

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger.records import FinishedStage
from airflow_backfill_provider.ledger.store import Ledger

KEY = "2013-02-01"


def test_a_finished_attempt_records_what_it_staged_and_the_intent_it_began_under(ledger: Ledger):
    open_backfill(ledger)
    assert ledger.start_staging("bf1", [KEY], owner="task 1") == {KEY: 1}
    ledger.finish_staging("bf1", [FinishedStage(KEY, 1, **{**STAGE, "rows": 5_000_000_000})], by="task 1")
    record = ledger.partitions("bf1")[KEY]
    assert (record.state, record.attempt, record.owner) == (P.STAGED, 1, "task 1")
    assert (record.location, record.rows, record.digest, record.method, record.seconds, record.staged_intent) == (
        "stage-1",
        5_000_000_000,
        "d",
        "m",
        0.5,
        "intent-v1",
    )
    assert [event.action for event in ledger.events("bf1")[1:]] == ["partition.staging", "partition.staged"]


def test_an_overtaken_attempt_cannot_record_its_stage(ledger: Ledger):
    open_backfill(ledger)
    slow = ledger.start_staging("bf1", [KEY], owner="slow")[KEY]
    fast = ledger.start_staging("bf1", [KEY], owner="fast")[KEY]
    assert (slow, fast) == (1, 2)
    with pytest.raises(LedgerError, match="attempt 2 by 'fast' owns it now"):
        ledger.finish_staging("bf1", [FinishedStage(KEY, slow, **STAGE)], by="slow")
    ledger.finish_staging("bf1", [FinishedStage(KEY, fast, **{**STAGE, "location": "stage-2"})], by="fast")
    with pytest.raises(LedgerError, match="was overtaken"):
        ledger.finish_staging("bf1", [FinishedStage(KEY, slow, **STAGE)], by="slow")
    record = ledger.partitions("bf1")[KEY]
    assert (record.state, record.location) == (P.STAGED, "stage-2")


def test_an_attempt_is_finished_once(ledger: Ledger):
    open_backfill(ledger)
    attempt = stage(ledger, "bf1", KEY)
    with pytest.raises(LedgerError, match="the partition is 'staged'"):
        ledger.finish_staging("bf1", [FinishedStage(KEY, attempt, **STAGE)], by="worker")


def test_an_attempt_that_began_before_a_plan_revision_cannot_record_its_stage(ledger: Ledger):
    open_backfill(ledger)
    attempt = ledger.start_staging("bf1", [KEY], owner="zombie")[KEY]
    ledger.revise_plan("bf1", stored_plan("v2"), restage=[KEY], revalidate=[], by="ana", reason="new rule")
    with pytest.raises(LedgerError, match="the partition is 'pending'"):
        ledger.finish_staging("bf1", [FinishedStage(KEY, attempt, **STAGE)], by="zombie")
    assert ledger.start_staging("bf1", [KEY], owner="worker", intent="intent-v2") == {KEY: 2}


def test_a_worker_that_missed_a_plan_revision_begins_nothing(ledger: Ledger):
    open_backfill(ledger)
    ledger.revise_plan("bf1", stored_plan("v2"), restage=[KEY], revalidate=[], by="ana", reason="new rule")
    with pytest.raises(LedgerError, match="revision 2 has intent 'intent-v2'"):
        ledger.start_staging("bf1", [KEY], owner="zombie", intent="intent-v1")
    assert ledger.partitions("bf1")[KEY].state is P.PENDING


@pytest.mark.parametrize("judged", [P.STAGED, P.VALIDATED, P.REJECTED])
def test_staging_again_forgets_the_old_stage_and_what_was_found_about_it(ledger: Ledger, judged: P):
    open_backfill(ledger)
    stage(ledger, "bf1", KEY)
    ledger.move_partitions("bf1", [KEY], judged, by="w", reason="because")
    for key in (KEY, "2013-02-02", None):
        ledger.record_evidence("bf1", {key: [{"about": key}]}, by="w")
    assert ledger.start_staging("bf1", [KEY], owner="again") == {KEY: 2}
    record = ledger.partitions("bf1")[KEY]
    assert (record.state, record.location, record.rows, record.digest, record.reason) == (
        P.STAGING,
        None,
        None,
        None,
        "",
    )
    assert list(ledger.evidence("bf1")) == ["2013-02-02"]
    assert ledger.events("bf1")[-1].detail["replaces"] == "stage-1"


def test_validating_again_keeps_the_stage_and_retires_the_verdict(ledger: Ledger):
    open_backfill(ledger)
    stage(ledger, "bf1", KEY)
    ledger.move_partitions("bf1", [KEY], P.REJECTED, by="w", reason="two rows too many")
    ledger.record_evidence("bf1", {KEY: [{"verdict": "fail"}]}, by="w")
    assert ledger.partitions("bf1")[KEY].reason == "two rows too many"
    ledger.move_partitions("bf1", [KEY], P.STAGED, by="w")
    record = ledger.partitions("bf1")[KEY]
    assert (record.state, record.location, record.reason) == (P.STAGED, "stage-1", "")
    assert ledger.evidence("bf1") == {}


def test_a_verdict_about_an_attempt_that_was_overtaken_is_not_recorded(ledger: Ledger):
    open_backfill(ledger)
    judged = stage(ledger, "bf1", KEY)
    stage(ledger, "bf1", KEY, location="stage-2")
    verdict = {"verdicts": {KEY: P.VALIDATED}, "evidence": {KEY: [{"verdict": "pass"}]}, "revision": 1, "by": "w"}
    with pytest.raises(LedgerError, match="staged again meanwhile"):
        ledger.record_verdicts("bf1", attempts={KEY: judged}, **verdict)
    assert ledger.partitions("bf1")[KEY].state is P.STAGED
    assert ledger.evidence("bf1") == {}
    ledger.record_verdicts("bf1", attempts={KEY: judged + 1}, **verdict)
    assert ledger.partitions("bf1")[KEY].state is P.VALIDATED


def test_a_verdict_under_an_older_plan_revision_is_not_recorded(ledger: Ledger):
    open_backfill(ledger)
    attempt = stage(ledger, "bf1", KEY)
    ledger.revise_plan("bf1", stored_plan("v2"), restage=[], revalidate=[], by="ana", reason="other checks")
    with pytest.raises(LedgerError, match="rests on revision 1, and it has 2"):
        ledger.record_verdicts("bf1", {KEY: P.VALIDATED}, {KEY: []}, attempts={KEY: attempt}, revision=1, by="w")
    assert ledger.partitions("bf1")[KEY].state is P.STAGED
