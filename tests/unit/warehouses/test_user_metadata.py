"""Receipts in a commit's own metadata: each is of its own attempt, and what others keep there is none."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest

from airflow_backfill_provider.warehouses import user_metadata
from airflow_backfill_provider.warehouses.base import Action, Backup, Publication
from airflow_backfill_provider.windows import Grain, partition_at

AT = datetime(2024, 1, 5, 12, tzinfo=UTC)
DAY = partition_at(date(2024, 1, 2), Grain.DAY)


def written(backfill_id: str, attempt: str) -> str:
    publication = Publication(backfill_id, Action.ROLLBACK, "p1", (DAY,), Backup("somewhere"), {}, {})
    return user_metadata.written(publication, attempt, 3, 4)


def test_a_receipt_comes_back_as_it_was_written() -> None:
    ((attempt, receipt),) = user_metadata.receipts([(7, AT, written("b1", "first"))])

    assert attempt == "first"
    assert (receipt.sequence, receipt.backfill_id, receipt.action) == (7, "b1", Action.ROLLBACK)
    assert (receipt.plan_hash, receipt.keys, receipt.committed_at) == ("p1", ("2024-01-02",), AT)
    assert (receipt.deleted, receipt.inserted) == (3, 4)


def test_the_receipt_of_an_earlier_attempt_is_not_taken_for_that_of_a_commit_that_never_happened() -> None:
    commits = [(2, AT, written("b2", "second")), (1, AT, written("b1", "first"))]

    found = user_metadata.of_attempt(user_metadata.receipts(commits), "first")

    assert found is not None
    assert found.backfill_id == "b1"
    assert user_metadata.of_attempt(user_metadata.receipts(commits), "third") is None
    assert [one.sequence for one in user_metadata.oldest_first(user_metadata.receipts(commits))] == [1, 2]


@pytest.mark.parametrize("text", [None, "", "a note", "[1]", "3", json.dumps({"safe_backfill": "mine"}), "{}", 5])
def test_what_others_keep_there_is_no_receipt(text: object) -> None:
    assert list(user_metadata.receipts([(1, AT, text)])) == []
