"""Claims on (target, tenant, range): no instant and no value of a target belongs to two at once, be they backfills or
runs of the scheduled pipeline.

A window and a value of one target always collide: nothing tells which rows they share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, and_, delete, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from airflow_backfill_provider.errors import RangeLocked
from airflow_backfill_provider.ledger import live_claims
from airflow_backfill_provider.ledger.records import LiveClaim, LiveRun, Restatement
from airflow_backfill_provider.ledger.spans import read_span, span_columns
from airflow_backfill_provider.ledger.tables import BackfillRow, RangeLockRow, TargetRow
from airflow_backfill_provider.windows import Span, Value, Window

Owner = TypeVar("Owner")

NOT_THIS_RUN = (
    "began at another moment, though it was not cleared since: most likely it is of another Airflow installation."
)
NAME_EACH = (
    "Give each installation that shares this ledger a name of its own, [safe_backfill] installation "
    "(AIRFLOW__SAFE_BACKFILL__INSTALLATION), on every host that runs tasks: then their runs have different ids."
)


def claim(
    connection: Connection, backfill_id: str, target: str, tenant: str, spans: Sequence[Span], *, at: datetime
) -> bool:
    """Claim the spans; False when they were all claimed by this backfill before.

    :raises RangeLocked: another backfill owns part of them, or a live run is writing it. The caller's transaction must
        be rolled back.
    """
    lock_target(connection, target)
    _require_no_backfill(connection, backfill_id, target, tenant, spans)
    live = find_live(connection, target, spans)
    if live is not None:
        raise RangeLocked(
            f"The {live.run} is writing {live.span} of {target!r} since {live.claimed_at:%Y-%m-%dT%H:%M:%SZ}, which "
            f"overlaps the range of backfill {backfill_id!r}. Nothing was claimed. Let that run end, then clear this task. "
            f"{_if_dead(live)}",
            live.run.claim_id,
        )
    if not spans or holds(connection, backfill_id, spans):
        return False
    _insert(connection, backfill_id, target, tenant, spans, at=at, reserved=False)
    return True


def begin_way_back(
    connection: Connection, backfill_id: str, target: str, tenant: str, spans: Sequence[Span], *, at: datetime
) -> bool:
    """Claim the spans for putting back what was there before; False when that had begun and has not ended.

    :raises RangeLocked: another backfill owns part of them, or a live run is writing it. The caller's transaction must
        be rolled back.
    """
    claim(connection, backfill_id, target, tenant, spans, at=at)
    if is_on_way_back(connection, backfill_id):
        return False
    _mark_way_back(connection, backfill_id, begun=True)
    return True


def end_way_back(connection: Connection, backfill_id: str) -> bool:
    """Let the claims be those of the backfill alone, which end with it; False when there was no way back."""
    if not is_on_way_back(connection, backfill_id):
        return False
    _mark_way_back(connection, backfill_id, begun=False)
    return True


def is_on_way_back(connection: Connection, backfill_id: str) -> bool:
    """Whether the backfill holds its range to put back what was there before."""
    lock = RangeLockRow
    query = select(lock.id).where(lock.backfill_id == backfill_id, lock.way_back.is_(True)).limit(1)
    return connection.execute(query).first() is not None


def _mark_way_back(connection: Connection, backfill_id: str, *, begun: bool) -> None:
    lock = RangeLockRow
    connection.execute(
        update(lock).where(lock.backfill_id == backfill_id, lock.reserved.is_(False)).values(way_back=begun)
    )


def reserve(
    connection: Connection, backfill_id: str, target: str, tenant: str, spans: Sequence[Span], *, at: datetime
) -> bool:
    """Keep other backfills out of the spans until this one ends, and live runs only once it claims them.

    False when there are none, or they were all reserved by this backfill before.

    :raises RangeLocked: another backfill owns part of them. The caller's transaction must be rolled back.
    """
    lock_target(connection, target)
    _require_no_backfill(connection, backfill_id, target, tenant, spans)
    if first_uncovered(union(list(_own(connection, backfill_id, reserved=True).values())), spans) is None:
        return False
    _insert(connection, backfill_id, target, tenant, spans, at=at, reserved=True)
    return True


def _insert(
    connection: Connection,
    backfill_id: str,
    target: str,
    tenant: str,
    spans: Sequence[Span],
    *,
    at: datetime,
    reserved: bool,
) -> None:
    connection.execute(
        insert(RangeLockRow),
        [
            {
                "backfill_id": backfill_id,
                "target": target,
                "tenant": tenant,
                **span_columns(span),
                "claimed_at": at,
                "reserved": reserved,
            }
            for span in union(spans)
        ],
    )


def _require_no_backfill(
    connection: Connection, backfill_id: str, target: str, tenant: str, spans: Sequence[Span]
) -> None:
    """:raises RangeLocked: another backfill owns part of the spans."""
    taken = find_overlap(connection, target, tenant, spans, but_not=backfill_id, or_reserved=True)
    if taken is not None:
        owner, span = taken
        raise RangeLocked(
            f"Backfill {owner!r} owns {span} of {target!r}, which overlaps the range of backfill {backfill_id!r}. "
            f"`airflow safe-backfill status {owner}` shows how far it is: let it complete or roll it back. One that is dead and "
            f"has published nothing is given up by `airflow safe-backfill abandon {owner} --reason …`.",
            owner,
        )


def claim_live(connection: Connection, run: LiveRun, target: str, spans: Sequence[Span], *, at: datetime) -> None:
    """Claim the spans for a live run, in place of whatever an earlier attempt of it holds.

    :raises RangeLocked: a backfill, or another live run, owns part of them. The caller's transaction must be rolled back.
    """
    lock_target(connection, target)
    taken = find_overlap(connection, target, "", spans)
    if taken is not None:
        owner, span = taken
        raise RangeLocked(
            f"Backfill {owner!r} owns {span} of {target!r}, which the {run} is about to write. Nothing was written. "
            f"`airflow safe-backfill status {owner}` shows how far it is; once it has ended, a retry of this task, or "
            f"clearing it, goes on. One that is dead and has published nothing is given up by `airflow safe-backfill "
            f"abandon {owner} --reason …`.",
            owner,
        )
    live = find_live(connection, target, spans, but_not=run.claim_id)
    if live is not None:
        raise RangeLocked(
            f"The {live.run} is writing {live.span} of {target!r} since {live.claimed_at:%Y-%m-%dT%H:%M:%SZ}, which "
            f"the {run} is about to write too. Nothing was written. {_if_dead(live)}",
            live.run.claim_id,
        )
    _require_same_run(connection, run)
    live_claims.replace(connection, run, target, union(spans), at=at)


def _require_same_run(connection: Connection, run: LiveRun) -> None:
    """:raises RangeLocked: what the claim id holds was claimed by a run of these ids that is not this one."""
    for live in live_claims.read(connection, claim_id=run.claim_id):
        if run.origin.is_another_than(live.run.origin):
            raise RangeLocked(
                f"The {live.run} is writing {live.span} of {live.target!r} since {live.claimed_at:%Y-%m-%dT%H:%M:%SZ}. It has the ids "
                f"of this run, and {NOT_THIS_RUN} Nothing was written. {NAME_EACH} Do not clear this task before: that would take "
                f"the claim over. If it was this run before it was deleted and made anew, release the claim by `airflow "
                f"safe-backfill abandon {live.run.claim_id} --reason …`.",
                live.run.claim_id,
            )


def _if_dead(live: LiveClaim) -> str:
    return (
        f"If it is dead, clear its task, which takes its claim over, or release the claim by `airflow safe-backfill "
        f"abandon {live.run.claim_id} --reason …`."
    )


def lock_target(connection: Connection, target: str) -> None:
    """Wait until no other transaction is claiming a range of the target."""
    row = sqlite.insert(TargetRow) if connection.dialect.name == "sqlite" else postgresql.insert(TargetRow)
    connection.execute(row.values(target=target).on_conflict_do_nothing())
    connection.execute(select(TargetRow.target).where(TargetRow.target == target).with_for_update())


def find_overlap(
    connection: Connection,
    target: str,
    tenant: str,
    spans: Sequence[Span],
    *,
    but_not: str = "",
    or_reserved: bool = False,
) -> tuple[str, Span] | None:
    """The first claim of another backfill that shares an instant or a value with the spans: its owner and its span.

    A claim without a tenant is a claim on every tenant. With ``or_reserved`` what is only reserved counts as well.
    """
    if not spans:
        return None
    windows, values = _apart(spans)
    query = (
        select(RangeLockRow.backfill_id, RangeLockRow.window_start, RangeLockRow.window_end, RangeLockRow.value)
        .where(RangeLockRow.target == target, RangeLockRow.backfill_id != but_not)
        .order_by(RangeLockRow.window_start, RangeLockRow.id)
    )
    if not or_reserved:
        query = query.where(RangeLockRow.reserved.is_(False))
    if not values:
        around = and_(RangeLockRow.window_start < windows[-1].end, RangeLockRow.window_end > windows[0].start)
        query = query.where(or_(RangeLockRow.value.is_not(None), around))
    if tenant:
        query = query.where(RangeLockRow.tenant.in_([tenant, ""]))
    claimed = ((owner, read_span(start, end, value)) for owner, start, end, value in connection.execute(query))
    return _first_overlap(claimed, spans)


def restating(connection: Connection, target: str, spans: Sequence[Span]) -> list[Restatement]:
    """Every claim of a backfill that shares an instant or a value with the spans, oldest first."""
    lock, owner = RangeLockRow, BackfillRow
    query = (
        select(
            lock.window_start, lock.window_end, lock.value, lock.claimed_at, lock.backfill_id, owner.name, owner.state,
            owner.dag_id, owner.run_id,
        )
        .join(owner, owner.backfill_id == lock.backfill_id)
        .where(lock.target == target, lock.reserved.is_(False))
        .order_by(lock.claimed_at, lock.id)
    )  # fmt: skip
    claims = [
        Restatement(read_span(start, end, value), since, backfill_id, name, state, dag_id, run_id)
        for start, end, value, since, backfill_id, name, state, dag_id, run_id in connection.execute(query)
    ]
    return [claim for claim in claims if _first_overlap([(claim, claim.span)], spans) is not None]


def find_live(connection: Connection, target: str, spans: Sequence[Span], *, but_not: str = "") -> LiveClaim | None:
    """The first claim of another live run that shares an instant or a value with the spans."""
    claims = (claim for claim in live_claims.read(connection, target) if claim.run.claim_id != but_not)
    found = _first_overlap(((claim, claim.span) for claim in claims), spans)
    return None if found is None else found[0]


def _first_overlap(claimed: Iterable[tuple[Owner, Span]], spans: Sequence[Span]) -> tuple[Owner, Span] | None:
    windows, values = _apart(spans)
    ends = [window.end for window in windows]
    for owner, span in claimed:
        if isinstance(span, Value):
            if windows or span in values:
                return owner, span
            continue
        nearest = bisect_right(ends, span.start)
        if values or (nearest < len(windows) and windows[nearest].overlaps(span)):
            return owner, span
    return None


def holds(connection: Connection, backfill_id: str, spans: Sequence[Span]) -> bool:
    """Whether every instant and value of the spans is claimed by this backfill; False for no spans at all."""
    claimed = union(list(_own(connection, backfill_id, reserved=False).values()))
    return bool(spans) and first_uncovered(claimed, spans) is None


def release(connection: Connection, backfill_id: str) -> bool:
    """Give every claim of the backfill back; False when it had none."""
    return connection.execute(delete(RangeLockRow).where(RangeLockRow.backfill_id == backfill_id)).rowcount > 0


def release_reserved(connection: Connection, backfill_id: str) -> list[Span]:
    """Give back the claims of the backfill that lie within what it reserved, and no reservation; what it gave back."""
    reserved = union(list(_own(connection, backfill_id, reserved=True).values()))
    claims = _own(connection, backfill_id, reserved=False)
    within = [number for number, span in claims.items() if first_uncovered(reserved, [span]) is None]
    for number in within:
        connection.execute(delete(RangeLockRow).where(RangeLockRow.id == number))
    return union([claims[number] for number in within])


def _own(connection: Connection, backfill_id: str, *, reserved: bool) -> dict[int, Span]:
    """What the backfill has claimed, or only reserved, by the number of the row."""
    lock = RangeLockRow
    rows = connection.execute(
        select(lock.id, lock.window_start, lock.window_end, lock.value).where(
            lock.backfill_id == backfill_id, lock.reserved.is_(reserved)
        )
    )
    return {number: read_span(start, end, value) for number, start, end, value in rows}


def union(spans: Sequence[Span]) -> list[Span]:
    """The fewest spans that cover exactly the same instants and values, in order."""
    windows, values = _apart(spans)
    return [*windows, *sorted(values)]


def first_uncovered(claimed: Sequence[Span], spans: Sequence[Span]) -> Span | None:
    """The first span that does not lie within one of ``claimed``."""
    windows, values = _apart(claimed)
    ends = [window.end for window in windows]
    for span in spans:
        if isinstance(span, Value):
            if span not in values:
                return span
            continue
        nearest = bisect_right(ends, span.start)
        if nearest == len(windows) or windows[nearest].start > span.start or windows[nearest].end < span.end:
            return span
    return None


def _apart(spans: Sequence[Span]) -> tuple[list[Window], set[Value]]:
    """The windows merged and in order, and the values."""
    merged: list[Window] = []
    for window in sorted(span for span in spans if isinstance(span, Window)):
        if merged and window.start <= merged[-1].end:
            merged[-1] = Window(merged[-1].start, max(merged[-1].end, window.end))
        else:
            merged.append(window)
    return merged, {span for span in spans if isinstance(span, Value)}
