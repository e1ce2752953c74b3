"""What the operators share: how they open their work, and how our errors become Airflow's.

Every task parses its DAG file anew, so the modules of operators import no use case at the top: SQL parser, ledger and
engine are imported by the task that runs them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException

from airflow_backfill_provider.errors import (
    TRANSIENT,
    BackfillError,
    CodeFailed,
    LedgerError,
    RangeLocked,
    Throttled,
)
from airflow_backfill_provider.identity import UNKNOWN_USER, backfill_id, require_id
from airflow_backfill_provider.operators.stop import stop_signal
from airflow_backfill_provider.spec.load import load_spec
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Mode

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.records import Origin
    from airflow_backfill_provider.ledger.store import Ledger
    from airflow_backfill_provider.steps.work import Work
    from airflow_backfill_provider.warehouses.base import Warehouse

AnySpec = BackfillSpec | str | Path
"""A spec, or the path of its YAML file: absolute, or relative to the working directory."""
BY_DAG_TEST = "dag_test"
"""Who triggers a run of ``DAG.test()``, which runs one task after the other, in any order, heeds no pool, and makes a run of the
same ids anew each time."""
SCOPED = "backfill"
"""XCom key under which a scope task says which backfill this run works on, and how far it goes."""


_STEP_SECONDS = 0.25


class BackfillOperator(BaseOperator):
    """Base of the operators: one spec, one backfill.

    :param spec: the reviewed spec, or the path of its YAML file, which is read when the task runs. Not templated.
    :param backfill_id: the backfill to work on; templated. Left out, it is the one that the scope task of this spec
        upstream works on; without a scope task, the conf's ``backfill_id`` or one derived from this DAG run.
    """

    template_fields: Sequence[str] = ("backfill_id",)
    ui_color = "#e8f0e4"
    decides_the_backfill = False
    """Whether the tasks downstream work on the backfill that this one says."""
    heeds_stop_signals = True
    runs_beside_others = False
    """Whether ``compute.max_concurrency`` of these run at once."""
    stop_signal_age = 0.0
    """Seconds that a stop signal may go unnoticed between two partitions; never before a publish."""

    def __init__(self, *, spec: AnySpec, backfill_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.written_spec = spec
        self.backfill_id = backfill_id
        self._warehouse: Warehouse | None = None
        self._is_ended = False

    @cached_property
    def spec(self) -> BackfillSpec:
        """The spec; read from its file when it is first asked for.

        :raises SpecError: it cannot be read; with every problem in it.
        """
        return read_spec(self.written_spec)

    def scoped(self, context: Context) -> Mapping[str, Any] | None:
        """What the scope task of this spec upstream said of this run; None without such a task, or before it did."""
        for task_id in self.scope_task_ids:
            return context["ti"].xcom_pull(task_ids=task_id, key=SCOPED, map_indexes=-1)  # type: ignore[no-any-return]
        return None

    @property
    def scope_task_ids(self) -> list[str]:
        """The scope task of this spec upstream; none when the DAG has no such task."""
        return [
            task.task_id
            for task in self.get_flat_relatives(upstream=True)
            if isinstance(task, BackfillOperator) and task.decides_the_backfill and task.spec.name == self.spec.name
        ]

    def mode(self, context: Context) -> Mode | None:
        """How far this run goes: what its scope task said, ``publish`` without one; None when that said nothing yet."""
        if not self.scope_task_ids:
            return Mode.PUBLISH
        said = self.scoped(context)
        return None if said is None else Mode(said["mode"])

    def which(self, context: Context) -> str:
        """The id of the backfill to work on.

        :raises RequestError: what was written is no id.
        """
        run = context["dag_run"]
        asked = self.backfill_id or (self.scoped(context) or context["params"]).get("backfill_id")
        return require_id(str(asked)) if asked else own_backfill(run)

    @contextmanager
    def work(self, context: Context) -> Iterator[Work]:
        """Open warehouse and ledger for one execution; errors that a retry cannot mend fail the task at once."""
        from airflow_backfill_provider.connections import installation, open_ledger
        from airflow_backfill_provider.ledger.records import AirflowTask
        from airflow_backfill_provider.operators.elsewhere import elsewhere_of
        from airflow_backfill_provider.operators.stats import AirflowStats
        from airflow_backfill_provider.operators.throttle import measure
        from airflow_backfill_provider.steps.throttle import Throttling
        from airflow_backfill_provider.steps.work import Work, go_on, utc_now

        run, ti = context["dag_run"], context["ti"]
        with airflow_errors(), open_ledger() as ledger:
            found = self.which(context)
            warehouse = self._warehouse = self.open_warehouse(ledger, found)
            by = f"{actor(context)} via {ti.task_id}[{ti.map_index}] try {ti.try_number} of {run.run_id}"
            metrics = AirflowStats(self.spec.name)
            clear_number = getattr(run, "clear_number", None) or 0
            throttling = Throttling(
                ledger, found, self.spec.throttle, measure, utc_now, by, metrics, run.run_id, clear_number
            )
            try:
                yield Work(
                    spec=self.spec,
                    backfill_id=found,
                    warehouse=warehouse,
                    ledger=ledger,
                    by=by,
                    check_throttle=throttling,
                    measure_lag=throttling.measure_lag,
                    metrics=metrics,
                    check_stop=stop_signal(context, self.spec.name, every=self.stop_signal_age)
                    if self.heeds_stop_signals
                    else go_on,
                    elsewhere=lambda spec: elsewhere_of(spec, context),
                    pause=self._pause,
                    run_id=run.run_id,
                    task=AirflowTask(run.dag_id, run.run_id, ti.task_id, installation()),
                    clear_number=clear_number,
                    is_last_try=ti.try_number > ti.max_tries,
                    log=logging.getLogger(type(self).__module__),
                )
            finally:
                self._warehouse = None
                warehouse.close()

    def open_warehouse(self, ledger: Ledger, backfill_id: str) -> Warehouse:
        """The warehouse to work on; the caller closes it."""
        from airflow_backfill_provider.connections import warehouse_for

        return warehouse_for(self.spec, sharers=self.spec.compute.max_concurrency if self.runs_beside_others else 1)

    def on_kill(self) -> None:
        """End the statement that is running, whose writes are rolled back, the dbt that compiles, and the wait for a run elsewhere."""
        from airflow_backfill_provider.recompute.dbt_command import end_compiling

        self._is_ended = True
        end_compiling()
        if self._warehouse is not None:
            self._warehouse.cancel()

    def _pause(self, seconds: float) -> None:
        """Wait, in short steps: this is where :meth:`on_kill`, a signal's handler, is noticed.

        :raises CodeFailed: the task is to end.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_SECONDS))
            if self._is_ended:
                raise CodeFailed("The task was ended while it waited.")


