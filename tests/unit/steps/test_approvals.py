"""A backfill waits for people where its spec says so: who may answer, what an answer holds for, and what voids it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from report_reading import Report
from steps_world import DAYS, World, make_spec

from airflow_backfill_provider.errors import LedgerError, NotApproved, RequestError, Stopped
from airflow_backfill_provider.ledger.records import Decision, Gate, Question
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.steps import shown
from airflow_backfill_provider.steps.asking import Person, answer, ask, give_up_waiting, is_approved
from airflow_backfill_provider.steps.report import summarise
from airflow_backfill_provider.steps.stage import stage_batch

ALWAYS = {"required": "always"}
ANN, BEN = Person("ann", "ann"), Person("7", "ben")


def spec(approval: dict[str, Any] | None = None, **changes: Any) -> Any:
    return make_spec(approval=ALWAYS | (approval or {}), **changes)


def gate(world: World, at: Gate = Gate.PLAN, *, asked_for: str = "ann", run_id: str = "run 1", waive: str = "") -> Any:
    """What a cleared task asks."""
    return ask(replace(world.work(world.id), run_id=run_id), at, asked_for, waive=waive)


def approve(world: World, question: Question, person: Person = BEN) -> str:
    return answer(world.work(world.id), question, person, yes=True)


@pytest.fixture
def asked(world: World) -> World:
    world.spec = spec()
    world.scope(reason="refunds")
    return world


def states(world: World) -> set[PartitionState]:
    return {record.state for record in world.ledger.partitions(world.id).values()}


def test_nothing_is_staged_before_somebody_approved_the_plan_and_everything_after(asked: World) -> None:
    batches = asked.scope().batches
    for begin in (lambda: stage_batch(asked.work(), batches[0].keys), asked.try_one):
        with pytest.raises(NotApproved, match=r"Nobody approved the plan .*nobody was asked.*approve_plan"):
            begin()
    question = gate(asked)
    assert asked.ledger.backfill(asked.id).state is BackfillState.AWAITING_APPROVAL
    with pytest.raises(NotApproved, match="has not answered"):
        stage_batch(asked.work(), batches[0].keys)
    assert states(asked) == {PartitionState.PENDING}
    assert approve(asked, question) == ""
    assert asked.ledger.backfill(asked.id).state is BackfillState.RUNNING
    assert asked.run().backfill.state is BackfillState.COMPLETED


def test_the_ledger_itself_stages_nothing_while_somebody_is_asked(asked: World) -> None:
    gate(asked)
    with pytest.raises(LedgerError, match="awaiting_approval"):
        asked.ledger.start_staging(asked.id, [DAYS[0]], owner="somebody")


WIDER = {"start_date": f"{DAYS[0]}T05:00:00Z", "end_date": f"{DAYS[1]}T01:00:00Z", "expand": True}
"""Parts of two days, and so both of them."""


def test_a_range_that_was_widened_is_approved_whatever_its_size(world: World) -> None:
    world.spec = make_spec(approval={"required": {"over_partitions": 31}})
    scoped = world.scope(**WIDER)
    assert scoped.plan.keys == DAYS[:2]
    assert "asked       whoever may answer for the DAG, before anything is staged" in preview(scoped.plan)
    assert "the range is wider than what was asked for" in preview(scoped.plan)
    with pytest.raises(NotApproved, match="Nobody approved the plan"):
        stage_batch(world.work(), DAYS[:2])
    question = gate(world)
    widened = f"expanded to whole days: from [{DAYS[0]}T05:00:00Z, {DAYS[1]}T01:00:00Z)"
    assert widened in question.shown.replace("\\", "")
    assert approve(world, question) == ""
    assert stage_batch(world.work(), DAYS[:2]).staged == 2
    world.run_id = "run 2"
    assert world.scope(start_date=DAYS[4], end_date=DAYS[5], expand=True).plan.asked is None
    assert stage_batch(world.work(), [DAYS[4]]).staged == 1


def test_a_widened_range_is_refused_where_nobody_is_ever_asked_naming_the_range_to_ask_for(world: World) -> None:
    assert world.scope(mode="plan", **WIDER).plan.keys == DAYS[:2]
    with pytest.raises(RequestError, match=r"approval\.required is never.*Nothing was done") as refused:
        world.scope(**WIDER)
    assert world.ledger.backfills() == []
    (asked_for,) = re.findall(r"whole range: (\{.*?\})", str(refused.value))
    assert world.scope(**json.loads(asked_for)).plan.keys == DAYS[:2]


def test_a_no_rejects_and_the_cleared_gate_asks_again(asked: World) -> None:
    question = gate(asked)
    answer(asked.work(), question, ANN, yes=False, note="wrong month")
    assert asked.ledger.backfill(asked.id).state is BackfillState.REJECTED
    with pytest.raises(NotApproved, match="rejected by ann"):
        stage_batch(asked.work(), asked.scope().batches[0].keys)
    again = gate(asked)
    assert asked.ledger.backfill(asked.id).state is BackfillState.AWAITING_APPROVAL
    assert approve(asked, again) == ""
    assert gate(asked) is None, "what was approved is not asked again"


def test_a_task_that_died_after_a_no_does_not_ask_again_when_airflow_runs_it_again_by_itself(asked: World) -> None:
    work = replace(asked.work(), run_id="run 1", clear_number=3)
    question = ask(work, Gate.PLAN, "ann")
    assert question is not None
    answer(work, question, BEN, yes=False, note="wrong month")
    with pytest.raises(NotApproved, match="rejected by ben: wrong month"):
        ask(work, Gate.PLAN, "ann")
    assert asked.ledger.backfill(asked.id).state is BackfillState.REJECTED
    assert ask(replace(work, clear_number=4), Gate.PLAN, "ann") is not None


def test_an_approval_by_who_asked_does_not_count_under_four_eyes(asked: World) -> None:
    question = gate(asked)
    assert "another pair of eyes" in approve(asked, question, ANN)
    assert "another pair of eyes" in approve(asked, question, Person("12", "Ann"))
    assert not is_approved(asked.work(), question)
    assert asked.ledger.backfill(asked.id).state is BackfillState.AWAITING_APPROVAL
    assert [event.detail["by"] for event in asked.ledger.events(asked.id, "approval.not_counted")] == ["ann", "Ann"]
    assert approve(asked, question) == ""


def test_whoever_asked_for_a_revision_cannot_approve_it_in_the_run_of_another(asked: World) -> None:
    asked.engine.execute("UPDATE analytics.orders SET amount = 0 WHERE order_id = 1")
    asked.requester = "ben"
    asked.scope(backfill_id=asked.id, rebase=True)
    question = gate(asked, asked_for="carl")
    assert "ben asked for it" in approve(asked, question, BEN)
    assert approve(asked, question, Person("dora", "dora")) == ""


def test_four_eyes_need_to_know_who_asked(world: World) -> None:
    world.spec = spec()
    world.scope()
    with pytest.raises(NotApproved, match="nobody knows who triggered"):
        gate(world, asked_for="unknown user")


@pytest.mark.parametrize("approver", ["7", "Ben"])
def test_only_the_named_approvers_count_by_id_or_name_in_any_case_and_one_who_asked_is_not_named(
    world: World, approver: str
) -> None:
    world.spec = spec({"approvers": ["ann", approver]})
    world.scope()
    question = gate(world)
    assert f"May approve: {approver}\n" in question.shown
    assert "not among approval.approvers" in approve(world, question, Person("eve", "eve"))
    assert "ann asked for it" in approve(world, question, Person("3", "ann"))
    assert approve(world, question, BEN) == ""


def test_where_nobody_could_approve_nobody_is_asked(world: World) -> None:
    world.spec = spec({"approvers": ["ann"]})
    world.scope()
    with pytest.raises(NotApproved, match="Nobody could approve it"):
        gate(world)


def test_no_answer_in_time_is_a_no_unless_somebody_approved_it_in_another_run(asked: World) -> None:
    question = gate(asked)
    give_up_waiting(asked.work(), question, "2 days")
    assert asked.ledger.backfill(asked.id).state is BackfillState.REJECTED
    other = gate(asked, run_id="run 2")
    approve(asked, other)
    give_up_waiting(asked.work(), question, "2 days")
    assert is_approved(asked.work(), question)
    assert asked.ledger.backfill(asked.id).state is BackfillState.RUNNING


@pytest.mark.parametrize(
    ("conf", "shown_as"),
    [
        ({"restage": True}, "staged again from the start"),
        ({"rebase": True}, "published rows of 1 partitions moved: 2024"),
        ({}, "spec's checks changed"),
    ],
    ids=["restage", "rebase", "checks"],
)
def test_whatever_changes_the_plan_voids_its_approval_and_the_next_question_says_what_changed(
    asked: World, conf: dict[str, Any], shown_as: str
) -> None:
    approve(asked, gate(asked))
    asked.stage(asked.scope())
    if "rebase" in conf:
        asked.engine.execute("UPDATE analytics.orders SET amount = 0 WHERE order_id = 303")
    if not conf:
        asked.spec = spec(checks=[])
    asked.run_id, found = "run 2", asked.id
    again = asked.scope(backfill_id=found, **conf)

    def go_on() -> None:
        asked.stage(again)
        asked.validate(again)
        asked.publish(found)

    with pytest.raises(NotApproved, match="another content, or another revision"):
        go_on()
    question = ask(asked.work(found), Gate.PLAN, "ann")
    assert question is not None
    assert shown_as in question.shown.replace("\\", "")
    assert "approved by ben" in question.shown


def test_an_answer_to_a_plan_that_was_revised_meanwhile_is_not_recorded(asked: World) -> None:
    question = gate(asked)
    asked.scope(restage=True)
    with pytest.raises(LedgerError, match="was revised meanwhile"):
        approve(asked, question)
    assert [one.decision for one in asked.ledger.approvals(asked.id)] == [None]


def test_an_answer_to_what_was_given_up_meanwhile_is_not_recorded(asked: World) -> None:
    question = gate(asked)
    asked.ledger.move(asked.id, BackfillState.EXPIRED, by="tester")
    with pytest.raises(LedgerError, match="it is over"):
        approve(asked, question)


def test_small_plans_need_nobody_and_say_by_which_rule(world: World) -> None:
    world.spec = spec({"required": {"over_partitions": len(DAYS)}})
    world.scope()
    assert gate(world) is None
    (event,) = world.ledger.events(world.id, "approval.not_required")
    assert event.detail["reason"] == "approval.required is over 10 partitions, and the plan has 10 partitions"
    assert world.run().backfill.state is BackfillState.COMPLETED

    world.run_id, world.spec = "run 2", spec({"required": {"over_partitions": len(DAYS) - 1}})
    world.scope()
    assert gate(world, run_id="run 2") is not None


def test_only_whom_the_spec_names_may_waive_and_it_is_recorded_with_the_reason(world: World) -> None:
    world.spec = spec({"waivers": ["ben"]})
    world.scope()
    with pytest.raises(RequestError, match=r"ann may not waive it; .* names ben"):
        gate(world, waive="no time")
    assert gate(world, asked_for="ben", waive="an outage, 4711") is None
    (waived,) = world.ledger.approvals(world.id)
    assert (waived.decision, waived.decided_by, waived.reason) == (Decision.WAIVED, "ben", "an outage, 4711")
    summary = world.run()
    assert "the plan: not inspected, waived by ben: an outage, 4711" in "\n".join(summary.lines())

    world.run_id = "run 2"
    world.scope()
    assert gate(world, asked_for="ben", run_id="run 2", waive="an outage, 4711") is None
    world.spec = spec({"waivers": ["ben"]}, checks=[])
    world.scope()
    assert gate(world, asked_for="ben", run_id="run 2", waive="an outage, 4711") is not None, "of another plan"


def test_a_trial_is_reviewed_before_the_others_are_computed(world: World) -> None:
    world.spec = make_spec(trial={"review": True})
    scoped = world.scope()
    with pytest.raises(NotApproved, match="Clear trial"):
        gate(world, Gate.REVIEW)
    world.try_one()
    with pytest.raises(NotApproved, match="Nobody approved the review"):
        world.stage(scoped)
    question = gate(world, Gate.REVIEW)
    assert "computed twice, and both runs gave the same rows" in question.shown
    assert approve(world, question) == ""
    assert world.run().backfill.state is BackfillState.COMPLETED


@pytest.mark.parametrize(("count", "review", "reviewed"), [(10, None, False), (32, None, True), (32, False, False)])
def test_the_trial_of_a_long_plan_is_reviewed_where_the_plan_itself_is(
    world: World, count: int, review: bool | None, reviewed: bool
) -> None:
    world.spec = spec(trial={"review": review})
    scoped = world.scope(start_date="2024-02-08", end_date=f"2024-{'03-10' if count == 32 else '02-17'}")
    assert len(scoped.plan.keys) == count
    approve(world, gate(world))
    world.try_one()
    assert (gate(world, Gate.REVIEW) is not None) is reviewed


def test_the_evidence_is_approved_before_the_publish_and_rows_staged_again_void_that(world: World) -> None:
    before = world.published()
    world.spec = make_spec(approval={"before_publish": True})
    scoped = world.scope()
    world.stage(scoped)
    with pytest.raises(NotApproved, match="are not validated"):
        gate(world, Gate.PUBLISH)
    world.validate(scoped)
    with pytest.raises(NotApproved, match=r"Nobody approved the publish .*nobody was asked"):
        world.publish()
    question = gate(world, Gate.PUBLISH)
    assert "60 published rows would become 60: 10 changed, 0 added, 0 removed" in question.shown
    with pytest.raises(NotApproved, match="has not answered"):
        world.publish()
    assert approve(world, question) == ""
    assert world.ledger.backfill(world.id).state is BackfillState.VALIDATED

    location = world.ledger.partitions(world.id)[DAYS[2]].location
    assert location is not None
    world.warehouse.drop(location)
    world.engine.execute("UPDATE raw.orders SET amount = 1 WHERE order_id = 203")
    world.stage(scoped)
    world.validate(scoped)
    with pytest.raises(NotApproved, match="another content, or another revision"):
        world.publish()
    assert world.published() == before
    again = gate(world, Gate.PUBLISH)
    assert again.content != question.content
    approve(world, again)
    assert world.publish().published
    assert gate(world, Gate.PUBLISH) is None


def test_a_stop_holds_the_question_back_and_an_answer_given_before_it_stays(asked: World) -> None:
    question = gate(asked)
    approve(asked, question)

    def stop() -> None:
        raise Stopped("the switch")

    asked.check_stop = stop
    with pytest.raises(Stopped):
        gate(asked)
    assert asked.ledger.backfill(asked.id).state is BackfillState.HALTED
    asked.check_stop = lambda: None
    assert gate(asked) is None


def test_what_a_person_reads_is_bounded_and_holds_nothing_but_text(world: World) -> None:
    evil = "<script>alert(1)</script> [here](javascript:x) ![](https://evil.example/pixel) www.evil.example\n# Approved `x`"
    world.spec = spec()
    world.scope(reason=evil + "!" * 1_800)
    question = gate(world)
    assert len(question.shown) <= shown.MOST_CHARACTERS
    (line,) = (line for line in question.shown.splitlines() if "Asked for by" in line)
    assert re.search(r"(?<!\\)[<>\[\]()`!#*_:]", line.removeprefix("- Asked for by ann: ")) is None
    assert "www.evil" not in question.shown
    assert "\\<script\\>alert\\(1\\)" in question.shown
    assert "10 partitions" in question.shown
    assert "Without an answer within 2 days it is rejected" in question.shown
    longest = shown.body(["x" * 20_000], end=["the rules"])
    assert len(longest) == shown.MOST_CHARACTERS
    assert longest.endswith("the rules")


def test_report_and_summary_say_who_asked_who_approved_and_what_nobody_looked_at(asked: World) -> None:
    approve(asked, gate(asked))
    asked.run()
    lines = "\n".join(summarise(asked.ledger, asked.id).lines())
    assert "asked for   by ann: refunds" in lines
    assert "inspected   the plan: approved by ben" in lines
    assert "inspected   the trial: not inspected" in lines
    assert "inspected   the evidence: not inspected" in lines
    page = Report(asked).text
    assert "The plan approved ben" in page
    assert "Nobody inspected the trial and the evidence." in page
    assert {event.action for event in asked.ledger.events(asked.id)} >= {"approval.asked", "approval.decided"}
