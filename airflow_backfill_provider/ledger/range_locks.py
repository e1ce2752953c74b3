"""Claims on (target, tenant, range): no instant of a target belongs to two backfills at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from airflow_backfill_provider.errors import RangeLocked
from airflow_backfill_provider.ledger.tables import RangeLockRow, TargetRow
from airflow_backfill_provider.windows import Window


def claim(
    connection: Connection, backfill_id: str, target: str, tenant: str, windows: Sequence[Window], *, at: datetime
) -> bool:
    """Claim the windows; False when they were all claimed by this backfill before.

    :raises RangeLocked: another backfill owns part of them. The caller's transaction must be rolled back.
    """
    lock_target(connection, target)
    taken = find_overlap(connection, target, tenant, windows, but_not=backfill_id)
    if taken is not None:
        owner, window = taken
        raise RangeLocked(
            f"Backfill {owner!r} owns {window} of {target!r}, which overlaps the range of backfill {backfill_id!r}. "
            f"`airflow safe-backfill status {owner}` shows how far it is: let it complete, roll it back, or let it "
            "expire if it is dead and has published nothing.",
            owner,
        )
    if holds(connection, backfill_id, windows):
        return False
    connection.execute(
        insert(RangeLockRow),
        [
            {
                "backfill_id": backfill_id,
                "target": target,
                "tenant": tenant,
                "window_start": window.start,
                "window_end": window.end,
                "claimed_at": at,
            }
            for window in union(windows)
        ],
    )
    return True


def lock_target(connection: Connection, target: str) -> None:
    """Wait until no other transaction is claiming a range of the target."""
    row = sqlite.insert(TargetRow) if connection.dialect.name == "sqlite" else postgresql.insert(TargetRow)
    connection.execute(row.values(target=target).on_conflict_do_nothing())
    connection.execute(select(TargetRow.target).where(TargetRow.target == target).with_for_update())


def find_overlap(
    connection: Connection, target: str, tenant: str, windows: Sequence[Window], *, but_not: str = ""
) -> tuple[str, Window] | None:
    """The first claim of another backfill that shares an instant with the windows: its owner and its window.

    A claim without a tenant is a claim on every tenant.
    """
    wanted = union(windows)
    if not wanted:
        return None
    query = (
        select(RangeLockRow.backfill_id, RangeLockRow.window_start, RangeLockRow.window_end)
        .where(
            RangeLockRow.target == target,
            RangeLockRow.backfill_id != but_not,
            RangeLockRow.window_start < wanted[-1].end,
            RangeLockRow.window_end > wanted[0].start,
        )
        .order_by(RangeLockRow.window_start, RangeLockRow.id)
    )
    if tenant:
        query = query.where(RangeLockRow.tenant.in_([tenant, ""]))
    ends = [window.end for window in wanted]
    for owner, start, end in connection.execute(query):
        claimed = Window(start, end)
        nearest = bisect_right(ends, start)
        if nearest < len(wanted) and wanted[nearest].overlaps(claimed):
            return owner, claimed
    return None


def holds(connection: Connection, backfill_id: str, windows: Sequence[Window]) -> bool:
    """Whether every instant of the windows is claimed by this backfill; False for no windows at all."""
    claimed = union(
        [
            Window(start, end)
            for start, end in connection.execute(
                select(RangeLockRow.window_start, RangeLockRow.window_end).where(
                    RangeLockRow.backfill_id == backfill_id
                )
            )
        ]
    )
    return bool(windows) and first_uncovered(claimed, windows) is None


def release(connection: Connection, backfill_id: str) -> bool:
    """Give every claim of the backfill back; False when it had none."""
    return connection.execute(delete(RangeLockRow).where(RangeLockRow.backfill_id == backfill_id)).rowcount > 0


def union(windows: Sequence[Window]) -> list[Window]:
    """The fewest windows that cover exactly the same instants, in order."""
    merged: list[Window] = []
    for window in sorted(windows):
        if merged and window.start <= merged[-1].end:
            merged[-1] = Window(merged[-1].start, max(merged[-1].end, window.end))
        else:
            merged.append(window)
    return merged


def first_uncovered(claimed: Sequence[Window], windows: Sequence[Window]) -> Window | None:
    """The first window that does not lie within one of ``claimed``, which is a result of :func:`union`."""
    ends = [window.end for window in claimed]
    for window in windows:
        nearest = bisect_right(ends, window.start)
        if nearest == len(claimed) or claimed[nearest].start > window.start or claimed[nearest].end < window.end:
            return window
    return None
