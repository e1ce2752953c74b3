"""What a table's log says against recomputing from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_backfill_provider.warehouses.history import Commit, changed_in_place, soon_gone

DAY = timedelta(days=1)


def commit(version: int, operation: str, predicate: str = "", **metrics: Any) -> Commit:
    return Commit(version, datetime(2024, 1, version, tzinfo=UTC), operation, metrics, predicate)


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (commit(5, "UPDATE", numUpdatedRows="3"), True),
        (commit(5, "UPDATE", numUpdatedRows="0"), False),
        (commit(5, "DELETE"), True),
        (commit(5, "DELETE", numRemovedFiles="1", numDeletedRows="0"), True),
        (commit(5, "MERGE", numTargetRowsInserted="9", numTargetRowsUpdated="0", numTargetRowsDeleted="0"), False),
        (commit(5, "MERGE", num_target_rows_updated=0, num_target_rows_deleted=2), True),
        (commit(5, "WRITE", numOutputRows="3"), False),
        (commit(5, "OPTIMIZE"), False),
    ],
)
def test_only_rows_that_were_there_and_changed_count(one: Commit, counts: bool) -> None:
    assert bool(changed_in_place("raw.orders", [one], None, 9)) == counts


def test_the_sentence_counts_the_commits_and_names_the_last() -> None:
    commits = [commit(7, "UPDATE", "(day = 3)"), commit(3, "UPDATE"), commit(5, "DELETE"), commit(8, "UPDATE")]

    (found,) = changed_in_place("raw.orders", commits, datetime(2024, 1, 4, tzinfo=UTC), 7)

    assert "raw.orders was updated in place since the range first ran: 1 DELETE, 1 UPDATE" in found
    assert "the last at version 7 of 2024-01-07 00:00 UTC ((day = 3))" in found


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({}, []),
        ({"delta.deletedFileRetentionDuration": "interval 12 hours"}, ["for 12 hours"]),
        ({"delta.logRetentionDuration": "interval 1 hour 30 minutes"}, ["for 1.5 hours"]),
        ({"delta.deletedFileRetentionDuration": "interval 1 day"}, []),
        ({"delta.deletedFileRetentionDuration": "as long as it takes"}, []),
    ],
)
def test_a_retention_shorter_than_the_run_is_told(properties: dict[str, str], told: list[str]) -> None:
    found = soon_gone("raw.orders", properties, DAY)

    assert len(found) == len(told)
    assert all(words in sentence for words, sentence in zip(told, found, strict=True))


def test_a_week_by_default_is_not_enough_for_a_run_of_two() -> None:
    (found,) = soon_gone("raw.orders", {}, 14 * DAY)

    assert "raw.orders keeps what its earlier versions need for 7 days (delta.deletedFileRetentionDuration)" in found
    assert "the run may take 14 days" in found
