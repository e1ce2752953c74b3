"""A worker that died without a word is seen in what a person is shown of its backfill."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from airflow_backfill_provider.cli.heartbeats import silent_lines
from airflow_backfill_provider.ledger.records import BackfillRecord

NOW = datetime(2024, 6, 1, 12, tzinfo=UTC)
BACKFILL = cast(BackfillRecord, SimpleNamespace(dag_id="backfill__orders", run_id="manual__1"))


def task(seconds: float | None, state: str = "running") -> Any:
    return SimpleNamespace(
        dag_id="backfill__orders",
        run_id="manual__1",
        task_id="partitions.stage_recompute",
        map_index=2,
        rendered_map_index="2024-03-01 … 2024-03-04",
        state=state,
        last_heartbeat_at=None if seconds is None else NOW - timedelta(seconds=seconds),
    )


def test_a_task_without_a_heartbeat_for_a_minute_is_called_silent_with_the_way_its_partitions_are_taken_over() -> None:
    beats, silent, told = silent_lines([task(4), task(200)], BACKFILL, NOW)
    assert beats.endswith("partitions.stage_recompute[2024-03-01 … 2024-03-04], last heartbeat 4 s ago")
    assert silent.endswith("last heartbeat 200 s ago")
    assert told.startswith("  silent      no heartbeat since 2024-06-01T11:56:40Z: the worker is most likely gone.")
    assert "taken over by airflow dags clear backfill__orders --run-id manual__1 --only-failed -y" in told


def test_one_that_beats_has_not_begun_or_waits_in_the_triggerer_is_not_silent() -> None:
    assert len(silent_lines([task(4), task(None), task(900, state="deferred")], BACKFILL, NOW)) == 3
    assert silent_lines([], BACKFILL, NOW) == []
