"""A task that must wait gives its slot back: Airflow reschedules it; and what it waits for is shown."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.cli.ledger import status
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.operators.throttle import measure
from airflow_backfill_provider.spec.throttle import Throttle


def value() -> float:
    return 7


def test_a_throttled_task_is_rescheduled_and_status_names_reason_value_and_limit(
    throttled: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    run = HandRun(wired(throttled.spec, request=OF_THE_DAY))
    run.execute("plan_it")
    now = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as waits:
        run.execute("stage")
    assert now < waits.value.reschedule_date < now + timedelta(minutes=6)
    status(Namespace(backfill_id=backfill_id("by_hand", run.run_id), trail=False))
    assert ": lag is 42, above 30, when it was last looked at" in capsys.readouterr().out
    assert throttled.corrected() == []


def test_a_query_and_a_function_are_measured_and_anything_but_one_number_is_an_error(throttled: Shop) -> None:
    one = {"name": "a", "max": 1}
    assert measure(Throttle(**one, sql="SELECT 42", conn_id="live")) == 42
    assert measure(Throttle(**one, callable=f"{__name__}:value")) == 7
    for sql in ("SELECT 1, 2", "SELECT 1 WHERE 1 = 0"):
        with pytest.raises(ValueError, match="one row of one number"):
            measure(Throttle(**one, sql=sql, conn_id="live"))
    assert throttled.corrected() == []


def test_duckdb_is_refused_where_an_executor_spans_hosts_unless_a_queue_keeps_it_on_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor,LocalExecutor")
    with pytest.raises(
        AirflowFailException, match=r"files of one host, and CeleryExecutor may run each task on another"
    ):
        HandRun(wired(shop.spec, request=OF_THE_DAY)).execute("plan_it")
    with shop.ledger() as ledger:
        assert ledger.backfills() == []
    queued = shop.spec.model_copy(update={"compute": shop.spec.compute.model_copy(update={"queue": "duck"})})
    run = HandRun(wired(queued, request=OF_THE_DAY))
    run.execute("plan_it")
    with shop.ledger() as ledger:
        warnings = ledger.plan(backfill_id("by_hand", run.run_id)).document["warnings"]
    assert any("the queue duck must be served by a worker there alone" in line for line in warnings)
