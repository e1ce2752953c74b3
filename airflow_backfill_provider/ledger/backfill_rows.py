"""Rows of backfills and their plans, inside a transaction that someone else began."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger.moves import apply_move, backfills
from airflow_backfill_provider.ledger.records import BackfillRecord, NewBackfill, Origin, StoredPlan
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.tables import BackfillRow, PlanRow


def insert_backfill(connection: Connection, new: NewBackfill, *, at: datetime) -> None:
    """Add a planned backfill with revision 1 of its plan.

    :raises LedgerError: there is one with that id.
    """
    if find(connection, new.backfill_id) is not None:
        raise LedgerError(
            f"Backfill {new.backfill_id!r} is in the ledger already; it is opened once and then resumed. "
            "Clear its tasks to resume it, or trigger a new run for a new backfill."
        )
    connection.execute(
        insert(BackfillRow).values(
            backfill_id=new.backfill_id,
            name=new.name,
            target=new.target,
            tenant=new.tenant,
            dag_id=new.dag_id,
            run_id=new.run_id,
            conn_id=new.conn_id,
            mode=new.mode,
            state=BackfillState.PLANNED,
            reason=new.reason,
            requested_by=new.requested_by,
            revision=1,
            created_at=at,
            updated_at=at,
            **asdict(new.origin),
        )
    )
    insert_plan(connection, new.backfill_id, 1, new.plan)


def insert_plan(connection: Connection, backfill_id: str, revision: int, plan: StoredPlan) -> None:
    """Add one plan revision; earlier ones stay."""
    connection.execute(
        insert(PlanRow).values(
            backfill_id=backfill_id,
            revision=revision,
            plan_hash=plan.plan_hash,
            intent_hash=plan.intent_hash,
            spec_hash=plan.spec_hash,
            document=plan.document,
            created_at=plan.created_at,
            requested_by=plan.requested_by,
        )
    )


def lock(connection: Connection, backfill_id: str) -> BackfillRecord:
    """Read a backfill and let no other transaction write to it until this one ends.

    :raises LedgerError: there is none with that id.
    """
    return _known(
        connection.execute(
            select(BackfillRow).where(BackfillRow.backfill_id == backfill_id).with_for_update()
        ).one_or_none(),
        backfill_id,
    )


def require_revision(backfill: BackfillRecord, revision: int | None) -> None:
    """:raises LedgerError: the plan is not at this revision any more."""
    if revision is not None and backfill.revision != revision:
        raise LedgerError(
            f"The plan of backfill {backfill.backfill_id!r} was revised meanwhile: this work rests on revision {revision}, "
            f"and it has {backfill.revision}. Nothing was recorded; clear the task to work under the newer plan."
        )


def move(connection: Connection, backfill: BackfillRecord, to: BackfillState, *, at: datetime) -> bool:
    """Move a backfill as it was read; False when it is there already.

    :raises TransitionRefused: the move is not allowed.
    """
    if backfill.state is to:
        return False
    apply_move(connection, backfills(), {backfill.backfill_id: backfill.state}, to, {"updated_at": at})
    return True


def change(connection: Connection, backfill_id: str, *, at: datetime, **values: Any) -> None:
    """Set columns other than the state."""
    connection.execute(
        update(BackfillRow).where(BackfillRow.backfill_id == backfill_id).values(**values, updated_at=at)
    )


def read(connection: Connection, backfill_id: str) -> BackfillRecord:
    """Read a backfill.

    :raises LedgerError: there is none with that id.
    """
    row = connection.execute(select(BackfillRow).where(BackfillRow.backfill_id == backfill_id)).one_or_none()
    return _known(row, backfill_id)


def find(connection: Connection, backfill_id: str) -> BackfillRecord | None:
    """Read a backfill, or None."""
    row = connection.execute(select(BackfillRow).where(BackfillRow.backfill_id == backfill_id)).one_or_none()
    return None if row is None else _record(row)


def newest(
    connection: Connection,
    *,
    name: str | None,
    target: str | None,
    limit: int | None,
    states: Collection[BackfillState] | None = None,
) -> list[BackfillRecord]:
    """The newest backfills, newest first; all of them without a limit."""
    query = select(BackfillRow).order_by(BackfillRow.created_at.desc(), BackfillRow.backfill_id).limit(limit)
    if name is not None:
        query = query.where(BackfillRow.name == name)
    if target is not None:
        query = query.where(BackfillRow.target == target)
    if states is not None:
        query = query.where(BackfillRow.state.in_(states))
    return [_record(row) for row in connection.execute(query)]


def names(connection: Connection) -> frozenset[str]:
    """The name of every spec that was ever backfilled."""
    return frozenset(connection.scalars(select(BackfillRow.name).distinct()))


def connections(connection: Connection) -> tuple[str, ...]:
    """Every Airflow connection that a backfill was opened with, in order."""
    found = connection.scalars(select(BackfillRow.conn_id).where(BackfillRow.conn_id != "").distinct())
    return tuple(sorted(found))


def read_plan(connection: Connection, backfill_id: str, revision: int | None = None) -> StoredPlan:
    """One revision of a plan; the newest by default.

    :raises LedgerError: there is no such backfill or revision.
    """
    query = (
        select(
            PlanRow.revision,
            PlanRow.plan_hash,
            PlanRow.intent_hash,
            PlanRow.spec_hash,
            PlanRow.document,
            PlanRow.created_at,
            PlanRow.requested_by,
        )
        .where(PlanRow.backfill_id == backfill_id)
        .order_by(PlanRow.revision.desc())
        .limit(1)
    )
    if revision is not None:
        query = query.where(PlanRow.revision == revision)
    row = connection.execute(query).one_or_none()
    if row is None:
        backfill = read(connection, backfill_id)
        raise LedgerError(f"Backfill {backfill_id!r} has no plan revision {revision}; it has 1 to {backfill.revision}.")
    return StoredPlan(*row)


def read_requesters(connection: Connection, backfill: BackfillRecord) -> frozenset[str]:
    """Whoever asked for the backfill or for a revision of its plan."""
    asked = connection.scalars(select(PlanRow.requested_by).where(PlanRow.backfill_id == backfill.backfill_id))
    return frozenset({backfill.requested_by, *asked} - {""})


def read_hashes(connection: Connection, backfill: BackfillRecord) -> dict[str, str]:
    """The hashes of the newest plan, without its document, which may be large."""
    row = connection.execute(
        select(PlanRow.plan_hash, PlanRow.intent_hash, PlanRow.spec_hash).where(
            PlanRow.backfill_id == backfill.backfill_id, PlanRow.revision == backfill.revision
        )
    ).one()
    return dict(row._mapping)


def _known(row: Row[Any] | None, backfill_id: str) -> BackfillRecord:
    if row is None:
        raise LedgerError(
            f"The ledger holds no backfill {backfill_id!r}. `airflow safe-backfill list` shows those it holds."
        )
    return _record(row)


def _record(row: Row[Any]) -> BackfillRecord:
    columns = dict(row._mapping)
    origin = Origin(columns.pop("installation"), columns.pop("run_started_at"), columns.pop("clear_number"))
    return BackfillRecord(
        **{**columns, "backup_fingerprints": columns["backup_fingerprints"] or {}, "origin": origin},
    )
