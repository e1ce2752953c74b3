"""The numbers go where Airflow sends its own, under the documented names, and a broken backend harms nobody."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.observability import stats
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired


def test_a_backfill_tells_each_partitions_duration_rows_changes_and_outcome(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any, dict[str, str]]] = []
    monkeypatch.setattr(stats, "incr", lambda name, count, tags: told.append((name, count, tags)))
    monkeypatch.setattr(stats, "timing", lambda name, dt, tags: told.append((name, dt.total_seconds() > 0, tags)))

    HandRun(wired(shop.spec, request=OF_THE_DAY)).run()

    of = {"backfill": "orders"}
    partition = "safe_backfill.partition"
    assert told == [
        (f"{partition}.staged_seconds", True, of),
        (f"{partition}.staged_rows", 5, of),
        (f"{partition}.outcomes", 1, of | {"outcome": "staged"}),
        (f"{partition}.outcomes", 1, of | {"outcome": "validated"}),
        (f"{partition}.changed_rows", 5, of),
        (f"{partition}.outcomes", 1, of | {"outcome": "published"}),
    ]


def test_metrics_that_cannot_be_told_change_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no such host")

    monkeypatch.setattr(stats, "incr", broken)
    monkeypatch.setattr(stats, "timing", broken)
    assert set(HandRun(wired(shop.spec, request=OF_THE_DAY)).run().values()) == {"success"}
    assert shop.corrected() == [4]
