"""What the operators share: how they open their work, and how our errors become Airflow's.

Every task parses its DAG file anew, so the modules of operators import no use case at the top: SQL parser, ledger and
engine are imported by the task that runs them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_backfill_provider.errors import BackfillError, ConnectionLost, LockTimeout
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.operators.stop import stop_signal
from airflow_backfill_provider.spec.model import BackfillSpec

if TYPE_CHECKING:
    from airflow_backfill_provider.steps.work import Work
    from airflow_backfill_provider.warehouses.base import Warehouse


class BackfillOperator(BaseOperator):
    """Base of the operators: one spec, one backfill.

    :param spec: the reviewed spec, loaded.
    :param backfill_id: the backfill to work on; templated. Left out, it is the conf's ``backfill_id`` or, without
        one, derived from this DAG run.
    """

    template_fields: Sequence[str] = ("backfill_id",)
    ui_color = "#e8f0e4"
    heeds_stop_signals = True
    runs_beside_others = False
    """Whether ``compute.max_concurrency`` of these run at once."""
    stop_signal_age = 0.0
    """Seconds that a stop signal may go unnoticed between two partitions; never before a publish."""

    def __init__(self, *, spec: BackfillSpec, backfill_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec
        self.backfill_id = backfill_id
        self._warehouse: Warehouse | None = None

    @contextmanager
    def work(self, context: Context) -> Iterator[Work]:
        """Open warehouse and ledger for one execution; errors that a retry cannot mend fail the task at once."""
        from airflow_backfill_provider.connections import open_ledger, warehouse_for
        from airflow_backfill_provider.steps.work import Work, go_on

        run, ti = context["dag_run"], context["ti"]
        asked = self.backfill_id or context["params"].get("backfill_id")
        with airflow_errors(), open_ledger() as ledger:
            warehouse = self._warehouse = warehouse_for(
                self.spec, sharers=self.spec.compute.max_concurrency if self.runs_beside_others else 1
            )
            try:
                yield Work(
                    spec=self.spec,
                    backfill_id=str(asked) if asked else backfill_id(run.dag_id, run.run_id),
                    warehouse=warehouse,
                    ledger=ledger,
                    by=f"{actor(context)} via {ti.task_id}[{ti.map_index}] try {ti.try_number} of {run.run_id}",
                    check_stop=stop_signal(context, self.spec.name, every=self.stop_signal_age)
                    if self.heeds_stop_signals
                    else go_on,
                    log=logging.getLogger(type(self).__module__),
                )
            finally:
                self._warehouse = None
                warehouse.close()

    def on_kill(self) -> None:
        """End the statement that is running; what it would have written is rolled back."""
        if self._warehouse is not None:
            self._warehouse.cancel()


def actor(context: Context) -> str:
    """Who triggered the run."""
    return getattr(context["dag_run"], "triggering_user_name", None) or "unknown user"


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Only a lost connection or a lock that was not to be had may be retried."""
    try:
        yield
    except (ConnectionLost, LockTimeout) as error:
        raise AirflowException(str(error)) from error
    except BackfillError as error:
        raise AirflowFailException(str(error)) from error
