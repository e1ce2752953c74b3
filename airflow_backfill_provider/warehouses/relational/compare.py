"""Matching old and new rows by key, and proving on the way that the keys allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_backfill_provider.warehouses.base import Fingerprint, RowDiff, Target
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST, Dialect
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.statements import (
    Buckets,
    Piece,
    differences,
    key_faults,
    row_counts,
)
from airflow_backfill_provider.windows import Partition


def compare_pieces(
    dialect: Dialect,
    run: Run,
    target: Target,
    compared: Sequence[str],
    old: Sequence[Piece],
    new: Sequence[Piece],
    partitions: Sequence[Partition],
    method: str,
) -> dict[str, RowDiff]:
    """The difference of each partition, by key; rows of one key are identical when the compared columns are.

    The counts prove the keys unique by themselves where no row is alone: a key with x old and y new rows makes x times
    y pairs, so there are as many pairs as rows on both sides only when every key is there once on each. Partitions where
    a row is alone, or where the counts do not add up, are counted for their key faults as well.
    """
    buckets = Buckets(partitions, [*old, *new])
    counts = [{buckets.key(bucket): rows for bucket, rows in run(row_counts(buckets, side))} for side in (old, new)]
    whole = tuple(compared) == target.column_names  # else the digests are not those of whole rows

    def mark(rows: int, digest: str | None) -> Fingerprint | None:
        return Fingerprint(rows, digest or EMPTY_DIGEST, method) if whole else None

    diffs = {
        partition.key: RowDiff(0, 0, old_fingerprint=mark(0, None), new_fingerprint=mark(0, None))
        for partition in partitions
    }
    doubtful = set()
    for bucket, pairs, with_old, with_new, identical, old_digest, new_digest in run(
        differences(dialect, buckets, target, compared, old, new)
    ):
        key = buckets.key(bucket)
        before, after = (side.get(key, 0) for side in counts)
        removed, added = pairs - with_new, pairs - with_old
        diffs[key] = RowDiff(
            before,
            after,
            identical,
            pairs - removed - added - identical,
            added,
            removed,
            old_fingerprint=mark(before, old_digest),
            new_fingerprint=mark(after, new_digest),
        )
        if (before, after) != (pairs, pairs):
            doubtful.add(key)
    if doubtful:
        faults = [_faults(run, target, side, partitions, doubtful) for side in (old, new)]
        for key in doubtful:
            (old_absent, old_repeated), (new_absent, new_repeated) = (side.get(key, (0, 0)) for side in faults)
            if old_absent or old_repeated or new_absent or new_repeated:
                diffs[key] = RowDiff(
                    old=diffs[key].old,
                    new=diffs[key].new,
                    old_null_keys=old_absent,
                    new_null_keys=new_absent,
                    old_duplicate_keys=old_repeated,
                    new_duplicate_keys=new_repeated,
                )
    return diffs


def _faults(
    run: Run, target: Target, pieces: Sequence[Piece], partitions: Sequence[Partition], keys: set[str]
) -> dict[str, tuple[int, int]]:
    """Rows that lack a key and rows too many for theirs, of each of these partitions that has a row."""
    chosen = [replace(piece, partitions=own) for piece in pieces if (own := _chosen(piece.partitions, keys))]
    if not chosen:
        return {}
    buckets = Buckets(_chosen(partitions, keys), chosen)
    return {
        buckets.key(bucket): (absent, repeated)
        for bucket, absent, repeated in run(key_faults(buckets, chosen, target.key))
    }


def _chosen(partitions: Sequence[Partition], keys: set[str]) -> tuple[Partition, ...]:
    return tuple(partition for partition in partitions if partition.key in keys)
