from __future__ import annotations

import pytest
from ledger_processes import run_together
from ledger_world import B, bring_backfill_to, open_backfill, question, stored_plan

from airflow_backfill_provider.errors import LedgerError, TransitionRefused
from airflow_backfill_provider.ledger.records import Decision, Gate
from airflow_backfill_provider.ledger.store import Ledger

YES, NO = Decision.APPROVED, Decision.REJECTED


def decide(ledger: Ledger, decision: Decision, gate: Gate = Gate.PLAN, run_id: str = "manual__bf1") -> None:
    ledger.decide_approval("bf1", question(gate, run_id=run_id), decision, decided_by="ben", by="gate", reason="seen")


def test_a_question_is_recorded_once_and_the_backfill_waits(ledger: Ledger):
    open_backfill(ledger)
    for _ in range(2):
        ledger.ask_approval("bf1", question(), by="gate")
    (found,) = ledger.approvals("bf1")
    assert (found.question, found.decision, found.is_yes) == (question(), None, False)
    assert ledger.backfill("bf1").state is B.AWAITING_APPROVAL
    assert [event.action for event in ledger.events("bf1")] == ["backfill.opened", "approval.asked", "backfill.moved"]


@pytest.mark.parametrize(
    ("gate", "decision", "state"),
    [
        (Gate.PLAN, YES, B.RUNNING),
        (Gate.REVIEW, Decision.WAIVED, B.RUNNING),
        (Gate.PUBLISH, YES, B.VALIDATED),
        (Gate.PLAN, NO, B.REJECTED),
        (Gate.PUBLISH, Decision.TIMED_OUT, B.REJECTED),
    ],
)
def test_an_answer_and_where_it_leads_are_recorded_together(ledger: Ledger, gate: Gate, decision: Decision, state: B):
    open_backfill(ledger)
    bring_backfill_to(ledger, "bf1", {Gate.PLAN: B.PLANNED, Gate.REVIEW: B.RUNNING, Gate.PUBLISH: B.VALIDATED}[gate])
    ledger.ask_approval("bf1", question(gate), by="gate")
    decide(ledger, decision, gate)
    (found,) = ledger.approvals("bf1")
    assert (found.decision, found.decided_by, found.reason) == (decision, "ben", "seen")
    assert ledger.backfill("bf1").state is state
    moved = ledger.events("bf1", "backfill.moved")[-1]
    assert (moved.detail["from"], moved.detail["to"]) == ("awaiting_approval", state.value)
    assert "by ben: seen" in moved.detail["reason"]


def test_a_yes_moves_nothing_that_was_stopped_meanwhile_and_a_no_does(ledger: Ledger):
    open_backfill(ledger)
    ledger.ask_approval("bf1", question(), by="gate")
    ledger.move("bf1", B.HALTED, by="switch")
    decide(ledger, YES)
    assert ledger.backfill("bf1").state is B.HALTED
    decide(ledger, NO)
    assert ledger.backfill("bf1").state is B.REJECTED
    assert [one.decision for one in ledger.approvals("bf1")] == [YES, NO]


def test_the_questions_of_two_runs_are_answered_apart_and_the_last_decision_comes_last(ledger: Ledger):
    open_backfill(ledger)
    for run_id in ("one", "two"):
        ledger.ask_approval("bf1", question(run_id=run_id), by="gate")
    decide(ledger, NO, run_id="two")
    ledger.ask_approval("bf1", question(run_id="one"), by="gate")
    decide(ledger, YES, run_id="one")
    assert [(one.question.run_id, one.decision) for one in ledger.approvals("bf1")] == [("two", NO), ("one", YES)]


def test_nothing_is_asked_or_answered_about_a_plan_that_was_revised(ledger: Ledger):
    open_backfill(ledger)
    ledger.ask_approval("bf1", question(), by="gate")
    ledger.revise_plan("bf1", stored_plan("v2"), restage=[], revalidate=[], by="ana", reason="restage")
    for call in (lambda: decide(ledger, YES), lambda: ledger.ask_approval("bf1", question(), by="gate")):
        with pytest.raises(LedgerError, match="revised meanwhile"):
            call()
    assert ledger.backfill("bf1").state is B.PLANNED


def test_nobody_is_asked_about_what_is_published(ledger: Ledger):
    open_backfill(ledger)
    bring_backfill_to(ledger, "bf1", B.PUBLISHED)
    with pytest.raises(TransitionRefused):
        ledger.ask_approval("bf1", question(), by="gate")
    assert ledger.approvals("bf1") == []


def test_requesters_are_all_who_asked_for_any_revision(ledger: Ledger):
    open_backfill(ledger)
    plan = stored_plan("v2")
    ledger.revise_plan(
        "bf1", type(plan)(**{**plan.__dict__, "requested_by": "carl"}), restage=[], revalidate=[], by="x", reason="r"
    )
    assert ledger.requesters("bf1") == {"ana", "carl"}


def _say_yes(ledger: Ledger) -> None:
    decide(ledger, YES)


def test_processes_that_answer_at_once_leave_one_answer_for_the_question(ledger: Ledger, ledger_url: str):
    open_backfill(ledger)
    ledger.ask_approval("bf1", question(), by="gate")
    run_together(ledger_url, [_say_yes] * 3)
    found = ledger.approvals("bf1")
    assert {one.decision for one in found} == {YES}
    assert ledger.backfill("bf1").state is B.RUNNING
