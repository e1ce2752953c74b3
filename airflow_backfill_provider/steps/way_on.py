"""How a backfill goes on from where it is: what it waits for, and the command a person gives next."""

from __future__ import annotations

import json
from shlex import quote

from airflow_backfill_provider.errors import BudgetExceeded, WaitedTooLong
from airflow_backfill_provider.ledger.records import BackfillRecord
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import MOVED_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.request import Mode, conf_of
from airflow_backfill_provider.steps.pool_probe import is_probe_left_out
from airflow_backfill_provider.steps.stored import stored_plan


def clear_command(backfill: BackfillRecord, *, only_failed: bool = True) -> str:
    """The command that runs the failed tasks of the backfill's run again, or all of them; what is finished is reused."""
    what = "--only-failed -y" if only_failed else "-y"
    return f"airflow dags clear {backfill.dag_id} --run-id {quote(backfill.run_id)} {what}"


def clear_after_end(ledger: Ledger, backfill: BackfillRecord) -> str:
    """The command that goes on with a run that ended: of all its tasks, where the failed ones alone would refuse to."""
    needs_scope = is_probe_left_out(ledger, backfill) or _stopped_by(ledger, backfill) == BudgetExceeded.__name__
    return clear_command(backfill, only_failed=not needs_scope)


def once_lifted(ledger: Ledger, backfill: BackfillRecord) -> str:
    """How a backfill goes on that neither the switch nor a pause holds any more."""
    again = clear_after_end(ledger, backfill)
    match _stopped_by(ledger, backfill):
        case BudgetExceeded.__name__:
            return (
                f"A budget of its spec is used up. Raise it, then: {again} Or give it up: airflow safe-backfill abandon "
                f'{backfill.backfill_id} --reason "…"'
            )
        case WaitedTooLong.__name__:
            return f"It waited for others for longer than give_up_after. Once they have room: {again}"
        case _:
            return f"Go on with: {again}"


def _stopped_by(ledger: Ledger, backfill: BackfillRecord) -> str | None:
    """The name of the error that halted the backfill; None where it is not halted, or an earlier version did not record it."""
    if backfill.state is not BackfillState.HALTED:
        return None
    halts = [move for move in ledger.events(backfill.backfill_id, MOVED_EVENT) if move.detail["to"] == backfill.state]
    return halts[-1].detail.get("error") if halts else None


def rollback_command(backfill: BackfillRecord, **asked: bool) -> str:
    """The command that puts the old rows back, with its spec and without; ``asked`` is what it is told besides the id."""
    conf: dict[str, object] = {"backfill_id": backfill.backfill_id, **asked}
    flags = "".join(f" --{name.replace('_', '-')}" for name, is_asked in asked.items() if is_asked)
    return (
        f"airflow dags trigger rollback__{backfill.name} --conf '{json.dumps(conf)}' "
        f"Without its spec: airflow safe-backfill rollback {backfill.backfill_id}{flags}"
    )


def put_back_too(backfill: BackfillRecord) -> str:
    """What to do when a commit came after the backfill was rolled back."""
    return f"Put the old rows back there too: {rollback_command(backfill)}"


def may_still_commit(backfill: BackfillRecord) -> str:
    """What holds back whoever wants to change or end a backfill that is publishing, and the first thing to do."""
    return (
        f"Backfill {backfill.backfill_id} is publishing. A publish of it is under way, or died, and its commit may still "
        f"happen. Nothing was changed. Its receipt tells once atomic_publish runs again: {clear_command(backfill)} If neither the "
        "task nor a statement of it in the warehouse runs any more,"
    )


def published_so_far(ledger: Ledger, backfill_id: str) -> str:
    """What consumers see of a backfill that stopped, as the start of a sentence: units may be published before the others."""
    counts = ledger.counts(backfill_id)
    if not (published := counts[PartitionState.PUBLISHED]):
        return "Nothing was published"
    return f"{published} of {sum(counts.values())} partitions were published before and stay so, the others were not published"


def rebase(backfill_id: str) -> str:
    """What recomputes the partitions that moved since the plan was made."""
    return f"Trigger the DAG with {conf_of(backfill_id, 'rebase')} to recompute exactly these."


