"""ScopePartitionsOperator: freeze the plan, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from airflow.sdk.configuration import conf
from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.identity import require_id
from airflow_backfill_provider.operators.base import (
    SCOPED,
    BackfillOperator,
    actor,
    airflow_errors,
    origin,
    own_backfill,
)
from airflow_backfill_provider.operators.outlet import require_outlet
from airflow_backfill_provider.operators.pool import skip, wait_for_pool
from airflow_backfill_provider.operators.trial import TrialOperator
from airflow_backfill_provider.spec.request import Request


class ScopePartitionsOperator(BackfillOperator):
    """Resolve a request into a frozen plan, lock its range, print it, and return its batches for mapping.

    A cleared or repeated task loads the plan it made before. The return value is a list of
    ``{"label": …, "keys": […]}``, at most ``core.max_map_length`` entries; the SQL stays in the ledger. The XCom ``backfill`` tells the
    tasks downstream which backfill this run works on and how far it goes.

    :param request: what a trigger's conf would say, in the same words: ``start_date``, ``end_date``, ``partitions``,
        ``exclude``, ``expand``, ``include_live``, ``reason``, ``mode``, ``backfill_id``, ``restage``, ``rebase``,
        ``drill``, ``waive_approval``; templated, what renders to nothing counts as left out. With it the run's params are not read; without it they
        are the request.
    :param pool_probe: task id of a task in the compute pool that shows whether anything starts there.
    :raises SpecError: with a probe, the DAG starts one task at a time, so that scope and probe never run together.
    """

    template_fields = (*BackfillOperator.template_fields, "request")
    decides_the_backfill = True

    def __init__(
        self, *, request: Mapping[str, Any] | None = None, pool_probe: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.request = request
        self.pool_probe = pool_probe
        dag = self.get_dag()
        if pool_probe is not None and dag is not None and dag.max_active_tasks < 2:
            raise SpecError(
                f"max_active_tasks of {dag.dag_id} is {dag.max_active_tasks}: {self.task_id} waits for its probe "
                f"{pool_probe} to start, which it never would. It has to be at least 2. Or leave out pool_probe."
            )

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from airflow_backfill_provider.connections import SECTION, executor_spanning_hosts, most_mapped_tasks
        from airflow_backfill_provider.operators.at_work import has_tasks
        from airflow_backfill_provider.preview import preview
        from airflow_backfill_provider.steps.others import others_at_work
        from airflow_backfill_provider.steps.scope import Run, scope

        with airflow_errors():
            request, found = self._request(context), self.which(context)
        scoped_as = {"backfill_id": found, "mode": str(request.mode), "waive_approval": request.waive_approval}
        context["ti"].xcom_push(key=SCOPED, value=scoped_as)
        with self.work(context) as work:
            require_outlet(self.spec)
            run = context["dag_run"]
            scoped = scope(
                work,
                request,
                Run(run.dag_id, run.run_id, actor(context), origin(run)),
                strict=conf.get(SECTION, "policy", fallback="default") == "strict",
                spans_hosts=executor_spanning_hosts(),
                most_tasks=most_mapped_tasks(),
                code_revision=str(getattr(run, "bundle_version", None) or ""),
            )
            self.log.info("%s", preview(scoped.plan))
            if scoped.note:
                self.log.info("Note: %s", scoped.note)
            if not scoped.batches:
                # It has nothing to do, and the report would wait for it as long as it waits for a slot.
                skip([task.task_id for task in self.get_flat_relatives() if self._is_tried_by(task)])
            elif self.pool_probe is not None:
                pool = self.spec.compute.pool
                wait_for_pool(
                    context, pool, self.pool_probe, lambda: others_at_work(work, pool, partial(has_tasks, context))
                )
        return [{"label": batch.label, "keys": list(batch.keys)} for batch in scoped.batches]

    def which(self, context: Context) -> str:
        run = context["dag_run"]
        asked = self.backfill_id or self._request(context).backfill_id
        return require_id(asked) if asked else own_backfill(run)

    def _is_tried_by(self, task: Any) -> bool:
        """Whether that is a trial of the backfill that this task decides on, wherever downstream."""
        return isinstance(task, TrialOperator) and self.task_id in task.scope_task_ids

    def _request(self, context: Context) -> Request:
        return Request.from_conf(dict(context["params"]) if self.request is None else self.request)
