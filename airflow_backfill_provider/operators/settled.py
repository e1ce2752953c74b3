"""A sensor for DAGs that read a table: wait while a backfill restates what the run is about to read.

.. code-block:: python

    PartitionSettledSensor(task_id="settled", spec="backfills/fct_flights.yaml") >> build_dashboard
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_backfill_provider.errors import BackfillError, LedgerUnavailable
from airflow_backfill_provider.operators.base import AnySpec, live_errors, read_spec
from airflow_backfill_provider.windows import Span, Value, Window

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.records import Restatement

SHORTEST_WAIT = timedelta(seconds=10)
"""Airflow loses track of tasks that come back from the triggerer after less than about five seconds."""


PATIENCE = timedelta(minutes=5)
"""For how long the triggerer goes on asking a ledger that does not answer."""


class PartitionSettledSensor(BaseSensorOperator):
    """Wait until no backfill owns anything of what this run reads.

    Looks once; while something is owned it waits in the triggerer, where it holds no worker and no slot of a pool that does
    not count deferred tasks. A backfill owns its range from its plan until it is completed, given up or rolled back, so that
    a range which is published but not shown to be right is waited for too. Runs of the scheduled pipeline are not.

    :param spec: the spec of the table that is read, or the path of its YAML file. Not templated.
    :param partitions: keys of the partitions that the run reads; templated. Left out, it is the run's data interval.
    :param poke_interval: seconds between two looks at the ledger; at least 10.
    :param timeout: seconds after which waiting fails, or is skipped with ``soft_fail``.
    """

    template_fields: Sequence[str] = ("partitions",)
    ui_color = "#e4ecf0"

    def __init__(self, *, spec: AnySpec, partitions: Sequence[str] | str = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.written_spec = spec
        self.partitions = partitions

    def execute(self, context: Context) -> None:
        """Go on when everything is settled, or wait for it.

        :raises TaskDeferred: something is being restated.
        :raises AirflowException: the ledger could not be read, which a retry may mend.
        """
        from airflow_backfill_provider.steps.guard import written_by_run

        keys = [self.partitions] if isinstance(self.partitions, str) else list(self.partitions)
        with live_errors():
            spec = read_spec(self.written_spec)
            start, end = context.get("data_interval_start"), context.get("data_interval_end")
            spans = written_by_run(spec, start, end, keys)
            found = _restating(spec.target.table, spans)
        if found:
            self._wait(spec.target.table, spans, found)
        self.log.info("No backfill owns anything of %s of %s.", ", ".join(map(str, spans)), spec.target.table)

    def go_on(self, context: Context, event: Mapping[str, Any]) -> None:
        """Come back from the triggerer.

        :raises AirflowException: the ledger could not be read.
        """
        if "error" in event:
            raise AirflowException(event["error"])
        self.log.info("%s", event["settled"])

    def _wait(self, target: str, spans: Sequence[Span], found: Sequence[Restatement]) -> NoReturn:
        self.log.info("Waiting for %s: %s.", target, "; ".join(map(str, found)))
        every = max(float(self.poke_interval), SHORTEST_WAIT.total_seconds())
        self.defer(
            trigger=PartitionSettledTrigger(target=target, spans=[_written(span) for span in spans], every=every),
            method_name=self.go_on.__name__,
            timeout=timedelta(seconds=self.timeout),
        )


class PartitionSettledTrigger(BaseTrigger):
    """Look at the ledger until no backfill owns anything of the spans of a target; keeps no connection in between.

    :param spans: each as ``[start, end]`` in ISO 8601, or as a text, the value of a list.
    :param every: seconds between two looks.
    """

    def __init__(self, *, target: str, spans: Sequence[list[str] | str], every: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.target, self.spans, self.every = target, list(spans), every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"target": self.target, "spans": self.spans, "every": self.every}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        spans = [_read(span) for span in self.spans]
        seen, answered = "", time.monotonic()
        while True:
            try:
                found = await sync_to_async(_restating)(self.target, spans)
                answered = time.monotonic()
            except LedgerUnavailable as error:
                if time.monotonic() - answered > PATIENCE.total_seconds():
                    yield _event(error=str(error))
                    return
                self.log.warning("Looking again in %s s: %s", self.every, error)
                await asyncio.sleep(self.every)
                continue
            except BackfillError as error:
                yield _event(error=str(error))
                return
            if not found:
                yield _event(settled=f"No backfill owns anything of it any more in {self.target}.")
                return
            if (said := "; ".join(map(str, found))) != seen:
                self.log.info("Waiting for %s: %s.", self.target, said)
                seen = said
            await asyncio.sleep(self.every)


def _event(**payload: str) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


def _restating(target: str, spans: Sequence[Span]) -> list[Restatement]:
    from airflow_backfill_provider.connections import open_ledger

    with open_ledger() as ledger:
        return ledger.restating(target, spans)


def _written(span: Span) -> list[str] | str:
    match span:
        case Window(start, end):
            return [start.isoformat(), end.isoformat()]
        case Value(text):
            return text


def _read(written: list[str] | str) -> Span:
    if isinstance(written, str):
        return Value(written)
    start, end = map(datetime.fromisoformat, written)
    return Window(start, end)
