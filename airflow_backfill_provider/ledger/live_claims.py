"""Which windows and values the runs of the scheduled pipeline hold while they write; a claim is for every tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from airflow_backfill_provider.ledger.records import GivenUpClaim, LiveClaim, LiveRun, Origin
from airflow_backfill_provider.ledger.spans import read_span, span_columns
from airflow_backfill_provider.ledger.tables import GivenUpClaimRow, LiveClaimRow
from airflow_backfill_provider.windows import Span


def replace(connection: Connection, run: LiveRun, target: str, spans: Sequence[Span], *, at: datetime) -> None:
    """Make these spans all that the run holds, whatever an earlier attempt of it left."""
    release(connection, run.claim_id)
    connection.execute(
        insert(LiveClaimRow),
        [
            {
                "claim_id": run.claim_id,
                "dag_id": run.dag_id,
                "run_id": run.run_id,
                "task_id": run.task_id,
                "attempt": run.attempt,
                "target": target,
                **span_columns(span),
                "claimed_at": at,
                **asdict(run.origin),
            }
            for span in spans
        ],
    )


def release(connection: Connection, claim_id: str, attempt: int | None = None) -> bool:
    """Give the claims of a live run back; with ``attempt`` only those of that attempt. False when there are none."""
    query = delete(LiveClaimRow).where(LiveClaimRow.claim_id == claim_id)
    if attempt is not None:
        query = query.where(LiveClaimRow.attempt == attempt)
    return connection.execute(query).rowcount > 0


def give_up(connection: Connection, claim_id: str, *, at: datetime, by: str, reason: str) -> bool:
    """Give the claims of a live run back as those of a dead one, and keep who did so and why; False when there are none."""
    held = read(connection, claim_id=claim_id)
    if not held:
        return False
    run = held[0].run
    connection.execute(
        insert(GivenUpClaimRow).values(
            claim_id=claim_id,
            dag_id=run.dag_id,
            run_id=run.run_id,
            task_id=run.task_id,
            installation=run.origin.installation,
            held="; ".join(f"{claim.target} {claim.span}" for claim in held),
            claimed_at=held[0].claimed_at,
            at=at,
            actor=by,
            reason=reason,
        )
    )
    return release(connection, claim_id)


def read_given_up(connection: Connection, *, limit: int) -> list[GivenUpClaim]:
    """The claims that were given up last, newest first."""
    row = GivenUpClaimRow
    query = (
        select(
            row.claim_id, row.dag_id, row.run_id, row.task_id, row.installation, row.held, row.claimed_at, row.at, row.actor,
            row.reason,
        )
        .order_by(row.id.desc())
        .limit(limit)
    )  # fmt: skip
    return [
        GivenUpClaim(LiveRun(claim_id, dag_id, run_id, task_id, 0, Origin(installation)), *told)
        for claim_id, dag_id, run_id, task_id, installation, *told in connection.execute(query)
    ]


def read(connection: Connection, target: str | None = None, *, claim_id: str | None = None) -> list[LiveClaim]:
    """What is held, of one target or of all, by one claim or by all, oldest first."""
    row = LiveClaimRow
    query = select(
        row.claim_id, row.dag_id, row.run_id, row.task_id, row.attempt, row.target, row.claimed_at,
        row.window_start, row.window_end, row.value, row.installation, row.run_started_at, row.clear_number,
    ).order_by(row.claimed_at, row.id)  # fmt: skip
    if target is not None:
        query = query.where(row.target == target)
    if claim_id is not None:
        query = query.where(row.claim_id == claim_id)
    return [
        LiveClaim(
            LiveRun(claim_id, dag_id, run_id, task_id, attempt, Origin(*origin)),
            target,
            read_span(start, end, value),
            at,
        )
        for claim_id, dag_id, run_id, task_id, attempt, target, at, start, end, value, *origin in connection.execute(
            query
        )
    ]
