"""ScopePartitionsOperator: freeze the plan, before anything runs."""

from __future__ import annotations

from typing import Any

from airflow.sdk.configuration import conf
from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.operators.base import BackfillOperator, actor
from airflow_backfill_provider.operators.pool import wait_for_pool
from airflow_backfill_provider.spec.request import Request


class ScopePartitionsOperator(BackfillOperator):
    """Resolve the run's conf into a frozen plan, lock its range, print it, and return its batches for mapping.

    A cleared or repeated task loads the plan it made before. The return value is a list of
    ``{"label": …, "keys": […]}``, at most 1,024 entries; the SQL stays in the ledger.

    :param pool_probe: task id of a task in the compute pool that shows whether anything starts there.
    """

    def __init__(self, *, pool_probe: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pool_probe = pool_probe

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from airflow_backfill_provider.connections import SECTION
        from airflow_backfill_provider.preview import preview
        from airflow_backfill_provider.steps.scope import Run, scope

        with self.work(context) as work:
            request = Request.from_conf(dict(context["params"]))
            run = context["dag_run"]
            scoped = scope(
                work,
                request,
                Run(run.dag_id, run.run_id, actor(context)),
                strict=conf.get(SECTION, "policy", fallback="default") == "strict",
                code_revision=str(getattr(run, "bundle_version", None) or ""),
            )
            self.log.info("%s", preview(scoped.plan))
            if scoped.note:
                self.log.info("Note: %s", scoped.note)
            if scoped.batches and self.pool_probe is not None:
                wait_for_pool(context, self.spec.compute.pool, self.pool_probe)
        return [{"label": batch.label, "keys": list(batch.keys)} for batch in scoped.batches]