def read_spec(written: AnySpec) -> BackfillSpec:
    """The spec itself.

    :raises SpecError: it cannot be read; with every problem in it.
    """
    return written if isinstance(written, BackfillSpec) else load_spec(written)


def own_backfill(run: Any) -> str:
    """The id of the backfill of this very run."""
    from airflow_backfill_provider.connections import installation

    return backfill_id(run.dag_id, run.run_id, installation())


def origin(run: Any) -> Origin:
    """Where the run comes from."""
    from airflow_backfill_provider.connections import installation
    from airflow_backfill_provider.ledger.records import Origin

    is_test = getattr(run, "triggering_user_name", None) == BY_DAG_TEST
    started_at = None if is_test else getattr(run, "start_date", None)
    return Origin(installation(), started_at, getattr(run, "clear_number", None) or 0)


def actor(context: Context) -> str:
    """Who triggered the run."""
    return getattr(context["dag_run"], "triggering_user_name", None) or UNKNOWN_USER


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Only what says nothing of the work itself, and an error of the team's own code, may be retried; who must wait gives its slot back."""
    try:
        yield
    except Throttled as wait:
        logging.getLogger(__name__).info("%s", wait)
        raise AirflowRescheduleException(wait.again_at) from wait  # type: ignore[no-untyped-call]
    except (*TRANSIENT, CodeFailed) as error:
        raise AirflowException(str(error)) from error
    except BackfillError as error:
        raise AirflowFailException(str(error)) from error


@contextmanager
def live_errors() -> Iterator[None]:
    """For tasks of a scheduled DAG, which go on by themselves: whatever the ledger says, a retry may find it otherwise."""
    with airflow_errors():
        try:
            yield
        except (LedgerError, RangeLocked) as error:
            raise AirflowException(str(error)) from error
