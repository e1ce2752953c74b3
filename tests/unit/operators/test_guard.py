"""The guard of scheduled DAGs: it holds the run's range while the tasks write, and gives it back however they end."""

from __future__ import annotations

import getpass
import json
import sqlite3
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, TaskGroup, task
from airflow.sdk.definitions._internal.contextmanager import _CURRENT_CONTEXT
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization
from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired

from airflow_backfill_provider.cli.ledger import abandon, list_backfills
from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.identity import backfill_id, claim_id
from airflow_backfill_provider.ledger import engine as ledger_engine
from airflow_backfill_provider.operators import guard as guards
from airflow_backfill_provider.operators.guard import RangeGuardOperator, RangeReleaseOperator, guard, guarded
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.guard import written_by_run
from airflow_backfill_provider.windows import Value, Window

SHORT = timedelta(0)


class Write(BaseOperator):
    """A task of the user's; it notes who holds what while it writes."""

    def __init__(self, *, shop: Shop, dies: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shop, self.dies = shop, dies

    def execute(self, context: Any) -> list[str]:
        if self.dies:
            raise RuntimeError("boom")
        return held(self.shop)


def held(shop: Shop) -> list[str]:
    with shop.ledger() as ledger:
        return [f"{claim.target} {claim.span}" for claim in ledger.live_claims()]


def daily(shop: Shop, **arguments: Any) -> DAG:
    with DAG("daily", schedule=None) as dag:
        extract, publish, notify = (Write(task_id=task_id, shop=shop) for task_id in ("extract", "publish", "notify"))
        extract >> publish >> notify
        guard(shop.spec_file, publish, patience=SHORT, **arguments)
    return dag


MARCH_4 = "analytics.orders [2024-03-04T00:00:00Z, 2024-03-05T00:00:00Z)"


def test_the_range_is_held_while_the_task_writes_and_no_longer(shop: Shop) -> None:
    run = HandRun(daily(shop))
    assert set(run.run().values()) == {"success"}
    assert run.xcoms["extract", "return_value"] == []
    assert run.xcoms["publish", "return_value"] == [MARCH_4]
    assert held(shop) == []


def test_the_guard_is_the_setup_of_its_task_and_the_release_the_teardown(shop: Shop) -> None:
    dag = daily(shop)
    take, give_back = dag.task_dict["guard_publish"], dag.task_dict["release_publish"]
    assert (take.is_setup, give_back.is_teardown) == (True, True)
    assert give_back.on_failure_fail_dagrun is False
    assert take.upstream_task_ids == {"extract"}
    assert take.downstream_task_ids == {"publish", "release_publish"}
    assert dag.task_dict["notify"].upstream_task_ids == {"publish"}
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_several_tasks_in_a_group_are_guarded_as_one(shop: Shop) -> None:
    with DAG("daily", schedule=None) as dag:
        before = Write(task_id="before", shop=shop)
        with TaskGroup("load"):
            first, second = (Write(task_id=task_id, shop=shop) for task_id in ("first", "second"))
            before >> first >> second
            guard(shop.spec, first, second)
    assert dag.task_dict["load.guard_first"].upstream_task_ids == {"before"}
    run = HandRun(dag)
    run.run()
    assert run.xcoms["load.first", "return_value"] == run.xcoms["load.second", "return_value"] == [MARCH_4]
    assert held(shop) == []


def test_a_taskflow_task_is_guarded_by_what_calling_it_returned_and_no_task_is_an_error(shop: Shop) -> None:
    with DAG("daily", schedule=None) as dag:

        @task
        def publish() -> list[str]:
            return held(shop)

        guard(shop.spec, publish())
        with pytest.raises(ValueError, match="give the tasks that write"):
            guard(shop.spec)
    run = HandRun(dag)
    run.run()
    assert run.xcoms["publish", "return_value"] == [MARCH_4]


def test_a_backfill_of_the_range_is_refused_while_the_run_writes_and_names_it(shop: Shop) -> None:
    run = HandRun(daily(shop))
    run.execute("extract")
    run.execute("guard_publish")
    with pytest.raises(AirflowFailException, match="The run 'scheduled__2024-03-04' of DAG 'daily'"):
        HandRun(wired(shop.spec, request=OF_THE_DAY)).execute("plan_it")
    run.execute("release_publish")
    HandRun(wired(shop.spec, request=OF_THE_DAY)).run()
    assert shop.corrected() == [4]


def test_a_run_whose_range_a_backfill_owns_fails_so_that_a_retry_may_go_on(shop: Shop) -> None:
    backfill = HandRun(wired(shop.spec, request={"start_date": "2024-03-01", "end_date": "2024-03-06"}))
    backfill.execute("plan_it")
    owner = backfill_id("by_hand", backfill.run_id)
    run = HandRun(daily(shop))
    with pytest.raises(
        AirflowException, match=f"Backfill '{owner}' owns .*airflow safe-backfill status {owner}"
    ) as told:
        run.execute("guard_publish")
    assert not isinstance(told.value, AirflowFailException), "an AirflowFailException is never retried"
    backfill.run()
    run.execute("guard_publish", attempt=2)
    assert held(shop) == [MARCH_4]


def test_a_guard_waits_as_long_as_its_patience_for_a_backfill_to_end(shop: Shop) -> None:
    backfill = HandRun(wired(shop.spec, request=OF_THE_DAY))
    backfill.execute("plan_it")
    with DAG("daily", schedule=None) as dag:
        guard(shop.spec, Write(task_id="publish", shop=shop), patience=timedelta(seconds=60))
    waiting = threading.Thread(target=lambda: HandRun(dag).execute("guard_publish"))
    waiting.start()
    assert held(shop) == []
    backfill.run()
    waiting.join(60)
    assert held(shop) == [MARCH_4]


def test_a_task_that_fails_gives_its_range_back(shop: Shop) -> None:
    with DAG("daily", schedule=None) as dag:
        guard(shop.spec, Write(task_id="publish", shop=shop, dies=True))
    run = HandRun(dag)
    run.execute("guard_publish")
    with pytest.raises(RuntimeError, match="boom"):
        run.execute("publish")
    assert dag.task_dict["release_publish"].trigger_rule == "all_done_setup_success"
    assert run.execute("release_publish") is True
    assert run.execute("release_publish") is False
    assert held(shop) == []


def test_a_guard_that_died_is_taken_over_by_its_own_retry_and_by_nobody_else(shop: Shop) -> None:
    run = HandRun(daily(shop))
    run.execute("guard_publish", attempt=1)
    other = HandRun(daily(shop), run_id="manual__other")
    with pytest.raises(AirflowException, match="The run 'scheduled__2024-03-04' of DAG 'daily'"):
        other.execute("guard_publish")
    run.execute("guard_publish", attempt=2)
    run.execute("release_publish")
    other.execute("guard_publish")


def test_a_dead_runs_claim_is_listed_and_released_by_the_command_line(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    run = HandRun(daily(shop))
    run.execute("guard_publish")
    found = claim_id("daily", run.run_id, "guard_publish", -1)
    list_backfills(Namespace(live=True, name=None, limit=5))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(found)]
    assert MARCH_4 in line
    assert "run 'scheduled__2024-03-04' of DAG 'daily' (task guard_publish)" in line
    abandon(Namespace(backfill_id=found, reason="its worker is gone", publish_is_dead=False, rollback_is_dead=False))
    assert f"Claim {found} is released" in capsys.readouterr().out
    list_backfills(Namespace(live=True, name=None, limit=5))
    nobody, told = capsys.readouterr().out.splitlines()
    assert nobody == "No scheduled run holds a range."
    assert told.startswith(f"Given up: {found}  ")
    assert told.endswith(
        f"{getpass.getuser()} via cli: its worker is gone  {MARCH_4}  run 'scheduled__2024-03-04' of DAG 'daily' (task guard_publish)"
    )
    with pytest.raises(SystemExit, match=f"LedgerError: .*{found}"):
        abandon(Namespace(backfill_id=found, reason="once more", publish_is_dead=False, rollback_is_dead=False))


def test_the_partitions_of_a_guard_are_templated(shop: Shop) -> None:
    run = HandRun(daily(shop, partitions=["{{ data_interval_end | ds }}", "2024-03-06"]))
    run.run()
    assert run.xcoms["publish", "return_value"] == ["analytics.orders [2024-03-05T00:00:00Z, 2024-03-07T00:00:00Z)"]
    assert RangeGuardOperator.template_fields == ("partitions",)
    assert RangeReleaseOperator.template_fields == ()


def in_task(run: HandRun, function: Callable[[], Any]) -> Any:
    """Call a guarded function as its task does."""
    with DAG("decorated", schedule=None):
        decorated = task(function)().operator
    context = run.context(decorated)
    _CURRENT_CONTEXT.append(context)
    try:
        return function()
    finally:
        _CURRENT_CONTEXT.pop()


def test_a_guarded_function_holds_the_range_while_it_runs_and_gives_it_back_however_it_ends(shop: Shop) -> None:
    run = HandRun(DAG("decorated", schedule=None))

    @guarded(shop.spec_file, patience=SHORT)
    def publish() -> list[str]:
        return held(shop)

    @guarded(shop.spec, partitions=["{{ data_interval_end | ds }}"], patience=SHORT)
    def breaks() -> None:
        raise RuntimeError(held(shop)[0])

    assert publish.__name__ == "publish"
    assert in_task(run, publish) == [MARCH_4]
    assert held(shop) == []
    with pytest.raises(RuntimeError, match=r"\[2024-03-05"):
        in_task(run, breaks)
    assert held(shop) == []


def test_a_guarded_function_does_not_run_while_a_backfill_owns_its_range(shop: Shop) -> None:
    HandRun(wired(shop.spec, request=OF_THE_DAY)).execute("plan_it")
    ran = []

    @guarded(shop.spec, patience=SHORT)
    def publish() -> None:
        ran.append(True)

    with pytest.raises(AirflowException, match=r"Backfill .* owns"):
        in_task(HandRun(DAG("decorated", schedule=None)), publish)
    assert ran == []


def test_an_async_function_is_refused_when_it_is_decorated(shop: Shop) -> None:
    async def publish() -> None:
        """Nothing."""

    with pytest.raises(TypeError, match="publish is async"):
        guarded(shop.spec)(publish)


def test_a_run_without_an_interval_says_what_to_do_and_holds_nothing(shop: Shop) -> None:
    at = datetime(2024, 3, 4, tzinfo=UTC)
    with pytest.raises(AirflowFailException, match=r"holds no instant.*CronDataIntervalTimetable"):
        HandRun(daily(shop), start=at, end=at).execute("guard_publish")
    assert held(shop) == []


def test_what_a_run_writes_is_its_interval_or_the_partitions_it_names(shop: Shop) -> None:
    start, end = datetime(2024, 3, 4, tzinfo=UTC), datetime(2024, 3, 5, tzinfo=UTC)
    assert written_by_run(shop.spec, start, end) == (Window(start, end),)
    assert written_by_run(shop.spec, None, None, ["2024-03-04"]) == (Window(start, end),)
    document = json.loads(shop.spec.model_dump_json())
    regions = BackfillSpec.model_validate(document | {"target": document["target"] | {"grain": "list"}})
    assert written_by_run(regions, None, None, ["eu", "us"]) == (Value("eu"), Value("us"))
    with pytest.raises(RequestError, match="Give the guard partitions"):
        written_by_run(regions, start, end)
    with pytest.raises(RequestError, match="2024-13"):
        written_by_run(shop.spec, start, end, ["2024-13-01"])


@contextmanager
def ledger_held(shop: Shop) -> Iterator[None]:
    """While another process writes the ledger."""
    with closing(sqlite3.connect(shop.folder / "ledger.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_engine, "LOCK_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(guards, "RELEASE_PAUSES", (0.01,))


@pytest.mark.usefixtures("impatient")
def test_a_guard_and_its_release_may_be_tried_again_when_the_ledger_was_held(shop: Shop) -> None:
    run = HandRun(daily(shop))
    for task_id in ("guard_publish", "release_publish"):
        with ledger_held(shop), pytest.raises(AirflowException, match="Another process held it") as told:
            run.execute(task_id)
        assert not isinstance(told.value, AirflowFailException), "an AirflowFailException is never retried"
        run.execute(task_id, attempt=2)
    assert held(shop) == []


def test_a_guard_may_be_tried_again_whatever_the_ledger_says(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SAFE_BACKFILL_LEDGER", '{"conn_type": "sqlite", "host": "relative.db"}')
    with pytest.raises(AirflowException, match="give an absolute path") as told:
        HandRun(daily(shop)).execute("guard_publish")
    assert not isinstance(told.value, AirflowFailException)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_ledger_that_does_not_take_the_claim_back_changes_nothing_of_how_the_function_ended(
    shop: Shop, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    run = HandRun(DAG("decorated", schedule=None))
    inside = ExitStack()

    @guarded(shop.spec, patience=SHORT)
    def publish() -> str:
        inside.enter_context(ledger_held(shop))
        if ends == "badly":
            raise ConnectionError("the warehouse does not answer")
        return "written"

    with inside:
        if ends == "badly":
            with pytest.raises(ConnectionError, match="the warehouse does not answer"):
                in_task(run, publish)
        else:
            assert in_task(run, publish) == "written"
    assert held(shop) == [MARCH_4]
    (found,) = [record.getMessage() for record in caplog.records if "could not be given back" in record.getMessage()]
    with shop.ledger() as ledger:
        (claim,) = ledger.live_claims()
    assert f"airflow safe-backfill abandon {claim.run.claim_id}" in found


@pytest.mark.usefixtures("impatient")
def test_a_ledger_that_answers_again_a_moment_later_takes_the_claim_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandRun(DAG("decorated", schedule=None))
    inside = ExitStack()
    monkeypatch.setattr(guards.time, "sleep", lambda seconds: inside.close())

    @guarded(shop.spec, patience=SHORT)
    def publish() -> None:
        inside.enter_context(ledger_held(shop))

    in_task(run, publish)
    assert held(shop) == []
