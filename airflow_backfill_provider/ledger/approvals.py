"""Questions to people and their answers, inside a transaction that someone else began."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger import backfill_rows, trail
from airflow_backfill_provider.ledger.records import Approval, Decision, Gate, Question
from airflow_backfill_provider.ledger.states import BACKFILL_MOVES, TERMINAL, BackfillState
from airflow_backfill_provider.ledger.tables import ApprovalRow


def ask(connection: Connection, backfill_id: str, question: Question, *, at: datetime, by: str) -> None:
    """Record the question and let the backfill wait for its answer; the same one of the same run is asked once."""
    backfill = backfill_rows.lock(connection, backfill_id)
    backfill_rows.require_revision(backfill, question.revision)
    if _open(connection, backfill_id, question) is None:
        _insert(connection, backfill_id, question, at=at)
        trail.add_event(connection, backfill_id, "approval.asked", at=at, by=by, detail=_detail(question))
    if backfill_rows.move(connection, backfill, BackfillState.AWAITING_APPROVAL, at=at):
        reason = f"asked about the {question.gate}"
        detail = {"from": backfill.state.value, "to": BackfillState.AWAITING_APPROVAL.value, "reason": reason}
        trail.add_event(connection, backfill_id, trail.MOVED_EVENT, at=at, by=by, detail=detail)


def decide(
    connection: Connection,
    backfill_id: str,
    question: Question,
    decision: Decision,
    *,
    decided_by: str,
    reason: str,
    at: datetime,
    by: str,
) -> None:
    """Record what became of a question, and let the backfill go where that leads.

    :raises LedgerError: the backfill is over, or its plan was revised since the question was asked.
    """
    backfill = backfill_rows.lock(connection, backfill_id)
    if backfill.state in TERMINAL:
        raise LedgerError(
            f"Backfill {backfill_id!r} is {backfill.state.value!r}: it is over, so the answer was not recorded. Trigger the DAG anew."
        )
    backfill_rows.require_revision(backfill, question.revision)
    row_id = _open(connection, backfill_id, question)
    if row_id is None:
        row_id = _insert(connection, backfill_id, question, at=at)
    values = {"decision": decision, "decided_at": at, "decided_by": decided_by, "reason": reason}
    connection.execute(update(ApprovalRow).where(ApprovalRow.id == row_id).values(**values))
    detail = {**_detail(question), "decision": decision.value, "decided_by": decided_by, "reason": reason}
    trail.add_event(connection, backfill_id, "approval.decided", at=at, by=by, detail=detail)
    to = _ends_in(question.gate, decision)
    waits = backfill.state is BackfillState.AWAITING_APPROVAL
    if to in BACKFILL_MOVES[backfill.state] and (waits or to is BackfillState.REJECTED):
        backfill_rows.move(connection, backfill, to, at=at)
        said = f"{decision.value.replace('_', ' ')} by {decided_by}" + (f": {reason}" if reason else "")
        detail = {"from": backfill.state.value, "to": to.value, "reason": said}
        trail.add_event(connection, backfill_id, trail.MOVED_EVENT, at=at, by=by, detail=detail)


def read(connection: Connection, backfill_id: str) -> list[Approval]:
    """Every question about the backfill, the oldest first; those that were decided in the order of the decision."""
    row = ApprovalRow
    query = select(
        row.gate, row.content, row.revision, row.shown, row.asked_for, row.run_id,
        row.clear_number, row.asked_at, row.decision, row.decided_at, row.decided_by, row.reason,
    ).where(row.backfill_id == backfill_id)  # fmt: skip
    found = [
        Approval(Question(*asked), asked_at, decision, decided_at, by, reason)
        for *asked, asked_at, decision, decided_at, by, reason in connection.execute(query.order_by(row.id))
    ]
    return sorted(found, key=lambda approval: approval.decided_at or approval.asked_at)


def _ends_in(gate: Gate, decision: Decision) -> BackfillState:
    if decision in (Decision.REJECTED, Decision.TIMED_OUT):
        return BackfillState.REJECTED
    return BackfillState.VALIDATED if gate is Gate.PUBLISH else BackfillState.RUNNING


def _open(connection: Connection, backfill_id: str, question: Question) -> int | None:
    row = ApprovalRow
    return connection.scalar(
        select(row.id)
        .where(
            row.backfill_id == backfill_id,
            row.gate == question.gate,
            row.content == question.content,
            row.revision == question.revision,
            row.run_id == question.run_id,
            row.clear_number == question.clear_number,
            row.decision.is_(None),
        )
        .order_by(row.id.desc())
        .limit(1)
    )


def _insert(connection: Connection, backfill_id: str, question: Question, *, at: datetime) -> int:
    values = {
        "backfill_id": backfill_id,
        "gate": question.gate,
        "content": question.content,
        "revision": question.revision,
        "shown": question.shown,
        "asked_for": question.asked_for,
        "run_id": question.run_id,
        "clear_number": question.clear_number,
        "asked_at": at,
        "decided_by": "",
        "reason": "",
    }
    added = connection.execute(insert(ApprovalRow).values(**values).returning(ApprovalRow.id))
    return int(added.scalar_one())


def _detail(question: Question) -> dict[str, object]:
    return {
        "gate": question.gate.value,
        "content": question.content,
        "revision": question.revision,
        "asked_for": question.asked_for,
        "run_id": question.run_id,
    }
