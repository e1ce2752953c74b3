"""The baseline: what the published range was when the plan was made, and must still be."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_backfill_provider.errors import TargetMoved
from airflow_backfill_provider.warehouses.base import Fingerprint


def require_equal(
    expected: Mapping[str, Fingerprint], found: Mapping[str, Fingerprint], claim: str, way_on: str = ""
) -> None:
    """Refuse when a partition is not what it was.

    :param way_on: what to do then; where the caller adds it, empty.
    :raises TargetMoved: with rows expected and found per partition.
    """
    moved = {key: (mark.rows, found[key].rows) for key, mark in expected.items() if found[key] != mark}
    if moved:
        counts = ", ".join(f"{key} had {old} rows, has {new}" for key, (old, new) in list(moved.items())[:5])
        raise TargetMoved(
            f"{claim}: {len(moved)} partitions differ ({counts}). Nothing was written. {way_on}".rstrip(),
            moved,
        )
