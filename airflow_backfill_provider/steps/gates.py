"""The places where a backfill may wait for a person: which of them a plan has, and who looked at each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_backfill_provider.ledger.records import Approval, Decision, Gate
from airflow_backfill_provider.plan import Plan

REVIEWED_OVER = 31
"""Partitions of a plan that needs an approval above which its trial is reviewed as well, unless the spec says otherwise."""


DRILLED_UNASKED = 3
"""Partitions of a drill up to which nobody is asked, whatever the spec says."""


@dataclass(frozen=True)
class Inspection:
    """One gate of a plan, and who looked."""

    gate: Gate
    needed: bool
    approval: Approval | None
    """The last decision of this plan revision."""

    @property
    def what(self) -> str:
        """What one looks at there."""
        return {Gate.PLAN: "the plan", Gate.REVIEW: "the trial", Gate.PUBLISH: "the evidence"}[self.gate]

    @property
    def is_inspected(self) -> bool:
        """Whether a person looked and answered."""
        return self.approval is not None and self.approval.decision in (Decision.APPROVED, Decision.REJECTED)

    def __str__(self) -> str:
        found = self.approval
        if found is None or found.decision is None:
            return f"{self.what}: not inspected" + (", though its spec wants it" if self.needed else "")
        said = f"{str(found.decision).replace('_', ' ')} by {found.decided_by}" + (
            f": {found.reason}" if found.reason else ""
        )
        return f"{self.what}: {said}" if self.is_inspected else f"{self.what}: not inspected, {said}"


def is_needed(plan: Plan, gate: Gate) -> bool:
    """Whether a person has to look there: where the spec wants one to, and at a plan whose range was widened beyond what was asked.

    Of a drill, which publishes nothing, only at the plan of a larger one.
    """
    approval, partitions = plan.spec.approval, len(plan.keys)
    if plan.request.drill:
        return gate is Gate.PLAN and partitions > DRILLED_UNASKED and approval.needed_for(partitions)
    if gate is Gate.PUBLISH:
        return approval.before_publish
    by_size = approval.needed_for(partitions)
    if gate is Gate.PLAN:
        return by_size or plan.asked is not None
    trial = plan.spec.trial
    return trial.enabled and (by_size and partitions > REVIEWED_OVER if trial.review is None else trial.review)


def not_needed(plan: Plan) -> str:
    """Why the plan needs no approval, in the words of its spec."""
    if plan.request.drill:
        return f"it is a drill, which publishes nothing; one of over {DRILLED_UNASKED} partitions is approved as any plan is"
    count = len(plan.keys)
    return f"approval.required is {plan.spec.approval.rule}, and the plan has {count:,} partition{'s' * (count != 1)}"


def who_is_asked(plan: Plan) -> str:
    """Where the backfill will wait for people, and for whom, in words."""
    when = {Gate.PLAN: "before anything is staged", Gate.REVIEW: "after the trial", Gate.PUBLISH: "before the publish"}
    places = [when[gate] for gate in Gate if is_needed(plan, gate)]
    if not places:
        return f"nobody: {not_needed(plan)}"
    rules = plan.spec.approval
    whom = " or ".join(rules.approvers) or "whoever may answer for the DAG"
    widened = (
        "; the range is wider than what was asked for" if plan.asked is not None and not plan.request.drill else ""
    )
    return f"{whom}, {', '.join(places)}{widened}" + ("; four eyes" if rules.four_eyes else "")


def inspections(approvals: Iterable[Approval], plan: Plan, revision: int) -> tuple[Inspection, ...]:
    """Every gate, in the order of a backfill's life."""
    of_revision = [one for one in approvals if one.question.revision == revision]
    last = {one.question.gate: one for one in of_revision if one.decision is not None}
    return tuple(Inspection(gate, is_needed(plan, gate), last.get(gate)) for gate in Gate)


def last_decision(approvals: Iterable[Approval], gate: Gate, content: str, revision: int) -> Approval | None:
    """The last decision about exactly this content of exactly this revision."""
    found = None
    for approval in approvals:
        asked = approval.question
        if approval.decision is not None and (asked.gate, asked.content, asked.revision) == (gate, content, revision):
            found = approval
    return found
