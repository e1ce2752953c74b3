"""Asking: what a person is asked at a gate, whose answer counts, and what becomes of the backfill then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from airflow_backfill_provider.errors import NotApproved, RequestError
from airflow_backfill_provider.identity import UNKNOWN_USER
from airflow_backfill_provider.ledger.records import Approval, Decision, Gate, Question
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps import shown
from airflow_backfill_provider.steps.approval import content_of, is_moot
from airflow_backfill_provider.steps.gates import is_needed, last_decision, not_needed
from airflow_backfill_provider.steps.report import summarise
from airflow_backfill_provider.steps.tried import trial_of
from airflow_backfill_provider.steps.work import Work

_NOT_COUNTED_EVENT = "approval.not_counted"


@dataclass(frozen=True)
class Person:
    """Whoever answered, as Airflow's auth manager knows them."""

    user_id: str
    name: str

    def is_one_of(self, users: Collection[str]) -> bool:
        """Whether a user of that id or name is among them, in any case."""
        return not {self.user_id.casefold(), self.name.casefold()}.isdisjoint(user.casefold() for user in users)

    def __str__(self) -> str:
        return self.name or self.user_id


def ask(work: Work, gate: Gate, asked_for: str, *, waive: str = "") -> Question | None:
    """Record what a person is to be asked, and return it; None when nobody has to be, which is recorded as well.

    :param asked_for: who triggered the run.
    :param waive: why nobody needs to look; from the request.
    :raises RequestError: who asks to waive the approval may not.
    :raises NotApproved: nobody could approve it, there is nothing to approve yet, or the answer was no and the run was not
        cleared since.
    """
    work.stop_or_ask()
    plan, rules, revision = work.plan(), work.spec.approval, work.revision
    if is_moot(work, gate):
        work.log.info("The %s is not asked about any more: partitions are published.", gate)
        return None
    if not is_needed(plan, gate):
        if gate is Gate.PLAN:
            work.log.info("Nobody is asked: %s.", not_needed(plan))
        return None
    content = content_of(work, plan, gate)
    approvals = work.ledger.approvals(work.backfill_id)
    last = last_decision(approvals, gate, content, revision)
    if last is not None and last.is_yes:
        work.log.info("The %s was %s by %s.", gate, last.decision, last.decided_by)
        return None
    requesters = work.ledger.requesters(work.backfill_id) | {asked_for}
    body = _body(work, plan, gate, asked_for, requesters)
    question = Question(gate, content, revision, body, asked_for, work.run_id, work.clear_number)
    if last is not None and _is_of_the_same_try(last.question, question):
        raise NotApproved(f"The {gate} was {_said(last)}. Clear this task to ask again.")
    if waive and not any(one.decision is Decision.WAIVED and _of_another_plan(one, question) for one in approvals):
        _require_waiver(rules.waivers, asked_for)
        work.ledger.decide_approval(
            work.backfill_id, question, Decision.WAIVED, decided_by=asked_for, by=work.by, reason=waive
        )
        work.log.warning("Nobody is asked: %s waived the approval of the %s: %s", asked_for, gate, waive)
        return None
    if rules.four_eyes and UNKNOWN_USER in requesters:
        raise NotApproved(
            "Four eyes need to know who asked, and nobody knows who triggered this backfill. Trigger it as a user, or set "
            "approval.four_eyes: false."
        )
    if rules.approvers and not may_approve(work.spec.approval.approvers, requesters, four_eyes=rules.four_eyes):
        raise NotApproved(
            f"Nobody could approve it: {', '.join(rules.approvers)} asked for it themselves, and the spec wants four eyes. Name "
            "another user in approval.approvers."
        )
    work.ledger.ask_approval(work.backfill_id, question, by=work.by)
    return question


def may_approve(approvers: Sequence[str], requesters: Collection[str], *, four_eyes: bool) -> list[str]:
    """The approvers whose yes counts."""
    asked = {user.casefold() for user in requesters}
    return [user for user in approvers if not (four_eyes and user.casefold() in asked)]


def answer(work: Work, question: Question, person: Person, *, yes: bool, note: str = "") -> str:
    """Record a person's answer; why it does not count, or nothing when it does. Anybody's no counts.

    :raises LedgerError: the plan was revised since, or the backfill is over; nothing is recorded.
    """
    if not yes:
        work.ledger.decide_approval(
            work.backfill_id, question, Decision.REJECTED, decided_by=str(person), by=work.by, reason=note
        )
        return ""
    if objection := _objection(work, question, person):
        detail = {"gate": question.gate.value, "content": question.content, "by": str(person), "reason": objection}
        work.ledger.record_event(work.backfill_id, _NOT_COUNTED_EVENT, by=work.by, detail=detail)
        return objection
    work.ledger.decide_approval(
        work.backfill_id, question, Decision.APPROVED, decided_by=str(person), by=work.by, reason=note
    )
    return ""


