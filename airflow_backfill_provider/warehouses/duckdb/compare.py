"""Matching old and new rows by key, and proving on the way that the keys allow it."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.warehouses.base import RowDiff, Target
from airflow_backfill_provider.warehouses.duckdb.session import Session
from airflow_backfill_provider.warehouses.duckdb.sql import Buckets, Piece, differences, key_faults, row_counts
from airflow_backfill_provider.windows import Partition


def compare_pieces(
    session: Session,
    target: Target,
    compared: Sequence[str],
    old: Sequence[Piece],
    new: Sequence[Piece],
    partitions: Sequence[Partition],
) -> dict[str, RowDiff]:
    """The difference of each partition, by key; rows of one key are identical when the compared columns are.

    The counts prove the keys unique by themselves. A key with x old and y new rows makes x times y pairs, so pairs
    and rows alone add up to the rows of a side only when every key that both sides have is there once on each; and
    rows alone have unique keys when they are as many as their distinct keys. Partitions where that fails, as it does
    with a NULL key, are counted again for their key faults alone.
    """
    buckets = Buckets(partitions, [*old, *new])
    counts = [
        {buckets.key(bucket): rows for bucket, rows in session.run(row_counts(buckets, side))} for side in (old, new)
    ]
    diffs = {partition.key: RowDiff(0, 0) for partition in partitions}
    faulty = set()
    for bucket, pairs, with_old, with_new, identical, distinct_old, distinct_new in session.run(
        differences(buckets, target, compared, old, new)
    ):
        key = buckets.key(bucket)
        before, after = (side.get(key, 0) for side in counts)
        removed, added = pairs - with_new, pairs - with_old
        diffs[key] = RowDiff(before, after, identical, pairs - removed - added - identical, added, removed)
        if (before, after, removed, added) != (with_old, with_new, distinct_old, distinct_new):
            faulty.add(key)
    if faulty:
        faults = [
            {buckets.key(bucket): (absent, repeated) for bucket, absent, repeated in session.run(statement)}
            for statement in (key_faults(buckets, side, target.key) for side in (old, new))
        ]
        for key in faulty:
            (old_absent, old_repeated), (new_absent, new_repeated) = (side.get(key, (0, 0)) for side in faults)
            diffs[key] = RowDiff(
                old=diffs[key].old,
                new=diffs[key].new,
                old_null_keys=old_absent,
                new_null_keys=new_absent,
                old_duplicate_keys=old_repeated,
                new_duplicate_keys=new_repeated,
            )
    return diffs
