"""Approval: a backfill goes on only with what people said yes to, where its spec wants them to look.

An answer holds for one content (the plan's hash; the trial's; the staged rows') of one plan revision, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import NotApproved
from airflow_backfill_provider.ledger.records import Approval, Gate
from airflow_backfill_provider.ledger.states import READY, PartitionState
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.hashes import digest
from airflow_backfill_provider.steps.gates import is_needed, last_decision
from airflow_backfill_provider.steps.tried import trial_of
from airflow_backfill_provider.steps.work import Work

_WRITTEN = frozenset({PartitionState.PUBLISHED, PartitionState.ROLLED_BACK})
_TASKS = {Gate.PLAN: "approve_plan", Gate.REVIEW: "review_trial", Gate.PUBLISH: "approve_publish"}
"""As the DAG factory calls them."""


def require_approval(work: Work, plan: Plan, *gates: Gate) -> None:
    """Refuse to go on with what nobody said yes to; nothing where the spec wants nobody to look.

    :raises NotApproved: naming the gate, and what stands in its place.
    """
    needed = [gate for gate in gates if is_needed(plan, gate) and not is_moot(work, gate)]
    approvals = work.ledger.approvals(work.backfill_id) if needed else []
    for gate in needed:
        content = content_of(work, plan, gate)
        last = last_decision(approvals, gate, content, work.revision)
        if last is None or not last.is_yes:
            raise NotApproved(
                f"Nobody approved the {gate} of backfill {work.backfill_id} as it is now (content {content[:12]}): "
                f"{_instead(approvals, gate, last)}. Nothing was computed or written. Run, or clear, the task {_TASKS[gate]} "
                "(ApprovalGateOperator)."
            )


def content_of(work: Work, plan: Plan, gate: Gate) -> str:
    """The hash of what is asked about at a gate, as it is now.

    :raises NotApproved: there is nothing to ask about yet.
    """
    if gate is Gate.PLAN:
        return plan.plan_hash
    if gate is Gate.REVIEW:
        trial = trial_of(work.ledger, plan)
        if trial is None:
            raise NotApproved(
                f"No trial of backfill {work.backfill_id} passed under this plan, so there is nothing to review. Clear trial."
            )
        return digest([plan.plan_hash, trial.partition, trial.rows])
    records = work.ledger.partitions(work.backfill_id)
    if unready := [key for key, record in records.items() if record.state not in READY]:
        raise NotApproved(
            f"{len(unready)} partitions are not validated ({', '.join(unready[:5])}), so there is no evidence to approve yet."
        )
    return digest([plan.plan_hash, [[key, record.rows, record.digest] for key, record in records.items()]])


def is_moot(work: Work, gate: Gate) -> bool:
    """Whether what the gate guards has happened: units of the range are published."""
    if gate is Gate.PLAN:
        return False
    counts = work.ledger.counts(work.backfill_id)
    done = sum(counts[state] for state in _WRITTEN)
    return done > 0 if gate is Gate.REVIEW else done == counts.total()


def _instead(approvals: Sequence[Approval], gate: Gate, last: Approval | None) -> str:
    found = last or next((one for one in reversed(approvals) if one.question.gate is gate), None)
    if found is None:
        return "nobody was asked"
    if found.decision is None:
        return f"somebody was asked on {found.asked_at:%Y-%m-%d %H:%M} UTC and has not answered"
    said = f"{found.decision} by {found.decided_by} on {found.decided_at:%Y-%m-%d %H:%M} UTC"
    return f"it was {said}" if last is not None else f"what was {said} was another content, or another revision"