def give_up_waiting(work: Work, question: Question, waited: str) -> None:
    """Record that nobody answered in time, which rejects; nothing when somebody said yes to the same meanwhile."""
    last = last_decision(work.ledger.approvals(work.backfill_id), question.gate, question.content, work.revision)
    if last is None or not last.is_yes:
        reason = f"nobody answered within {waited}"
        work.ledger.decide_approval(
            work.backfill_id, question, Decision.TIMED_OUT, decided_by="nobody", by=work.by, reason=reason
        )


def is_approved(work: Work, question: Question) -> bool:
    """Whether somebody said yes to exactly this."""
    last = last_decision(work.ledger.approvals(work.backfill_id), question.gate, question.content, question.revision)
    return last is not None and last.is_yes


def reopened(work: Work, gate: str, content: str, revision: int) -> Question:
    """The question that a run asked before it began to wait.

    :raises NotApproved: the ledger knows of none.
    """
    for approval in reversed(work.ledger.approvals(work.backfill_id)):
        asked = approval.question
        if (asked.gate, asked.content, asked.revision, asked.run_id) == (gate, content, revision, work.run_id):
            return asked
    raise NotApproved(
        f"The ledger knows of no question about the {gate} of backfill {work.backfill_id}. Clear this task."
    )


def subject_of(work: Work, question: Question) -> str:
    """The question's one line, by which one tells what an answer is about."""
    return shown.subject(work.stored_plan(), question.gate, question.content)


def duration(waiting: timedelta) -> str:
    """``2 days``, ``3 hours`` or ``90 seconds``."""
    seconds = int(waiting.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}{'s' if seconds != size else ''}"
    return f"{seconds} seconds"


def _objection(work: Work, question: Question, person: Person) -> str:
    rules = work.spec.approval
    requesters = work.ledger.requesters(work.backfill_id) | {question.asked_for}
    if rules.approvers and not person.is_one_of(rules.approvers):
        return f"{person} is not among approval.approvers ({', '.join(rules.approvers)})"
    if rules.four_eyes and person.is_one_of(requesters):
        return f"{person} asked for it, and the spec wants another pair of eyes"
    return ""


def _is_of_the_same_try(earlier: Question, now: Question) -> bool:
    """Whether both are of one run that nobody cleared in between: a task that died is run again by itself."""
    return (earlier.run_id, earlier.clear_number) == (now.run_id, now.clear_number)


def _said(approval: Approval) -> str:
    why = f": {approval.reason}" if approval.reason else ""
    return f"{str(approval.decision).replace('_', ' ')} by {approval.decided_by}{why}"


def _require_waiver(waivers: Sequence[str], user: str) -> None:
    if not Person(user, user).is_one_of(waivers):
        raise RequestError(
            f"waive_approval: {user} may not waive it; approval.waivers of the spec names "
            f"{', '.join(waivers) or 'nobody'}. Nothing was computed. Trigger without it, and have the plan approved."
        )


def _of_another_plan(approval: Approval, question: Question) -> bool:
    """Whether it waived, for the same run, what is not what this question is about: conf stays, plans change."""
    asked = approval.question
    return asked.run_id == question.run_id and asked.revision != question.revision


def _body(work: Work, plan: Plan, gate: Gate, asked_for: str, requesters: Collection[str]) -> str:
    rules = work.spec.approval
    may = may_approve(rules.approvers, requesters, four_eyes=rules.four_eyes)
    waits = duration(rules.timeout)
    end = shown.who_may_answer(may, sorted(requesters), four_eyes=rules.four_eyes, waits=waits)
    record = work.ledger.backfill(work.backfill_id)
    match gate:
        case Gate.PLAN:
            earlier = [
                one for one in work.ledger.approvals(work.backfill_id) if one.decision and one.question.gate is gate
            ]
            since: list[str] = []
            if earlier and earlier[-1].question.revision != record.revision:
                before = Plan.from_document(work.ledger.plan(work.backfill_id, earlier[-1].question.revision).document)
                since = shown.changes_since(earlier[-1], before, plan)
            return shown.body(shown.plan_in_words(plan, asked_for, record.reason), since, end=end)
        case Gate.REVIEW:
            trial = trial_of(work.ledger, plan)
            assert trial is not None
            return shown.body(shown.trial_in_words(plan, trial), end=end)
        case Gate.PUBLISH:
            summary = summarise(work.ledger, work.backfill_id)
            return shown.body(shown.evidence_in_words(summary, work.ledger.evidence(work.backfill_id)), end=end)


def fail_waiting(work: Work, reason: str) -> None:
    """Record that the task that waited is gone."""
    expected = {BackfillState.AWAITING_APPROVAL}
    if work.ledger.backfill(work.backfill_id).state in expected:
        work.ledger.move(work.backfill_id, BackfillState.FAILED, by=work.by, reason=reason, expected=expected)