def after_a_no(plan: Plan, clear: str) -> str:
    """What to do after a check said no. ``clear`` clears the task that did, as the end of a sentence: it computes anew, by the plan."""
    anew = f"trigger the DAG with {conf_of(plan.backfill_id, 'restage')}"
    check = "If a check is wrong, mend it in the spec and clear scope_partitions with downstream."
    if plan.source_versions:
        return f"{check} If the SQL is wrong, or the data that it reads, mend it and {anew}: the plan pins the versions of its sources."
    return f"If the data is wrong, mend it and {clear} {check} If the SQL is wrong, mend it and {anew}."


def plan_anew(ledger: Ledger, backfill_id: str, *, is_published: bool) -> str:
    """The same during a publish, where a plan that is published in part is not revised any more."""
    if not is_published:
        return rebase(backfill_id)
    return (
        f"{published_so_far(ledger, backfill_id)}, so the plan cannot be revised any more. Mend the rows that moved and clear "
        f"atomic_publish, or put the old rows back: {rollback_command(ledger.backfill(backfill_id))}"
    )


def way_on(ledger: Ledger, backfill: BackfillRecord) -> str:
    """One sentence or two: what the state means for whoever waits, and what to do."""
    found, again = backfill.backfill_id, clear_after_end(ledger, backfill)
    rollback = rollback_command(backfill)
    match backfill.state:
        case BackfillState.PLANNED | BackfillState.RUNNING:
            return f"Its run goes on by itself. If its tasks failed, or its worker died: {again}"
        case BackfillState.AWAITING_APPROVAL:
            return f"It waits for a person's answer, under Required Actions in the UI. If the task that asks is gone: {again}"
        case BackfillState.VALIDATED if backfill.mode == Mode.STAGE:
            return (
                f"Everything is staged and validated, and waits to be published: "
                f"""airflow dags trigger {backfill.dag_id} --conf '{{"backfill_id": "{found}", "mode": "publish"}}'"""
            )
        case BackfillState.VALIDATED:
            return f"Everything is validated; its run publishes next. If that failed: {again}"
        case BackfillState.PUBLISHING:
            return f"A publish is under way. If its task is gone, its receipt tells whether it happened: {again}"
        case BackfillState.PUBLISHED:
            return f"It is published; its run verifies and closes it. If that failed: {again}"
        case BackfillState.HALTED if _stopped_by(ledger, backfill) in _LIFTED_BY_NO_SIGNAL:
            return once_lifted(ledger, backfill)
        case BackfillState.HALTED:
            return (
                f"It was stopped. Lift the stop (airflow safe-backfill resume {backfill.name}, or airflow dags unpause {backfill.dag_id}), "
                f"then: {again}"
            )
        case BackfillState.FAILED:
            return f"Mend what made it fail, then: {again}"
        case BackfillState.REJECTED:
            asked_again = f"If a person said no, or nobody answered, this asks again: {again}"
            return f"{asked_again} {after_a_no(stored_plan(ledger, found), 'do the same.')}"
        case BackfillState.PUBLISHED_UNVERIFIED if _is_mixture(ledger, backfill):
            return f"It was rolled back, and a commit of it came after that. {put_back_too(backfill)}"
        case BackfillState.PUBLISHED_UNVERIFIED if ledger.is_on_way_back(found):
            return f"Its rollback is under way, or broke off. Let it run to its end, or trigger it again: {rollback}"
        case BackfillState.PUBLISHED_UNVERIFIED:
            return (
                f"The range does not read back as what was staged. Mend the rows, then: {again} Or take it as it is: "
                f'airflow safe-backfill accept {found} --reason "…" Or put the old rows back: {rollback}'
            )
        case BackfillState.COMPLETED:
            return f"It is done. To undo it: {rollback}"
        case BackfillState.ROLLED_BACK | BackfillState.EXPIRED:
            return f"It is over. Publishing the range takes a new backfill: airflow dags trigger {backfill.dag_id}"


_LIFTED_BY_NO_SIGNAL = {BudgetExceeded.__name__, WaitedTooLong.__name__}


def _is_mixture(ledger: Ledger, backfill: BackfillRecord) -> bool:
    """Whether some of its partitions are put back, and some are published."""
    counts = ledger.counts(backfill.backfill_id)
    return bool(counts[PartitionState.ROLLED_BACK] and counts[PartitionState.PUBLISHED])
